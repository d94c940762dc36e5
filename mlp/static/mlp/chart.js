// Accuracy and loss over the epochs: two small plots in SVG, one pointer for both (mouse, touch, arrow keys).
//
// When a job is retried, its epochs restart: each attempt is a separate line, earlier ones are fainter. An epoch that is
// reported again replaces the previous point.

const HEIGHT = 168;
const EDGE = { left: 44, right: 10, top: 10, bottom: 22 };
const SPACE = "http://www.w3.org/2000/svg";
const SERIES = [
  { key: "accuracy", name: "one", best: Math.max },
  { key: "loss", name: "two", best: Math.min },
];

export function element(name, attributes, text) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function html(name, className, text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

// Returns about `count` round numbers from low to high.
export function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const values = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) values.push(at * step || 0); // never -0
  return values;
}

export function short(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 100000 || size < 0.001)) return value.toExponential(1);
  return String(Number(value.toPrecision(size >= 1 ? 4 : 3)));
}

// Splits the rows into runs where the epoch decreases, with the last report of each epoch.
function runsOf(rows) {
  const runs = [];
  for (const row of rows) {
    const run = runs.at(-1);
    if (!run || row.epoch < run.at(-1).epoch) runs.push([row]);
    else if (row.epoch === run.at(-1).epoch) run[run.length - 1] = row;
    else run.push(row);
  }
  return runs;
}

// Reduces the points to the lowest and the highest of each pixel column.
function thin(points, width) {
  if (points.length <= 2 * width) return points;
  const columns = new Map();
  for (const point of points) {
    const column = Math.round(point[0]);
    const extremes = columns.get(column);
    if (!extremes) columns.set(column, [point, point]);
    else columns.set(column, [point[1] < extremes[0][1] ? point : extremes[0], point[1] > extremes[1][1] ? point : extremes[1]]);
  }
  return [...columns.values()].flat();
}

export class Chart {
  constructor(figure) {
    this.figure = figure;
    this.rows = [];
    this.marked = null;
    this.plots = html("div", "plots");
    this.tip = html("div", "tip");
    this.tip.hidden = true;
    this.empty = html("p", "nothing", figure.dataset.empty);
    this.panes = SERIES.map((series) => this.pane(series));
    this.plots.append(...this.panes.map((pane) => pane.box));
    this.plots.setAttribute("role", "img");
    this.plots.tabIndex = 0;
    this.plots.addEventListener("keydown", (event) => this.key(event));
    this.plots.addEventListener("blur", () => this.mark(null));
    figure.replaceChildren(this.empty, this.plots, this.tip);
    this.plots.hidden = true;
    new ResizeObserver(() => this.later()).observe(figure);
  }

  pane(series) {
    const box = html("div", `plot plot-${series.name}`);
    const title = html("p", "plot-title", this.figure.dataset[series.key]);
    const best = html("small");
    const value = html("b");
    value.dataset.value = series.key;
    title.append(best, value);
    const svg = element("svg", { "aria-hidden": "true" });
    box.append(title, svg);
    svg.addEventListener("pointermove", (event) => this.point(svg, event));
    svg.addEventListener("pointerdown", (event) => this.point(svg, event));
    svg.addEventListener("pointerleave", () => this.mark(null));
    return { ...series, box, svg, value, best_: best };
  }

  set(rows) {
    this.rows = rows;
    this.later();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    const any = this.rows.length > 0;
    this.empty.hidden = any;
    this.plots.hidden = !any;
    if (!any) return;
    this.runs = runsOf(this.rows);
    this.last = this.runs.at(-1);
    const epochs = this.rows.map((row) => row.epoch);
    this.from = epochs.reduce((one, two) => Math.min(one, two));
    this.to = Math.max(epochs.reduce((one, two) => Math.max(one, two)), this.from + 1);
    for (const pane of this.panes) this.drawPane(pane);
    this.plots.setAttribute("aria-label", this.describe(this.last.at(-1)));
    if (this.marked !== null) this.mark(this.marked);
  }

