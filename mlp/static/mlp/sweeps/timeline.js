// When each trial ran: a bar for each, those that ran at the same time below each other.

import { UNITS, duration } from "../charts/format.js";
import { element, ticks } from "../charts/svg.js";
import { Plot } from "../compare/plot.js";

const LANE = 16;
const EDGE = { left: 16, right: 16, top: 8, bottom: 26 };
const MARK = 40; // half of the widest mark of the axis
const STEPS = [[86400, UNITS.d], [3600, UNITS.h], [60, UNITS.min], [1, UNITS.s]];

// Returns the first lane for each bar in which no earlier one still runs.
function lanesOf(bars) {
  const ends = [];
  return bars.map(({ from, to }) => {
    const free = ends.findIndex((end) => end <= from);
    const lane = free < 0 ? ends.length : free;
    ends[lane] = to;
    return lane;
  });
}

export class Timeline extends Plot {
  constructor(box, runs) {
    super(box, runs, LANE + EDGE.top + EDGE.bottom);
    this.bars = [];
  }

  show(trials, word) {
    const now = Date.now() / 1000;
    this.bars = trials.filter((trial) => trial.from).map((trial) => ({ ...trial, to: trial.to ?? now, says: word(trial) })).sort((one, two) => one.from - two.from);
    this.lanes = lanesOf(this.bars);
    this.usual = EDGE.top + EDGE.bottom + LANE * (1 + Math.max(0, ...this.lanes));
    this.draw();
  }

  draw() {
    const width = this.bars?.length ? this.size() : 0;
    if (!width) return;
    const first = this.bars[0].from;
    const whole = Math.max(1, ...this.bars.map((bar) => bar.to - first));
    const x = (time) => EDGE.left + ((time - first) / whole) * (width - EDGE.left - EDGE.right);
    this.svg.replaceChildren(...this.marks(first, whole, x, width), ...this.bars.map((bar, index) => this.bar(bar, this.lanes[index], x)));
  }

  marks(first, whole, x, width) {
    const [size, unit] = STEPS.find(([seconds]) => whole >= 2 * seconds) ?? STEPS.at(-1);
    return ticks(0, whole / size, Math.max(2, Math.floor(width / 120))).flatMap((value) => {
      const at = x(first + value * size);
      const anchor = at > width - MARK ? "end" : at < MARK ? "start" : "middle"; // within the drawing
      return [
        element("line", { class: "grid", x1: at, x2: at, y1: EDGE.top, y2: this.height - EDGE.bottom }),
        element("text", { x: at, y: this.height - 8, "text-anchor": anchor }, `${Number(value.toPrecision(3))} ${unit}`),
      ];
    });
  }

  bar(trial, lane, x) {
    const says = `${trial.says}, ${duration(trial.to - trial.from)}`;
    const [left, right] = [x(trial.from), x(trial.to)];
    const part = element("rect", {
      class: `bar is-${trial.best ? "best" : trial.state}`, x: left, y: EDGE.top + lane * LANE + 2, width: Math.max(2, right - left - 1), height: LANE - 4,
      rx: 2, tabindex: 0, role: "img", "aria-label": says,
    });
    for (const [type, shows] of [["pointerenter", true], ["pointerleave", false], ["focus", true], ["blur", false]])
      part.addEventListener(type, () => this.point(shows && says, left, lane));
    return part;
  }

  point(says, left, lane) {
    this.tip.hidden = !says;
    if (!says) return;
    this.tip.textContent = says;
    this.tip.style.left = `${Math.max(0, Math.min(left, this.box.clientWidth - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${EDGE.top + (lane + 1) * LANE + 4}px`;
  }
}
