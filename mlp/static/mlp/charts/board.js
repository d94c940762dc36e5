// A board: the charts of some runs that share one x axis, one cursor, and the controls above them.
//
// A page declares it with the template `charts/_board.html`: `data-charts` on the element, `data-runs` a list of
// {user, job, label, colour, started, live}, `data-names` the metrics (each a name, or a list of names on one chart), from
// which `data-leave` are left out; `data-source` is `points`, or `usage` for what a job used. The words are there, too.

import { fill } from "./format.js";
import { axisOf, lineOf } from "./lines.js";
import { keyOf, light, onLight } from "./lit.js";
import { Plot } from "./plot.js";
import { Run } from "./runs.js";

const REMEMBERED = "charts"; // in localStorage: the x axis, smoothing and logarithmic axes
const MAX_ALARMS = 4;
const LOOK_MS = 120; // after the last change of the range, finer points are fetched
const DASHES = [null, [5, 3], [2, 3], [8, 3, 2, 3], [1, 4]];
let boards = 0;

function recall() {
  try { return JSON.parse(localStorage.getItem(REMEMBERED)) ?? {}; } catch { return {}; }
}

export class Board {
  // `sharedBy` returns what several boards know of a run (charts/shared.js), where they share it.
  constructor(box, sharedBy = () => null) {
    this.box = box;
    this.words = Object.fromEntries(Object.entries(box.dataset).filter(([key]) => key.startsWith("word")).map(([key, value]) => [key[4].toLowerCase() + key.slice(5), value]));
    this.titles = JSON.parse(box.dataset.titles || "{}");
    this.leave = new Set(JSON.parse(box.dataset.leave || "[]"));
    this.fixed = "only" in box.dataset; // metrics that are not named are not shown
    this.floor = "floor" in box.dataset ? Number(box.dataset.floor) : null;
    this.panel = "panel" in box.dataset; // of a project's board: its settings are the panel's, not the reader's
    this.key = this.panel ? `panels.${box.dataset.axis}` : `charts${(boards += 1)}`;
    this.list = box.querySelector("[data-many]");
    this.hidden = new Set();
    this.view = null;
    this.plots = [];
    const asked = Math.min(1000, Math.max(300, Math.round((this.list.clientWidth || 600) / 1.2)));
    this.runs = JSON.parse(box.dataset.runs).map((run) => new Run({ source: box.dataset.source || "points", ...run }, asked));
    for (const run of this.runs) run.shared = sharedBy(run, this);
    const { x = "step", smooth = 0, logX = false, logY = false } = recall();
    const plain = box.dataset.source === "usage" || "compact" in box.dataset;
    if (this.panel) this.state = { x: box.dataset.axis, smooth: Number(box.dataset.smoothing), logX: false, logY: "log" in box.dataset };
    else this.state = plain ? { x: box.dataset.source === "usage" ? "relative" : "step", smooth: 0, logX: false, logY: false } : { x, smooth, logX, logY };
    this.colours();
    for (const figure of this.list.querySelectorAll("figure[data-names]")) this.plots.push(new Plot(this, figure, JSON.parse(figure.dataset.names)));
    this.controls();
    this.legend();
    if (this.runs.length > 1) onLight(() => { for (const plot of this.plots) plot.plot?.redraw(false); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    new MutationObserver(() => this.recolour()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  // --- data ---------------------------------------------------------------------------------------------------------
  async load() {
    if (this.busy) { this.again = true; return; }
    this.busy = true;
    const loaded = await Promise.all(this.runs.map((run) => run.load()));
    this.loaded = loaded.every(Boolean);
    this.draw();
    this.busy = false;
    if (this.again) { this.again = false; await this.load(); }
  }

  // Adds what has just been reported: [[name, step, value, time, attempt], …].
  add(run, points) {
    let whole = true;
    for (const point of points) whole = run.add(...point) && whole;
    if (!whole) { run.finer.clear(); this.load(); return; }
    this.later();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  names() {
    const all = [...new Set(this.runs.flatMap((run) => [...run.series.keys()]))].filter((name) => !this.leave.has(name));
    const contract = ["accuracy", "loss"].filter((name) => all.includes(name));
    return [...contract, ...all.filter((name) => !contract.includes(name))];
  }

  // Draws all charts, and adds those of metrics that are new.
  draw() {
    const shown = new Set(this.plots.flatMap((plot) => plot.names));
    const names = this.names();
    if (!this.fixed) for (const name of names) if (!shown.has(name)) this.place(name, names);
    this.box.classList.toggle("is-empty", !names.length);
    for (const empty of this.box.querySelectorAll("[data-nothing]")) empty.hidden = names.length > 0 || !this.loaded;
    for (const plot of this.plots) plot.set(this.linesOf(plot));
    this.alarms();
    for (const plot of this.plots) this.look(plot);
  }

  place(name, order) {
    const figure = document.createElement("figure");
    figure.className = "chart";
    figure.dataset.names = JSON.stringify([name]);
    const next = this.plots.find((plot) => order.indexOf(plot.names[0]) > order.indexOf(name));
    this.list.insertBefore(figure, next?.figure ?? null);
    this.plots.splice(next ? this.plots.indexOf(next) : this.plots.length, 0, new Plot(this, figure, [name]));
  }

  linesOf(plot) {
    const options = { x: this.state.x, smooth: this.state.smooth, zoomed: this.view !== null };
    const lines = [];
    for (const run of this.runs) {
      if (this.hidden.has(run)) continue;
      plot.names.forEach((name, index) => {
        const line = run.series.has(name) && lineOf(run, name, options);
        if (!line) return;
        const alone = this.runs.length === 1;
        const number = alone ? (plot.names.length > 1 ? index : this.panel ? run.colour : this.colourOf(name)) : run.colour;
        lines.push({ ...line, colour: this.palette[number % 10], dash: alone ? null : DASHES[index % DASHES.length] });
      });
    }
    return lines;
  }

  colourOf(name) { return { accuracy: 0, loss: 1 }[name] ?? 0; }

  titleOf(name) { return Object.hasOwn(this.titles, name) ? this.titles[name] : name; }

  // --- the x axis ---------------------------------------------------------------------------------------------------
  // The range of one chart: what is zoomed to, as far as it has points there; the steps of some metrics are epochs.
  rangeX(plot) {
    const [low, high] = plot.extent ?? [0, 1];
    let [from, to] = [low, high];
    if (this.view && this.view[0] < high && this.view[1] > low) [from, to] = [Math.max(low, this.view[0]), Math.min(high, this.view[1])];
    if (this.state.logX && from <= 0) from = Math.min(1, to / 1000) || 1;
    if (!(to > from)) return this.state.logX ? [from / 2, from * 2] : [from - 0.5, from + 0.5]; // a single point
    return [from, to];
  }

  axisWord() { return this.words[this.state.x] ?? ""; }

  // Zooms all charts, to a range of this one.
  zoom(plot, from, to) {
    const [low, high] = plot.extent ?? [0, 1];
    [from, to] = [Math.max(low, from), Math.min(high, to)];
    if (!(to > from)) return;
    if (from === low && to === high) { this.reset(); return; }
    this.view = [from, to];
    this.reset_.hidden = false;
    this.redraw();
  }

  reset() {
    this.view = null;
    this.reset_.hidden = true;
    for (const run of this.runs) run.finer.clear();
    this.redraw();
  }

  redraw() {
    for (const plot of this.plots) plot.set(this.linesOf(plot));
    clearTimeout(this.looking);
    this.looking = setTimeout(() => { for (const plot of this.plots) this.look(plot); }, LOOK_MS);
  }

  // Fetches finer points of the range for a chart that is in sight.
  async look(plot) {
    const { view } = this;
    if (!view || !plot.seen) return;
    const { x } = this.state;
    const [from, to] = this.rangeX(plot);
    const wanted = this.runs.filter((run) => !this.hidden.has(run)).flatMap((run) => plot.names.filter((name) => axisOf(run, name, x)).map((name) => run.look(name, x, from, to)));
    const news = await Promise.all(wanted);
    if (view === this.view && news.some(Boolean)) plot.set(this.linesOf(plot));
  }

  // --- controls -----------------------------------------------------------------------------------------------------
  controls() {
    const find = (name) => this.box.querySelector(`[data-${name}]`) ?? document.createElement("button");
    this.reset_ = find("reset");
    this.reset_.hidden = true;
    this.reset_.addEventListener("click", () => this.reset());
    const [x, smooth, logX, logY] = ["x", "smooth", "log-x", "log-y"].map(find);
    const amount = find("smooth-value");
    x.value = this.state.x;
    smooth.value = this.state.smooth;
    amount.textContent = this.state.smooth;
    logX.checked = this.state.logX;
    logY.checked = this.state.logY;
    const change = (values) => {
      Object.assign(this.state, values);
      try { localStorage.setItem(REMEMBERED, JSON.stringify(this.state)); } catch { /* private mode: not remembered */ }
    };
    x.addEventListener("change", () => { change({ x: x.value }); this.reset(); this.draw(); });
    smooth.addEventListener("input", () => { change({ smooth: Number(smooth.value) }); amount.textContent = smooth.value; this.redraw(); });
    logX.addEventListener("change", () => { change({ logX: logX.checked }); this.redraw(); });
    logY.addEventListener("change", () => { change({ logY: logY.checked }); this.redraw(); });
  }

  // The runs: a click switches one off or on, a double click shows it alone.
  legend() {
    const list = this.box.querySelector("[data-legend]");
    if (!list || this.runs.length < 2) return;
    const show = () => {
      [...list.querySelectorAll("[data-run]")].forEach((entry, index) => entry.setAttribute("aria-pressed", String(!this.hidden.has(this.runs[index]))));
      this.draw();
    };
    const entries = this.runs.map((run) => {
      const entry = document.createElement("li");
      const [key, only] = [document.createElement("button"), document.createElement("button")];
      key.type = only.type = "button";
      key.className = `key c${run.colour % 10}`;
      key.dataset.run = key.title = run.label;
      key.textContent = run.label;
      only.className = "quiet small";
      only.textContent = this.words.only;
      only.setAttribute("aria-label", `${this.words.only} ${run.label}`);
      key.addEventListener("click", () => { if (this.hidden.has(run)) this.hidden.delete(run); else this.hidden.add(run); show(); });
      only.addEventListener("click", () => {
        const alone = !this.hidden.has(run) && this.hidden.size === this.runs.length - 1;
        this.hidden = new Set(alone ? [] : this.runs.filter((one) => one !== run));
        show();
      });
      for (const type of ["pointerenter", "focusin"]) entry.addEventListener(type, () => light(keyOf(run)));
      for (const type of ["pointerleave", "focusout"]) entry.addEventListener(type, () => light(null));
      entry.append(key, only);
      return entry;
    });
    list.replaceChildren(...entries);
    for (const key of list.querySelectorAll("[data-run]")) key.setAttribute("aria-pressed", "true");
  }

  // Metrics that another chart can take up.
  spare(plot) { return this.names().filter((name) => !plot.names.includes(name)).slice(0, 200); }

  combine(plot, name) {
    if (!name) return;
    plot.names.push(name);
    const other = this.plots.find((one) => one !== plot && one.names.length === 1 && one.names[0] === name);
    if (other) { this.plots.splice(this.plots.indexOf(other), 1); other.remove(); }
    this.draw();
  }

  separate(plot, name) {
    plot.names = plot.names.filter((one) => one !== name);
    this.draw();
  }

  // --- NaN and infinities -------------------------------------------------------------------------------------------
  alarmOf(run, name, { step, value }) {
    const words = name === "accuracy" || name === "loss" ? this.words.badEpoch : this.words.badStep;
    const text = fill(words, { name: this.titleOf(name), value, at: step });
    return this.runs.length > 1 ? `${run.label}: ${text}` : text;
  }

  alarms() {
    const list = this.box.querySelector("[data-alarms]");
    if (!list) return;
    const all = this.runs.flatMap((run) => [...run.series.values()].filter((one) => one.first_bad && !this.leave.has(one.name)).map((one) => this.alarmOf(run, one.name, one.first_bad)));
    const said = all.slice(0, MAX_ALARMS);
    if (all.length > MAX_ALARMS) said.push(`+ ${all.length - MAX_ALARMS}`);
    if (said.join() === this.said) return;
    this.said = said.join();
    list.hidden = !said.length;
    list.replaceChildren(...said.map((text) => {
      const line = document.createElement("p");
      line.textContent = text;
      return line;
    }));
  }

  // --- looks ------------------------------------------------------------------------------------------------------
  icon(name) {
    const [icon, use] = ["svg", "use"].map((one) => document.createElementNS("http://www.w3.org/2000/svg", one));
    icon.setAttribute("class", "icon");
    icon.setAttribute("aria-hidden", "true");
    use.setAttribute("href", `${this.box.dataset.icons}#${name}`);
    icon.append(use);
    return icon;
  }

  // Returns a colour of tokens.css as the canvas understands it.
  ink(name) {
    this.probe ??= this.box.appendChild(Object.assign(document.createElement("span"), { className: "chart-ink", hidden: true }));
    this.probe.style.color = `var(${name})`;
    return getComputedStyle(this.probe).color;
  }

  colours() {
    this.palette = Array.from({ length: 10 }, (_, index) => this.ink(`--c${index}`));
    this.theme = this.palette[0];
  }

  recolour() {
    this.colours();
    this.draw();
  }
}
