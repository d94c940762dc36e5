// The usage page: a resource's usage over time, stacked by user or by kind.

import { element, ticks } from "./chart.js";

const HEIGHT = 270;
const EDGE = { left: 68, right: 12, top: 12, bottom: 26 };
const COLOURS = 8;

const figure = document.querySelector("[data-usage]");
const legend = document.querySelector("[data-legend]");
const resource = document.querySelector("#resource");
const language = document.documentElement.lang;
const hours = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit" });
const days = new Intl.DateTimeFormat(language, { month: "short", day: "numeric" });
let data = null;

function amountText(value) {
  if (resource.value === "ram") return value >= 1024 ? `${number(value / 1024, 1)} GiB` : `${number(value, 0)} MiB`;
  if (resource.value !== "rom") return number(value, 2);
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let step = 0;
  while (value >= 1024 && step < units.length - 1) { value /= 1024; step += 1; }
  return `${number(value, 1)} ${units[step]}`;
}

function number(value, digits) {
  return value.toLocaleString(language, { maximumFractionDigits: digits });
}

// Kinds are translated; users are shown by their names.
const KINDS = ["jm", "dm", "mm", "am"];

function named(name) {
  if (!name) return figure.dataset.others;
  return data.by === "kind" && KINDS.includes(name) ? figure.dataset[name] : name;
}

function draw() {
  const width = Math.max(280, figure.clientWidth || 720);
  const svg = element("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": figure.dataset.label });
  const layers = data.layers.map((layer) => ({ name: named(layer.name), values: layer[resource.value] }));
  const shown = layers.filter((layer) => layer.values.some((value) => value > 0));
  if (!shown.length) {
    const nothing = document.createElement("p");
    nothing.className = "nothing";
    nothing.textContent = figure.dataset.empty;
    figure.replaceChildren(nothing);
    legend.replaceChildren();
    return;
  }
  const sums = data.times.map((_, index) => shown.reduce((sum, layer) => sum + layer.values[index], 0));
  const top = sums.reduce((one, two) => Math.max(one, two)) * 1.05;
  const [first, last] = [Date.parse(data.times[0]), Date.parse(data.times.at(-1))];
  const x = (index) => EDGE.left + ((width - EDGE.left - EDGE.right) * (Date.parse(data.times[index]) - first)) / Math.max(1, last - first);
  const y = (value) => HEIGHT - EDGE.bottom - ((HEIGHT - EDGE.top - EDGE.bottom) * value) / top;
  for (const tick of ticks(0, top, 4)) {
    svg.append(element("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y(tick), y2: y(tick) }));
    svg.append(element("text", { x: EDGE.left - 7, y: y(tick) + 3.5, "text-anchor": "end" }, amountText(tick)));
  }
  const below = data.times.map(() => 0);
  shown.forEach((layer, order) => {
    const floor = below.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`);
    layer.values.forEach((value, index) => { below[index] += value; });
    const roof = below.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`);
    svg.append(element("polygon", { class: `layer layer-${order % COLOURS}`, points: [...roof, ...floor.reverse()].join(" ") }));
  });
  const format = last - first > 2 * 86400e3 ? days : hours;
  const steps = Math.max(2, Math.min(7, Math.floor(width / 130)));
  for (let step = 0; step <= steps; step += 1) {
    const at = EDGE.left + ((width - EDGE.left - EDGE.right) * step) / steps;
    const anchor = step === 0 ? "start" : step === steps ? "end" : "middle";
    svg.append(element("text", { x: at, y: HEIGHT - 7, "text-anchor": anchor }, format.format(first + ((last - first) * step) / steps)));
  }
  figure.replaceChildren(svg);
  legend.replaceChildren(...shown.map((layer, order) => {
    const entry = document.createElement("li");
    const value = document.createElement("b");
    entry.className = `layer-${order % COLOURS}`;
    value.textContent = amountText(layer.values.at(-1));
    entry.append(`${layer.name} `, value);
    return entry;
  }));
}

try {
  const answer = await fetch(figure.dataset.usage, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(answer.status);
  data = await answer.json();
  resource.addEventListener("change", draw);
  new ResizeObserver(draw).observe(figure);
} catch {
  const failed = document.createElement("p");
  failed.className = "nothing";
  failed.textContent = figure.dataset.failed;
  figure.replaceChildren(failed);
}
