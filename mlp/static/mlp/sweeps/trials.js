// Trials as points, with the line of the best one so far where the horizontal axis is their number.

import { element } from "../charts/svg.js";
import { Scatter } from "../compare/scatter.js";

export class Trials extends Scatter {
  // `direction`: minimize or maximize draws the line of the best so far, null none.
  show(runs, colours, direction) {
    Object.assign(this, { runs, colours, direction });
  }

  points(x, y) {
    const marks = super.points(x, y);
    return this.direction ? [this.line(x, y), ...marks] : marks;
  }

  line(x, y) {
    const better = this.direction === "minimize" ? Math.min : Math.max;
    let best = null;
    let path = "";
    this.runs.forEach((_, run) => {
      if (this.colours[run] === "-pruned") return; // it had no result
      const value = this.upright.values[run];
      const next = best === null ? value : better(best, value);
      const [left, top] = [x(this.across.place(run)).toFixed(1), y(this.upright.of(next)).toFixed(1)];
      path += best === null ? `M${left} ${top}` : `H${left}V${top}`;
      best = next;
    });
    if (path) path += `H${x(1).toFixed(1)}`;
    return element("path", { class: "line best-line", d: path });
  }
}
