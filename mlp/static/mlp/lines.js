// A small line chart over steps: a metric of one job, or the same metric of several jobs. Mouse, touch and arrow keys
// show values; the chart can be saved as an image.

import { element, short, ticks } from "./chart.js";

const HEIGHT = 176;
const EDGE = { left: 50, right: 12, top: 10, bottom: 22 };
const DRAWN = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font", "text-anchor"];

function html(name, className, text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

// Splits the points into attempts where the steps decrease.
function runs(points) {
  const attempts = [];
  for (const point of points) {
    const run = attempts.at(-1);
    if (!run || point[0] < run.at(-1)[0]) attempts.push([point]);
    else run.push(point);
  }
  return attempts;
}

export class Lines {
  // `words`: {step, save} in the reader's language, and optionally `floor`, where the value axis begins (by default at
  // the lowest value).
  constructor(title, words) {
    this.words = words;
    this.title = title;
    this.lines = [];
    this.box = html("figure", "chart lines");
    const head = html("figcaption", "plot-title");
    this.value = html("b");
    this.save = html("button", "quiet small", words.save);
    this.save.type = "button";
    this.save.addEventListener("click", () => this.download());
    head.append(html("span", "", title), this.value, this.save);
    this.svg = element("svg", { role: "img", tabindex: 0, "aria-label": title });
    this.tip = html("div", "tip");
    this.tip.hidden = true;
    this.box.append(head, this.svg, this.tip);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.mark(null));
    this.svg.addEventListener("blur", () => this.mark(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.later()).observe(this.box);
  }

  // [{label, colour: 0..9, points: [[step, value, attempt], …]}]
  set(lines) {
    this.lines = lines.filter((line) => line.points.length);
    this.later();
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    const points = this.lines.flatMap((line) => line.points);
    if (!points.length) { this.svg.replaceChildren(); return; }
    const reach = (place) => points.reduce(([low, high], point) => [Math.min(low, point[place]), Math.max(high, point[place])], [Infinity, -Infinity]);
    [this.from, this.to] = reach(0);
    this.to = Math.max(this.to, this.from + 1);
    let [low, high] = reach(1);
    if (low === high) { low -= Math.abs(low) * 0.1 || 0.5; high += Math.abs(high) * 0.1 || 0.5; }
    let air = (high - low) * 0.06;
    if (this.words.floor !== undefined) [low, high, air] = [Number(this.words.floor), Math.max(high, 1), 0];
    this.width = Math.max(220, Math.round(this.svg.clientWidth || 320));
    this.x = (step) => EDGE.left + ((this.width - EDGE.left - EDGE.right) * (step - this.from)) / (this.to - this.from);
    this.y = (value) => EDGE.top + ((HEIGHT - EDGE.top - EDGE.bottom) * (high + air - value)) / (high - low + 2 * air);
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.svg.replaceChildren(...this.frame(low - air, high + air), ...this.lines.flatMap((line) => this.line(line)));
    this.cursor = element("line", { class: "cursor", y1: EDGE.top, y2: HEIGHT - EDGE.bottom, x1: -9, x2: -9 });
    this.svg.append(this.cursor);
    this.value.textContent = this.lines.length === 1 ? short(this.lines[0].points.at(-1)[1]) : "";
    this.svg.setAttribute("aria-label", `${this.title}: ${this.lines.map((line) => `${line.label} ${short(line.points.at(-1)[1])}`).join(", ")}`);
  }

  frame(low, high) {
    const parts = [];
    for (const tick of ticks(low, high, 4)) {
      const y = Math.round(this.y(tick)) + 0.5;
      parts.push(element("line", { class: "grid", x1: EDGE.left, x2: this.width - EDGE.right, y1: y, y2: y }));
      parts.push(element("text", { x: EDGE.left - 7, y: y + 3.5, "text-anchor": "end" }, short(tick)));
    }
    const bottom = HEIGHT - EDGE.bottom + 0.5;
    parts.push(element("line", { class: "axis", x1: EDGE.left, x2: this.width - EDGE.right, y1: bottom, y2: bottom }));
    for (const tick of ticks(this.from, this.to, Math.max(2, Math.min(8, this.width / 70))).filter(Number.isInteger)) {
      parts.push(element("text", { x: this.x(tick), y: HEIGHT - 6, "text-anchor": "middle" }, short(tick)));
    }
    return parts;
  }

  line(line) {
    const all = runs(line.points);
    return all.map((run, index) => {
      const earlier = index < all.length - 1 ? " earlier" : "";
      if (run.length === 1) return element("circle", { class: `spot c${line.colour}${earlier}`, cx: this.x(run[0][0]), cy: this.y(run[0][1]), r: 3 });
      const path = run.map((point) => `${this.x(point[0]).toFixed(1)},${this.y(point[1]).toFixed(1)}`).join(" ");
      return element("polyline", { class: `line c${line.colour}${earlier}`, points: path });
    });
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * this.width;
    this.mark(this.from + ((at - EDGE.left) * (this.to - this.from)) / (this.width - EDGE.left - EDGE.right));
  }

  key(event) {
    if (event.key === "Escape") this.mark(null);
    const ways = { ArrowLeft: -1, ArrowRight: 1 };
    if (!(event.key in ways) || !this.lines.length) return;
    event.preventDefault();
    const steps = [...new Set(this.lines.flatMap((line) => line.points.map((point) => point[0])))].sort((one, two) => one - two);
    const now = this.at ?? steps.at(-1);
    const next = ways[event.key] > 0 ? steps.find((step) => step > now) : steps.findLast((step) => step < now);
    this.mark(next ?? now);
  }

  // Shows each line's value at the point nearest to that step; null hides the values.
  mark(step) {
    this.tip.hidden = step === null || !this.lines.length;
    this.at = step;
    this.cursor?.setAttribute("x1", -9);
    this.cursor?.setAttribute("x2", -9);
    if (this.tip.hidden) return;
    const nearest = (line) => line.points.reduce((best, point) => (Math.abs(point[0] - step) <= Math.abs(best[0] - step) ? point : best));
    const rows = this.lines.map((line) => [line, nearest(line)]);
    this.at = rows.reduce((best, [, point]) => (Math.abs(point[0] - step) < Math.abs(best - step) ? point[0] : best), rows[0][1][0]);
    const x = this.x(this.at);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.tip.replaceChildren(html("div", "", `${this.words.step} ${this.at}`), ...rows.map(([line, point]) => {
      const row = html("div", `c${line.colour} key`, `${line.label} ${short(point[1])}`);
      return row;
    }));
    const [box, frame] = [this.svg.getBoundingClientRect(), this.box.getBoundingClientRect()];
    const at = box.left - frame.left + (x * box.width) / this.width;
    const room = this.box.clientWidth - this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(room, at + 12 <= room ? at + 12 : at - 12 - this.tip.offsetWidth))}px`;
    this.tip.style.top = `${box.top - frame.top + EDGE.top}px`;
  }

  // Saves the chart as a PNG with its title and legend, at twice the size.
  async download() {
    this.mark(null);
    const head = 26 + 16 * (this.lines.length > 1 ? this.lines.length : 0);
    const copy = this.svg.cloneNode(true);
    const [originals, copies] = [[...this.svg.querySelectorAll("*")], [...copy.querySelectorAll("*")]];
    originals.forEach((one, index) => { for (const name of DRAWN) copies[index].style.setProperty(name, getComputedStyle(one).getPropertyValue(name)); });
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", this.width);
    copy.setAttribute("height", HEIGHT);
    const picture = new Image();
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    await picture.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [this.width * 2, (HEIGHT + head) * 2];
    const pen = canvas.getContext("2d");
    const look = getComputedStyle(document.documentElement);
    pen.scale(2, 2);
    pen.fillStyle = getComputedStyle(this.box.closest(".card") ?? document.body).backgroundColor;
    pen.fillRect(0, 0, this.width, HEIGHT + head);
    pen.font = `600 13px ${look.getPropertyValue("--sans")}`;
    pen.fillStyle = getComputedStyle(this.box).color;
    pen.fillText(this.title, 10, 18);
    pen.font = `12px ${look.getPropertyValue("--sans")}`;
    if (this.lines.length > 1) this.lines.forEach((line, index) => {
      pen.fillStyle = getComputedStyle(this.svg.querySelector(`.c${line.colour}`)).stroke;
      pen.fillText(line.label, 10, 36 + 16 * index);
    });
    pen.drawImage(picture, 0, head, this.width, HEIGHT);
    canvas.toBlob((blob) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(blob);
      link.download = `${this.title.replace(/[^\w.-]+/g, "_")}.png`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    }, "image/png");
  }
}

// Keeps the charts of an element up to date, one for each metric that any of the jobs has reported.
// `jobs`: [{label, address, colour}], where `address` returns the series (…/series?points=N); `leave`: metrics to leave
// out; `titles`: the metrics' titles by name.
export class SeriesCharts {
  constructor(box, jobs, { leave = [], then = null, titles = {} } = {}) {
    this.titles = titles;
    this.box = box;
    this.jobs = jobs;
    this.leave = new Set(leave);
    this.then = then;
    this.charts = new Map();
  }

  async load() {
    if (this.busy) { this.again = true; return; }
    this.busy = true;
    const seriesOfJobs = await Promise.all(this.jobs.map((job) => this.request(job)));
    const names = [...new Set(seriesOfJobs.flatMap((all) => (all ?? []).map((one) => one.name)))].filter((name) => !this.leave.has(name));
    for (const name of names) {
      if (!this.charts.has(name)) {
        const chart = new Lines(Object.hasOwn(this.titles, name) ? this.titles[name] : name, this.box.dataset);
        this.charts.set(name, chart);
        this.box.append(chart.box);
      }
      this.charts.get(name).set(seriesOfJobs.flatMap((all, index) => {
        const one = (all ?? []).find((series) => series.name === name);
        return one ? [{ label: this.jobs[index].label, colour: this.jobs[index].colour, points: one.points }] : [];
      }));
    }
    this.then?.(names);
    this.busy = false;
    if (this.again) { this.again = false; setTimeout(() => this.load(), 1000); }
  }

  async request(job) {
    try {
      const answer = await fetch(job.address, { credentials: "same-origin" });
      return answer.ok ? await answer.json() : null;
    } catch { return null; } // the page shows that the connection is lost; the next refresh loads it
  }
}
