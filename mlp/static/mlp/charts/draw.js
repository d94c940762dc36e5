// Draws lines on a chart: the band from minimum to maximum, the raw line faint where there is a smoothed
// one, earlier attempts fainter, and marks where values are not finite. The pen is a canvas, or collects SVG.

export const MARKS = { nan: "×", inf: "▲", ninf: "▼" };

// `to`: {x, y} functions to pixels; `box`: {left, top, width, height} of the plot; `size`: pixels of a line's width.
export function draw(pen, lines, to, box, size) {
  pen.clip(box);
  for (const line of lines) {
    for (const piece of line.pieces) {
      const faint = (piece.earlier ? 0.35 : 1) * (line.weak ?? 1);
      const wide = size * (line.strong ?? 1);
      if (piece.low) band(pen, piece, to, line.colour, 0.16 * faint);
      if (piece.smooth) path(pen, piece.x, piece.y, to, line.colour, { width: wide, alpha: 0.28 * faint, dash: line.dash });
      path(pen, piece.x, piece.smooth ?? piece.y, to, line.colour, { width: 1.6 * wide, alpha: faint, dash: line.dash });
    }
  }
  pen.unclip();
  for (const line of lines) marks(pen, line, to, box, size); // whole ones, also at the edges
}

function path(pen, xs, ys, to, colour, look) {
  let run = [];
  const end = () => {
    if (run.length === 1) pen.dot(...run[0], 2.2 * look.width, colour, look.alpha);
    else if (run.length) pen.line(run, colour, look);
    run = [];
  };
  for (let index = 0; index < xs.length; index += 1) {
    const y = ys[index] === null ? NaN : to.y(ys[index]);
    const x = to.x(xs[index]);
    if (!Number.isFinite(x) || !Number.isFinite(y)) end();
    else run.push([x, y]);
  }
  end();
}

function band(pen, piece, to, colour, alpha) {
  let [upper, lower] = [[], []];
  const end = () => {
    if (upper.length > 1) pen.area([...upper, ...lower.reverse()], colour, alpha);
    [upper, lower] = [[], []];
  };
  for (let index = 0; index < piece.x.length; index += 1) {
    const [x, high, low] = [to.x(piece.x[index]), piece.high[index], piece.low[index]];
    const [top, bottom] = [to.y(high), to.y(low)];
    if (high === null || !Number.isFinite(x + top + bottom)) end();
    else { upper.push([x, top]); lower.push([x, bottom]); }
  }
  end();
}

function marks(pen, line, to, box, size) {
  const seen = new Set();
  for (const { x, kind } of line.bad) {
    const at = to.x(x);
    const column = `${kind}${Math.round(at / (7 * size))}`;
    if (seen.has(column) || !(at >= box.left - 1 && at <= box.left + box.width + 1)) continue; // one in a column of pixels
    seen.add(column);
    const y = kind === "inf" ? box.top + 8 * size : box.top + box.height - 6 * size;
    pen.mark(MARKS[kind], at, y, 11 * size, line.colour);
  }
}

export class CanvasPen {
  constructor(context) { this.context = context; }

  clip({ left, top, width, height }) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
  }

  unclip() { this.context.restore(); }

  trace(points) {
    this.context.beginPath();
    points.forEach(([x, y], index) => (index ? this.context.lineTo(x, y) : this.context.moveTo(x, y)));
  }

  line(points, colour, { width, alpha, dash }) {
    const { context } = this;
    Object.assign(context, { strokeStyle: colour, lineWidth: width, globalAlpha: alpha, lineJoin: "round", lineCap: "round" });
    context.setLineDash((dash ?? []).map((part) => part * width));
    this.trace(points);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  area(points, colour, alpha) {
    Object.assign(this.context, { fillStyle: colour, globalAlpha: alpha });
    this.trace(points);
    this.context.fill();
    this.context.globalAlpha = 1;
  }

  dot(x, y, radius, colour, alpha) {
    Object.assign(this.context, { fillStyle: colour, globalAlpha: alpha });
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.context.fill();
    this.context.globalAlpha = 1;
  }

  mark(text, x, y, size, colour) {
    Object.assign(this.context, { fillStyle: colour, font: `700 ${size}px sans-serif`, textAlign: "center", textBaseline: "middle" });
    this.context.fillText(text, x, y);
  }
}
