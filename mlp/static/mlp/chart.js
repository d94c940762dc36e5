// A small line chart in SVG: accuracy on the left axis, loss on the right, epochs below; values under the pointer.

const HEIGHT = 240;
const EMPTY_HEIGHT = 48;
const EDGE = { left: 46, right: 46, top: 24, bottom: 26 };
const SPACE = "http://www.w3.org/2000/svg";

function element(name, attributes, text) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function bounds(values) {
  let low = Math.min(...values);
  let high = Math.max(...values);
  if (low === high) { low -= Math.abs(low) * 0.1 || 0.5; high += Math.abs(high) * 0.1 || 0.5; }
  return [low, high];
}

function short(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 10000 || size < 0.001)) return value.toExponential(1);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 3);
}

export class Chart {
  constructor(figure) {
    this.figure = figure;
    this.names = { accuracy: figure.dataset.accuracy, loss: figure.dataset.loss, epoch: figure.dataset.epoch };
    this.rows = [];
    this.svg = element("svg", { role: "img" });
    figure.replaceChildren(this.svg);
    // As many units as there are pixels, so that the words keep their size on a phone.
    new ResizeObserver(() => this.draw()).observe(figure);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.draw());
    this.draw();
  }

  set(rows) {
    this.rows = rows;
    if (!this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; this.draw(); });
    }
  }

  x(index) {
    const width = this.width - EDGE.left - EDGE.right;
    return EDGE.left + (this.rows.length < 2 ? width / 2 : (width * index) / (this.rows.length - 1));
  }

  y(value, [low, high]) {
    return HEIGHT - EDGE.bottom - ((HEIGHT - EDGE.top - EDGE.bottom) * (value - low)) / (high - low);
  }

  draw(marked) {
    const parts = [];
    this.width = Math.max(280, this.figure.clientWidth || 720);
    const height = this.rows.length ? HEIGHT : EMPTY_HEIGHT;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.svg.setAttribute("aria-label", this.describe());
    if (this.rows.length === 0) {
      parts.push(element("text", { x: this.width / 2, y: EMPTY_HEIGHT / 2, "text-anchor": "middle" }, this.figure.dataset.empty));
      this.svg.replaceChildren(...parts);
      return;
    }
    const accuracy = bounds(this.rows.map((row) => row.accuracy));
    const loss = bounds(this.rows.map((row) => row.loss));
    for (let step = 0; step <= 4; step += 1) {
      const y = EDGE.top + ((HEIGHT - EDGE.top - EDGE.bottom) * step) / 4;
      const at = (range) => short(range[1] - ((range[1] - range[0]) * step) / 4);
      parts.push(element("line", { class: "grid", x1: EDGE.left, x2: this.width - EDGE.right, y1: y, y2: y }));
      parts.push(element("text", { x: EDGE.left - 6, y: y + 4, "text-anchor": "end" }, at(accuracy)));
      parts.push(element("text", { x: this.width - EDGE.right + 6, y: y + 4 }, at(loss)));
    }
    const last = this.rows.length - 1;
    for (const index of new Set([0, Math.round(last / 2), last])) {
      const words = `${this.names.epoch} ${this.rows[index].epoch}`;
      parts.push(element("text", { x: this.x(index), y: HEIGHT - 8, "text-anchor": "middle" }, words));
    }
    for (const [key, range, series] of [["accuracy", accuracy, "one"], ["loss", loss, "two"]]) {
      const points = this.rows.map((row, index) => `${this.x(index).toFixed(1)},${this.y(row[key], range).toFixed(1)}`);
      parts.push(element("polyline", { class: series, points: points.join(" ") }));
      const spot = marked ?? last;
      parts.push(element("circle", { class: series, cx: this.x(spot), cy: this.y(this.rows[spot][key], range), r: 3.5 }));
    }
    const shown = this.rows[marked ?? last];
    if (marked !== undefined) {
      parts.push(element("line", { class: "cursor", x1: this.x(marked), x2: this.x(marked), y1: EDGE.top, y2: HEIGHT - EDGE.bottom }));
      parts.push(element("text", { x: this.width / 2, y: 14, "text-anchor": "middle" }, `${this.names.epoch} ${shown.epoch}`));
    }
    parts.push(element("text", { class: "one", x: EDGE.left, y: 14 }, `${this.names.accuracy} ${short(shown.accuracy)}`));
    parts.push(element("text", { class: "two", x: this.width - EDGE.right, y: 14, "text-anchor": "end" }, `${this.names.loss} ${short(shown.loss)}`));
    this.svg.replaceChildren(...parts);
  }

  point(event) {
    if (this.rows.length < 2) return;
    const box = this.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.width;
    const share = (x - EDGE.left) / (this.width - EDGE.left - EDGE.right);
    this.draw(Math.max(0, Math.min(this.rows.length - 1, Math.round(share * (this.rows.length - 1)))));
  }

  describe() {
    const row = this.rows.at(-1);
    if (!row) return this.figure.dataset.empty;
    return `${this.names.epoch} ${row.epoch}, ${this.names.accuracy} ${short(row.accuracy)}, ${this.names.loss} ${short(row.loss)}`;
  }
}
