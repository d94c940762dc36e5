// Parallel coordinates: an upright axis for each argument and metric, a line for each run, coloured by the last axis.
// Dragging along an axis selects the runs within; the others fade. Double click, or Escape, clears the axis.

import { cut, element, nameOf } from "../charts/svg.js";
import { Plot } from "./plot.js";

const HEIGHT = 300; // unless the box has a height of its own
const EDGE = { left: 60, right: 60, top: 34, bottom: 34 };
const NONE = -0.08; // the place below an axis of the runs that have no value there
const LEAST = 80; // between two axes, so that their names can be read
const BRUSH = 22; // width of the area that takes the pointer

export class Parallel extends Plot {
  // `then` is called with the indices of the selected runs, null when all are.
  constructor(box, runs, words, then) {
    super(box, runs, HEIGHT);
    Object.assign(this, { words, then });
    this.ranges = new Map(); // axis key → [low, high], places from 0 to 1
  }

  set(axes) {
    this.axes = axes.filter((axis) => !axis.empty);
    const keys = new Set(this.axes.map((axis) => axis.key));
    for (const key of this.ranges.keys()) if (!keys.has(key)) this.ranges.delete(key);
    this.draw();
    this.tell();
  }

  selected() {
    if (!this.ranges.size) return null;
    return this.runs.map((_, run) => run).filter((run) => this.axes.every((axis) => {
      const range = this.ranges.get(axis.key);
      const place = axis.place(run);
      return !range || (place !== null && place >= range[0] && place <= range[1]);
    }));
  }

  tell() {
    const chosen = this.selected();
    this.svg.querySelectorAll(".run").forEach((line) => {
      line.classList.toggle("faint", chosen !== null && !chosen.includes(Number(line.dataset.run)));
    });
    this.then(chosen);
  }

  draw() {
    // It is wider than a phone: the box scrolls.
    const width = this.axes ? this.size(EDGE.left + EDGE.right + LEAST * (this.axes.length - 1)) : 0;
    if (!width) return;
    const gap = this.axes.length > 1 ? (width - EDGE.left - EDGE.right) / (this.axes.length - 1) : 0;
    const x = (index) => (this.axes.length > 1 ? EDGE.left + index * gap : width / 2);
    this.svg.replaceChildren(...this.lines(x), ...this.axes.map((axis, index) => this.axis(axis, x(index), gap, index && index === this.axes.length - 1, index && index < this.axes.length - 1)));
  }

  y(place) { return this.height - EDGE.bottom - place * (this.height - EDGE.top - EDGE.bottom); }

  lines(x) {
    const last = this.axes.at(-1);
    const chosen = this.selected();
    return this.runs.map((name, run) => {
      const places = this.axes.map((axis, index) => `${x(index).toFixed(1)} ${this.y(axis.place(run) ?? NONE).toFixed(1)}`);
      const line = element("path", { class: "run", d: `M${places.join("L")}`, "data-run": run, tabindex: 0, role: "img", "aria-label": this.says(run) });
      const place = last?.place(run);
      line.style.setProperty("--share", `${Math.round(100 * (last?.better === "min" ? 1 - (place ?? 0) : place ?? 0))}%`);
      line.classList.toggle("faint", chosen !== null && !chosen.includes(run));
      for (const [type, shows] of [["pointerenter", true], ["pointerleave", false], ["focus", true], ["blur", false]])
        line.addEventListener(type, (event) => this.point(line, name, run, shows, event));
      return line;
    });
  }

  says(run) {
    return [this.runs[run], ...this.axes.map((axis) => `${axis.name} ${axis.shown(run)}`)].join(", ");
  }

  point(line, name, run, shows, event) {
    line.classList.toggle("over", shows);
    this.tip.hidden = !shows;
    if (!shows) return;
    this.tip.textContent = this.says(run);
    const box = this.box.getBoundingClientRect();
    const left = event.clientX ? event.clientX - box.left : box.width / 2;
    const top = (event.clientY ? event.clientY - box.top : EDGE.top) + 14;
    this.tip.style.left = `${this.box.scrollLeft + Math.max(0, Math.min(left + 12, box.width - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${Math.max(0, Math.min(top, box.height - this.tip.offsetHeight - 4))}px`;
  }