  drawPane(pane) {
    const width = Math.max(220, Math.round(pane.box.clientWidth || 320));
    const values = this.rows.map((row) => row[pane.key]);
    let low = values.reduce((one, two) => Math.min(one, two));
    let high = values.reduce((one, two) => Math.max(one, two));
    if (low === high) { low -= Math.abs(low) * 0.1 || 0.5; high += Math.abs(high) * 0.1 || 0.5; }
    const air = (high - low) * 0.06;
    low -= air; high += air;
    pane.width = width;
    pane.x = (epoch) => EDGE.left + ((width - EDGE.left - EDGE.right) * (epoch - this.from)) / (this.to - this.from);
    pane.y = (value) => EDGE.top + ((HEIGHT - EDGE.top - EDGE.bottom) * (high - value)) / (high - low);
    pane.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const parts = [];
    for (const tick of ticks(low, high, 4)) {
      const y = Math.round(pane.y(tick)) + 0.5;
      parts.push(element("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y, y2: y }));
      parts.push(element("text", { x: EDGE.left - 7, y: y + 3.5, "text-anchor": "end" }, short(tick)));
    }
    const bottom = HEIGHT - EDGE.bottom + 0.5;
    parts.push(element("line", { class: "axis", x1: EDGE.left, x2: width - EDGE.right, y1: bottom, y2: bottom }));
    for (const tick of ticks(this.from, this.to, Math.max(2, Math.min(8, width / 60))).filter(Number.isInteger)) {
      parts.push(element("text", { x: pane.x(tick), y: HEIGHT - 6, "text-anchor": "middle" }, tick));
    }
    for (const run of this.runs) {
      const points = thin(run.map((row) => [pane.x(row.epoch), pane.y(row[pane.key])]), width);
      const path = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
      if (run === this.last && points.length > 1) {
        const area = `${points[0][0].toFixed(1)},${bottom} ${path} ${points.at(-1)[0].toFixed(1)},${bottom}`;
        parts.push(element("polygon", { class: "area", points: area }));
      }
      parts.push(element("polyline", { class: run === this.last ? "line" : "line earlier", points: path }));
    }
    const row = this.last.at(-1);
    pane.spot = element("circle", { class: "spot", cx: pane.x(row.epoch), cy: pane.y(row[pane.key]), r: 4 });
    pane.cursor = element("line", { class: "cursor", y1: EDGE.top, y2: bottom, x1: -9, x2: -9 });
    parts.push(pane.cursor, pane.spot);
    pane.value.textContent = short(row[pane.key]);
    pane.best_.textContent = `${this.figure.dataset.best} ${short(this.last.map((one) => one[pane.key]).reduce((one, two) => pane.best(one, two)))}`;
    pane.svg.replaceChildren(...parts);
  }

  point(svg, event) {
    const box = svg.getBoundingClientRect();
    const pane = this.panes.find((one) => one.svg === svg);
    const x = ((event.clientX - box.left) / box.width) * pane.width;
    let nearest = 0;
    this.last?.forEach((row, index) => {
      if (Math.abs(pane.x(row.epoch) - x) < Math.abs(pane.x(this.last[nearest].epoch) - x)) nearest = index;
    });
    this.over = svg;
    this.mark(nearest);
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") this.mark(null);
    if (!(event.key in steps) || !this.last) return;
    event.preventDefault();
    const now = this.marked ?? this.last.length - (steps[event.key] < 0 ? 0 : 1);
    this.mark(Math.max(0, Math.min(this.last.length - 1, now + steps[event.key])));
  }

  // Highlights the row of that index, null for the latest.
  mark(index) {
    this.marked = index;
    if (!this.last) return;
    const row = this.last[index ?? this.last.length - 1] ?? this.last.at(-1);
    for (const pane of this.panes) {
      const x = pane.x(row.epoch);
      pane.spot.setAttribute("cx", x);
      pane.spot.setAttribute("cy", pane.y(row[pane.key]));
      pane.cursor.setAttribute("x1", index === null ? -9 : x);
      pane.cursor.setAttribute("x2", index === null ? -9 : x);
      pane.value.textContent = short(row[pane.key]);
    }
    this.tip.hidden = index === null;
    this.plots.setAttribute("aria-label", this.describe(row));
    if (index === null) return;
    this.tip.textContent = this.describe(row);
    const pane = this.panes.find((one) => one.svg === this.over) ?? this.panes[0];
    const [box, frame] = [pane.svg.getBoundingClientRect(), this.figure.getBoundingClientRect()];
    const at = box.left - frame.left + (pane.x(row.epoch) * box.width) / pane.width;
    const room = this.figure.clientWidth - this.tip.offsetWidth;
    const beside = at + 12 <= room ? at + 12 : at - 12 - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(room, beside))}px`;
    this.tip.style.top = `${box.top - frame.top + EDGE.top}px`;
  }

  describe(row) {
    const { epoch, accuracy, loss } = this.figure.dataset;
    return `${epoch} ${row.epoch} · ${accuracy} ${short(row.accuracy)} · ${loss} ${short(row.loss)}`;
  }
}
