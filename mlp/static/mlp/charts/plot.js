// One chart: its head, its plot (uPlot), and what mouse, touch and keys do on it. What it shows is decided by its board.

import uPlot from "../../vendor/uplot.esm.js";
import { CanvasPen, draw } from "./draw.js";
import { DURATIONS, TIME_SPACE, WHOLE, fill, logSplits, numbersOf, place, short, ticksOf } from "./format.js";
import { extentX, extentY, nearest, places } from "./lines.js";
import { lightNearest, light, litLines } from "./lit.js";
import { saveImage } from "./picture.js";

const HEIGHT = 190;
const ROW = 210; // by which each further row makes a panel higher
const TALL = 2.2; // height by width in full screen, at most
const LONGEST_TIP = 12; // lines
const DIGIT = 6.2; // width of one in a mark

function html(name, className, text = "") {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.textContent = text;
  return node;
}

function button(text, title, action) {
  const node = html("button", "quiet small", text);
  node.type = "button";
  node.title = title;
  node.setAttribute("aria-label", title);
  node.addEventListener("click", action);
  return node;
}

const LOG = { splits: (plot, axis, low, high) => logSplits(low, high), filter: (plot, splits) => splits };

export class Plot {
  // `names`: the metrics on it.
  constructor(board, figure, names) {
    this.board = board;
    this.figure = figure;
    this.names = names;
    this.lines = [];
    this.at = null; // the place of the cursor on the x axis
    this.build();
    this.seen = false;
    new IntersectionObserver((entries) => {
      this.seen = entries.at(-1).isIntersecting;
      if (this.seen) this.board.look(this);
    }).observe(figure);
    new ResizeObserver(() => this.resize()).observe(this.area);
  }

  get title() { return this.names.map((name) => this.board.titleOf(name)).join(", "); }

  build() {
    const { words } = this.board;
    const head = html("figcaption", "plot-title");
    this.heading = html("span", "plot-name");
    this.value = html("b");
    this.value.dataset.value = this.names[0];
    this.tools = html("span", "plot-tools");
    this.more = html("select", "plot-more");
    this.more.title = words.add;
    this.more.setAttribute("aria-label", words.add);
    this.more.addEventListener("change", () => this.board.combine(this, this.more.value));
    this.tools.append(
      this.more,
      button("PNG", words.png, () => saveImage(this, "png")),
      button("SVG", words.svg, () => saveImage(this, "svg")),
      button("", words.full, () => this.fullScreen()),
    );
    this.tools.lastChild.append(this.board.icon("full"));
    head.append(this.heading, this.tools, this.value);
    this.area = html("div", "plot-area");
    this.area.tabIndex = 0;
    this.area.setAttribute("role", "img");
    this.area.setAttribute("aria-label", this.title);
    this.tip = html("div", "tip");
    this.tip.hidden = true;
    this.spoken = html("span", "sr");
    this.spoken.setAttribute("aria-live", "polite");
    this.legend = html("ul", "plot-legend");
    this.area.append(this.tip);
    this.figure.replaceChildren(head, this.area, this.legend, this.spoken);
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("blur", () => this.show(null));
  }

  // --- what is shown ------------------------------------------------------------------------------------------------
  set(lines) {
    this.lines = lines;
    if (!this.board.view || !this.extent) this.extent = extentX(lines) ?? this.extent;
    this.heading.textContent = this.title;
    this.more.hidden = this.board.spare(this).length === 0;
    this.more.replaceChildren(new Option("+", ""), ...this.board.spare(this).map((name) => new Option(this.board.titleOf(name), name)));
    this.drawLegend();
    this.say();
    this.redraw();
    if (this.at !== null) return;
    if (this.lines.length === 1) this.latest(this.lines[0]);
    else this.head(null, "");
  }

  // Shows the value of a line in the head: the last one, or the peak of what a job used that has ended.
  latest({ run, one }) {
    if (run.source === "usage" && !run.live) this.head(one.max, fill(this.board.words.peak, { value: short(one.max) }));
    else this.head(one.last);
  }

  // Shows a value in the head with few digits, and the whole of it on hover.
  head(value, text = short(value)) {
    this.value.textContent = text;
    this.value.title = value ?? "";
  }

  drawLegend() {
    this.legend.hidden = this.names.length < 2;
    if (this.legend.hidden) return;
    this.legend.replaceChildren(...this.names.map((name, index) => {
      const entry = html("li");
      const line = this.lines.find((one) => one.name === name);
      const key = html("span", `key ${line ? "" : "off"}`, this.board.titleOf(name));
      if (line) key.style.setProperty("--series", line.colour);
      entry.append(key);
      if (index) entry.append(button("×", fill(this.board.words.remove, { name }), () => this.board.separate(this, name)));
      return entry;
    }));
  }