  // The values of the last axis are at its right, where no line is.
  axis(axis, x, gap, isLast, isBetween) {
    const group = element("g", { class: "upright", transform: `translate(${x.toFixed(1)} 0)` });
    const top = this.y(1);
    const bottom = this.y(0);
    const width = Math.max(42, gap || 120);
    const outer = gap && (isLast || !isBetween); // the first and the last name begin and end at the edge
    const at = outer ? { x: isLast ? EDGE.right - 2 : 2 - EDGE.left, "text-anchor": isLast ? "end" : "start" } : { "text-anchor": "middle" };
    const title = nameOf(axis.name, outer ? EDGE.left + width / 2 - 8 : width - 8, { y: 14, ...at });
    group.append(element("line", { class: "axis", y1: top, y2: bottom }), title);
    const lacking = this.runs.some((_, run) => axis.place(run) === null);
    for (const mark of [...axis.marks(5), ...(lacking ? [{ place: NONE, text: "–" }] : [])]) {
      const text = cut(String(mark.text), isBetween ? width - 12 : EDGE.left - 8, 6.4);
      const behind = 6.4 * text.length + 4;
      group.append(element("rect", { class: "behind", x: isLast ? 4 : -4 - behind, y: this.y(mark.place) - 7, width: behind, height: 14 }));
      group.append(element("text", { x: isLast ? 6 : -6, y: this.y(mark.place) + 4, "text-anchor": isLast ? "start" : "end" }, text));
    }
    const range = this.ranges.get(axis.key);
    const band = element("rect", { class: "range", x: -7, width: 14, y: range ? this.y(range[1]) : 0, height: range ? this.y(range[0]) - this.y(range[1]) : 0 });
    const grip = element("rect", { class: "grip", x: -BRUSH / 2, width: BRUSH, y: top - 6, height: bottom - top + 12, tabindex: 0, role: "slider", "aria-label": `${axis.name}. ${this.words.axis}`, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": range ? Math.round(100 * range[1]) : 100 });
    grip.append(element("title", {}, this.words.axis));
    group.append(band, grip);
    this.brush(axis, grip, band);
    return group;
  }

  brush(axis, grip, band) {
    const at = (event) => {
      const box = this.svg.getBoundingClientRect();
      const y = ((event.clientY - box.top) / box.height) * this.height;
      return Math.max(0, Math.min(1, (this.y(0) - y) / (this.y(0) - this.y(1))));
    };
    let from = null;
    const set = (low, high) => {
      this.ranges.set(axis.key, [low, high]);
      band.setAttribute("y", this.y(high));
      band.setAttribute("height", Math.max(0, this.y(low) - this.y(high)));
      this.tell();
    };
    const clear = () => {
      this.ranges.delete(axis.key);
      band.setAttribute("height", 0);
      this.tell();
    };
    grip.addEventListener("pointerdown", (event) => {
      from = at(event);
      grip.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    grip.addEventListener("pointermove", (event) => {
      if (from !== null) set(Math.min(from, at(event)), Math.max(from, at(event)));
    });
    grip.addEventListener("pointerup", (event) => {
      if (from !== null && Math.abs(at(event) - from) < 0.01) clear();
      from = null;
    });
    grip.addEventListener("dblclick", clear);
    grip.addEventListener("keydown", (event) => this.key(axis, event, set, clear));
  }

  // With the arrow keys the upper bound moves, with Shift the lower one.
  key(axis, event, set, clear) {
    if (event.key === "Escape") clear();
    const by = { ArrowUp: 0.05, ArrowDown: -0.05 }[event.key];
    if (!by) return;
    event.preventDefault();
    const [low, high] = this.ranges.get(axis.key) ?? [0, 1];
    const within = (value) => Math.max(0, Math.min(1, value));
    if (event.shiftKey) set(Math.min(within(low + by), high), high);
    else set(low, Math.max(within(high + by), low));
  }
}
