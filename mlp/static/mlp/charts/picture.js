// Saves a chart as PNG or SVG, with its title and its legend, in the page's font and colours.

import { draw } from "./draw.js";

const SPACE = "http://www.w3.org/2000/svg";
const HEAD = 30, ROW = 18, EDGE = 12;

export function saveImage(plot, kind) {
  const name = plot.title.replace(/[^\w.-]+/g, "_");
  if (kind === "svg") { save(new Blob([svgOf(plot)], { type: "image/svg+xml" }), `${name}.svg`); return; }
  pngOf(plot).toBlob((blob) => save(blob, `${name}.png`), "image/png");
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// The header above the plot: its title, and a row for each line.
function look(plot) {
  const { board } = plot;
  const style = getComputedStyle(document.documentElement);
  const several = plot.lines.length > 1;
  const rows = several ? plot.lines.map((line) => ({ colour: line.colour, text: [board.runs.length > 1 && line.run.label, plot.names.length > 1 && board.titleOf(line.name)].filter(Boolean).join(" ") })) : [];
  return { rows, head: HEAD + ROW * rows.length, sans: style.getPropertyValue("--sans").trim(), text: board.ink("--text"), soft: board.ink("--soft"), line: board.ink("--line"), ground: board.ink("--surface") };
}

export function pngOf(plot) {
  const { rows, head, sans, text, ground } = look(plot);
  const source = plot.plot.ctx.canvas;
  const scale = source.width / plot.plot.width;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [source.width + 2 * EDGE * scale, source.height + (head + EDGE) * scale];
  const pen = canvas.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(source, EDGE * scale, head * scale);
  pen.scale(scale, scale);
  pen.fillStyle = text;
  pen.font = `600 14px ${sans}`;
  pen.fillText(plot.title, EDGE, 21);
  pen.font = `12px ${sans}`;
  rows.forEach((row, index) => { pen.fillStyle = row.colour; pen.fillText(row.text, EDGE, HEAD + 12 + ROW * index); });
  return canvas;
}

class SvgPen {
  constructor(parts) { this.parts = parts; }

  add(name, attributes, text) { this.parts.push(element(name, attributes, text)); }
  clip() {}
  unclip() {}
  line(points, colour, { width, alpha, dash }) {
    this.add("polyline", { points: list(points), fill: "none", stroke: colour, "stroke-width": width, opacity: alpha, "stroke-linejoin": "round", ...(dash ? { "stroke-dasharray": dash.join(" ") } : {}) });
  }
  area(points, colour, alpha) { this.add("polygon", { points: list(points), fill: colour, opacity: alpha }); }
  dot(x, y, radius, colour, alpha) { this.add("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: radius, fill: colour, opacity: alpha }); }
  mark(text, x, y, size, colour) { this.add("text", { x: x.toFixed(1), y: y.toFixed(1), fill: colour, "font-size": size, "text-anchor": "middle", "dominant-baseline": "middle" }, text); }
}

function list(points) { return points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" "); }

function element(name, attributes, text) {
  const node = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

export function svgOf(plot) {
  const { rows, head, sans, text, soft, line, ground } = look(plot);
  const { plot: drawn } = plot;
  const box = { left: drawn.over.offsetLeft, top: drawn.over.offsetTop, width: drawn.over.offsetWidth, height: drawn.over.offsetHeight };
  const [width, height] = [drawn.width + 2 * EDGE, drawn.height + head + EDGE];
  const svg = element("svg", { xmlns: SPACE, width, height, viewBox: `0 0 ${width} ${height}`, "font-family": sans, "font-size": 11 });
  svg.append(element("rect", { width, height, fill: ground }), element("text", { x: EDGE, y: 21, fill: text, "font-size": 14, "font-weight": 600 }, plot.title));
  rows.forEach((row, index) => svg.append(element("text", { x: EDGE, y: HEAD + 12 + ROW * index, fill: row.colour, "font-size": 12 }, row.text)));
  const body = element("svg", { x: EDGE, y: head, width: drawn.width, height: drawn.height, overflow: "hidden" });
  const [across, up] = drawn.axes;
  across._values?.forEach((value, index) => {
    if (value) body.append(element("text", { x: box.left + drawn.valToPos(across._splits[index], "x"), y: box.top + box.height + 16, fill: soft, "text-anchor": "middle" }, value));
  });
  up._values?.forEach((value, index) => {
    const y = box.top + drawn.valToPos(up._splits[index], "y");
    body.append(element("line", { x1: box.left, x2: box.left + box.width, y1: y, y2: y, stroke: line }));
    if (value) body.append(element("text", { x: box.left - 6, y: y + 4, fill: soft, "text-anchor": "end" }, value));
  });
  const inside = element("svg", { x: box.left, y: box.top, width: box.width, height: box.height, overflow: "hidden" });
  const parts = [];
  const to = { x: (value) => drawn.valToPos(value, "x"), y: (value) => (plot.board.state.logY && value <= 0 ? NaN : drawn.valToPos(value, "y")) };
  draw(new SvgPen(parts), plot.lines, to, { ...box, left: 0, top: 0 }, 1);
  inside.append(...parts);
  body.append(inside);
  svg.append(body);
  return new XMLSerializer().serializeToString(svg);
}
