// What the plots of a comparison share: a picture that is drawn again when its box changes its size, and a tip.

import { element } from "../charts/svg.js";

export class Plot {
  // `height` unless the box has a height of its own, as in a panel.
  constructor(box, runs, height) {
    Object.assign(this, { box, runs, height, usual: height });
    this.svg = element("svg", { role: "group", "aria-label": box.getAttribute("aria-label") });
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    box.append(this.svg, this.tip);
    new ResizeObserver(() => this.draw()).observe(box);
  }

  // Sets the size of the picture, and `height`; returns its width, at least `least`, 0 while there is nothing to draw on.
  size(least = 0) {
    if (this.box.clientWidth < 50) return 0;
    const width = Math.max(this.box.clientWidth, least);
    if (least) this.svg.style.width = `${width}px`;
    this.height = this.box.closest("[data-rows]") ? this.box.clientHeight : this.usual;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.setAttribute("height", this.height);
    return width;
  }
}
