// A scatter plot of one argument or metric against another: a point for each run.

import { cut, element, nameOf } from "../charts/svg.js";
import { Plot } from "./plot.js";

const HEIGHT = 280; // unless the box has a height of its own
const AIR = 10; // between the outer points and the edge
const EDGE = { left: 76, right: 20, top: 12, bottom: 38 };
const WIDE = 110; // room for a mark of the axis across

export class Scatter extends Plot {
  constructor(box, runs, colours) {
    super(box, runs, HEIGHT);
    Object.assign(this, { colours, chosen: null });
  }

  set(across, upright) {
    Object.assign(this, { across, upright });
    this.draw();
  }

  select(chosen) {
    this.chosen = chosen;
    this.draw();
  }

  draw() {
    const width = this.across ? this.size() : 0;
    if (!width) return;
    const right = this.across.text ? WIDE / 2 - AIR : EDGE.right; // half of the last word
    const x = (place) => EDGE.left + AIR + place * (width - EDGE.left - right - 2 * AIR);
    const y = (place) => this.height - EDGE.bottom - AIR - place * (this.height - EDGE.top - EDGE.bottom - 2 * AIR);
    this.svg.replaceChildren(...this.frame(x, y, width), ...this.points(x, y));
  }

  frame(x, y, width) {
    const parts = [];
    for (const mark of this.upright.marks(5)) {
      parts.push(element("line", { class: "grid", x1: x(0) - AIR, x2: x(1) + AIR, y1: y(mark.place), y2: y(mark.place) }));
      parts.push(element("text", { x: x(0) - AIR - 6, y: y(mark.place) + 4, "text-anchor": "end" }, cut(String(mark.text), EDGE.left - 24, 6.4)));
    }
    const fit = Math.max(2, Math.floor((x(1) - x(0)) / WIDE));
    const marks = this.across.marks(this.across.text ? fit / 2 : fit);
    const room = marks.length > 1 ? Math.min(WIDE, x(marks[1].place) - x(marks[0].place)) - 8 : WIDE;
    for (const mark of marks) {
      parts.push(element("line", { class: "grid", y1: y(0) + AIR, y2: y(1) - AIR, x1: x(mark.place), x2: x(mark.place) }));
      parts.push(element("text", { x: x(mark.place), y: y(0) + AIR + 16, "text-anchor": "middle" }, cut(String(mark.text), room, 6.4)));
    }
    parts.push(nameOf(this.across.name, x(1) - x(0), { x: x(0.5), y: this.height - 4, "text-anchor": "middle" }));
    parts.push(nameOf(this.upright.name, y(0) - y(1), { transform: `translate(12 ${y(0.5)}) rotate(-90)`, "text-anchor": "middle" }));
    return parts;
  }

  points(x, y) {
    return this.runs.flatMap((name, run) => {
      const [left, top] = [this.across.place(run), this.upright.place(run)];
      if (left === null || top === null) return [];
      const says = `${name}, ${this.across.name} ${this.across.shown(run)}, ${this.upright.name} ${this.upright.shown(run)}`;
      const faint = this.chosen !== null && !this.chosen.includes(run) ? " faint" : "";
      const point = element("circle", { class: `spot c${this.colours[run]}${faint}`, cx: x(left), cy: y(top), r: 5, tabindex: 0, role: "img", "aria-label": says });
      for (const [type, shows] of [["pointerenter", true], ["pointerleave", false], ["focus", true], ["blur", false]])
        point.addEventListener(type, () => this.point(shows && says, x(left), y(top)));
      return [point];
    });
  }

  point(says, left, top) {
    this.tip.hidden = !says;
    if (!says) return;
    this.tip.textContent = says;
    this.tip.style.left = `${Math.max(0, Math.min(left + 10, this.box.clientWidth - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${top + 10}px`;
  }
}