  // The chart as text, for screen readers.
  say() {
    const { words } = this.board;
    const said = this.lines.slice(0, LONGEST_TIP).map(({ run, name, one }) => {
      const texts = { run: this.names.length > 1 ? `${run.label} ${this.board.titleOf(name)}` : run.label, name: this.board.titleOf(name), last: short(one.last), step: short(one.last_step), min: short(one.min), max: short(one.max), count: short(one.count) };
      const bad = one.first_bad ? ` ${this.board.alarmOf(run, name, one.first_bad)}` : "";
      return fill(one.count === 1 ? words.summaryOne : words.summary, texts) + bad;
    });
    this.area.setAttribute("aria-label", said.length ? `${this.title}. ${said.join(" ")}` : `${this.title}. ${words.none}`);
  }

  // --- uPlot --------------------------------------------------------------------------------------------------------
  options(width, height) {
    const { board } = this;
    const look = getComputedStyle(document.documentElement);
    const [soft, line] = [board.ink("--soft"), board.ink("--line")];
    const font = `11px ${look.getPropertyValue("--sans")}`;
    const { x, logX, logY } = board.state;
    const axis = { stroke: soft, font, ticks: { show: false }, grid: { stroke: line, width: 1 } };
    return {
      width, height, padding: [10, 12, 0, 0], legend: { show: false },
      cursor: {
        y: false, points: { show: false },
        drag: { x: true, y: false, setScale: false },
        sync: { key: board.key, scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        bind: { dblclick: () => () => { board.reset(); return null; } },
      },
      scales: {
        x: { time: x === "time", distr: logX ? 3 : 1, range: () => board.rangeX(this) },
        y: { distr: logY ? 3 : 1, range: () => this.rangeY() },
      },
      series: [{}, { paths: () => null, points: { show: false } }],
      axes: [
        { ...axis, size: 26, gap: 4, grid: { show: false }, ...(x === "relative" ? { incrs: DURATIONS } : x === "step" && !logX ? { incrs: WHOLE } : {}),
          space: x === "time" ? TIME_SPACE : 52, ...(logX ? LOG : {}), values: (_, splits) => ticksOf(x, splits) },
        { ...axis, size: (_, texts) => Math.max(52, 10 + DIGIT * Math.max(0, ...(texts ?? []).map((text) => text?.length ?? 0))), gap: 6,
          ...(logY ? LOG : {}), values: (_, splits) => numbersOf(splits) },
      ],
      hooks: {
        draw: [(plot) => this.paint(plot)],
        setCursor: [(plot) => this.moved(plot)],
        setSelect: [(plot) => this.selected(plot)],
      },
    };
  }

  rangeY() {
    const log = this.board.state.logY;
    const extent = extentY(this.lines, this.board.rangeX(this), log);
    if (!extent) return log ? [0.1, 1] : [0, 1];
    let [low, high] = extent;
    if (log) return low === high ? [low / 2, high * 2] : [low / 1.1, high * 1.1];
    if (this.board.floor !== null) return [this.board.floor, Math.max(high * 1.06, this.board.floor + 1)];
    if (low === high) { low -= Math.abs(low) * 0.1 || 0.5; high += Math.abs(high) * 0.1 || 0.5; }
    const air = (high - low) * 0.06;
    return [Math.max(-Number.MAX_VALUE, low - air), Math.min(Number.MAX_VALUE, high + air)];
  }

  redraw() {
    const width = this.area.clientWidth;
    if (!width) return; // hidden: drawn when it is shown
    const height = this.height(width);
    const kind = [this.board.state.x, this.board.state.logX, this.board.state.logY, this.board.theme].join();
    if (this.plot && kind !== this.kind) { this.plot.destroy(); this.plot = null; }
    this.kind = kind;
    const [from, to] = this.board.rangeX(this);
    const data = [[from, to], this.rangeY()];
    if (this.plot) { this.plot.setData(data); return; }
    this.plot = new uPlot(this.options(width, height), data, this.area);
    this.area.append(this.tip);
    this.touch(this.plot.over);
  }

  height(width) {
    const full = document.fullscreenElement === this.figure;
    const rows = Number(this.figure.closest("[data-rows]")?.dataset.rows ?? 1);
    return full ? Math.min(this.area.clientHeight || innerHeight - 90, width * TALL) : HEIGHT + (rows - 1) * ROW;
  }

  resize() {
    const width = this.area.clientWidth;
    if (!this.plot) { this.redraw(); return; }
    const height = this.height(width);
    if (width && (width !== this.plot.width || height !== this.plot.height)) this.plot.setSize({ width, height });
  }

  paint(plot) {
    const size = devicePixelRatio || 1;
    const to = { x: (value) => plot.valToPos(value, "x", true), y: (value) => (this.board.state.logY && value <= 0 ? NaN : plot.valToPos(value, "y", true)) };
    draw(new CanvasPen(plot.ctx), litLines(this.lines), to, plot.bbox, size);
  }

  // --- the reader ---------------------------------------------------------------------------------------------------
  selected(plot) {
    const { left, width } = plot.select;
    if (width > 4) this.board.zoom(this, plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  moved(plot) {
    const { left } = plot.cursor;
    const [outside, pointed] = [left === undefined || left < 0, plot.over.matches(":hover")];
    this.show(outside ? null : plot.posToVal(left, "x"), pointed);
    if (this.lights && (outside || !pointed)) { this.lights = false; light(null); }
  }

  // Shows the values at a place of the x axis, null for the latest ones.
  show(at, with_tip = false) {
    this.at = at;
    const alone = this.lines.length === 1 ? this.lines[0] : null;
    const points = at === null ? [] : this.lines.map((line) => [line, nearest(line, at)]).filter(([, point]) => point);
    if (alone && at === null) this.latest(alone);
    else if (alone) this.head(points[0]?.[1].value ?? null);
    this.tip.hidden = at === null || !with_tip || !points.length;
    if (this.tip.hidden) return "";
    const shown = this.sorted(points);
    const { x } = this.board.state;
    const where = `${this.board.axisWord()} ${place(x, points.reduce((best, [, point]) => (point.far < best.far ? point : best), points[0][1]).x)}`;
    const rows = shown.slice(0, LONGEST_TIP).map(([line, point]) => {
      const label = this.names.length > 1 ? `${line.run.label} ${this.board.titleOf(line.name)}` : line.run.label;
      const row = html("div", "key");
      row.append(html("span", "", label), ` ${short(point.value)}${point.smooth === undefined ? "" : ` (${short(point.smooth)})`}`);
      row.style.setProperty("--series", line.colour);
      return row;
    });
    this.tip.replaceChildren(html("div", "", where), ...rows);
    const over = this.plot.over;
    const left = over.offsetLeft + this.plot.valToPos(at, "x");
    const room = this.area.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(room, left + 12 <= room ? left + 12 : left - 12 - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${over.offsetTop}px`;
    return [where, ...rows.map((row) => row.textContent)].join(", ");
  }

  // Of several runs, the one under the pointer comes first in the tip, and is lit.
  sorted(points) {
    if (!this.plot.over.matches(":hover") || new Set(points.map(([line]) => line.run)).size < 2) return points;
    this.lights = true;
    return lightNearest(points, this.plot);
  }

  key(event) {
    const { board } = this;
    if (event.ctrlKey || event.metaKey || event.altKey || !this.plot) return;
    const [from, to] = board.rangeX(this);
    const actions = {
      "+": () => board.zoom(this, ...this.around(from, to, 0.5)), "-": () => board.zoom(this, ...this.around(from, to, 2)),
      "0": () => board.reset(), Escape: () => { if (document.fullscreenElement) return; if (this.at === null) board.reset(); else this.move(null); },
      f: () => this.fullScreen(), ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
      Home: () => this.step(-Infinity), End: () => this.step(Infinity),
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  }

  around(from, to, factor) {
    const middle = this.at ?? (from + to) / 2;
    return [middle - (middle - from) * factor, middle + (to - middle) * factor];
  }

  step(by) {
    const [from, to] = this.board.rangeX(this);
    const all = places(this.lines).filter((one) => one >= from && one <= to);
    if (!all.length) return;
    const now = this.at ?? (by < 0 ? to : from);
    const near = all.reduce((best, one, index) => (Math.abs(one - now) < Math.abs(all[best] - now) ? index : best), 0);
    this.move(all[Math.max(0, Math.min(all.length - 1, this.at === null && Number.isFinite(by) ? near : near + by))]);
  }

  // Moves the cursor of all charts there.
  move(at) {
    const left = at === null ? -10 : this.plot.valToPos(at, "x");
    this.plot.setCursor({ left, top: at === null ? -10 : 10 });
    this.spoken.textContent = this.show(at, at !== null);
  }

  // One finger moves the cursor, two zoom; up and down scroll the page.
  touch(over) {
    const fingers = new Map();
    let pinch = null;
    const at = (event) => this.plot.posToVal(event.clientX - over.getBoundingClientRect().left, "x");
    over.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "touch") return;
      fingers.set(event.pointerId, at(event));
      if (fingers.size === 2) pinch = { values: [...fingers.values()], range: this.board.rangeX(this) };
      else this.move(at(event));
    });
    over.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId)) return;
      fingers.set(event.pointerId, at(event));
      if (!pinch) { this.move(at(event)); return; }
      const [one, two] = [...fingers.values()];
      const factor = Math.abs(pinch.values[0] - pinch.values[1]) / (Math.abs(one - two) || 1);
      const middle = (pinch.values[0] + pinch.values[1]) / 2;
      if (Number.isFinite(factor)) this.board.zoom(this, middle - (middle - pinch.range[0]) * factor, middle + (pinch.range[1] - middle) * factor);
    });
    for (const type of ["pointerup", "pointercancel"]) over.addEventListener(type, (event) => { fingers.delete(event.pointerId); if (fingers.size < 2) pinch = null; });
  }

  fullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.figure.requestFullscreen?.();
  }

  remove() {
    this.plot?.destroy();
    this.figure.remove();
  }
}
