// Two arguments, and the result as a colour: interpolated between the trials by the inverse square of their distance.

import { element } from "../charts/svg.js";
import { Scatter } from "../compare/scatter.js";

const ACROSS = 36;
const UPRIGHT = 22;
const NEAR = 1e-4; // squared, so that a trial itself is no division by zero

export class Contour extends Scatter {
  show(runs, colours, result) {
    Object.assign(this, { runs, colours, result });
  }

  frame(x, y, width) {
    return [...this.cells(x, y), ...super.frame(x, y, width)];
  }

  // Returns how good a run is, from 0 to 1.
  good(run) {
    const place = this.result.place(run);
    return this.result.better === "min" ? 1 - place : place;
  }

  cells(x, y) {
    const known = this.runs.flatMap((_, run) => {
      const [left, top] = [this.across.place(run), this.upright.place(run)];
      return left === null || top === null ? [] : [[left, top, this.good(run)]];
    });
    if (known.length < 3) return [];
    const [wide, high] = [x(1) - x(0), y(0) - y(1)];
    const group = element("g", { class: "cells" });
    for (let column = 0; column < ACROSS; column += 1) {
      for (let row = 0; row < UPRIGHT; row += 1) {
        const [left, top] = [(column + 0.5) / ACROSS, (row + 0.5) / UPRIGHT];
        let [sum, weights] = [0, 0];
        for (const [place, up, good] of known) {
          const weight = 1 / ((place - left) ** 2 + (up - top) ** 2 + NEAR);
          sum += weight * good;
          weights += weight;
        }
        const cell = element("rect", {
          class: "cell", x: x(column / ACROSS), y: y((row + 1) / UPRIGHT), width: wide / ACROSS + 0.7, height: high / UPRIGHT + 0.7,
        });
        cell.style.setProperty("--share", `${Math.round((100 * sum) / weights)}%`);
        group.append(cell);
      }
    }
    return [group];
  }
}
