// The usage page: a resource's usage over time, stacked by user or by kind.

import uPlot from "../vendor/uplot.esm.js";
import { ticksOf, TIME_SPACE } from "./charts/format.js";

const HEIGHT = 270;
const COLOURS = 8;

const figure = document.querySelector("[data-usage]");
const legend = document.querySelector("[data-legend]");
const resource = document.querySelector("#resource");
const language = document.documentElement.lang;
let data = null;
let plot = null;

function amountText(value) {
  if (resource.value === "ram") return value >= 1024 ? `${number(value / 1024, 1)} GiB` : `${number(value, 0)} MiB`;
  if (resource.value !== "rom") return number(value, 2);
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
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

// Returns a colour of the page as the canvas understands it.
function ink(colour, className = "") {
  const probe = legend.appendChild(document.createElement("span"));
  probe.className = className;
  probe.style.color = colour;
  const resolved = getComputedStyle(probe).color;
  probe.remove();
  return resolved;
}

function draw() {
  const layers = data.layers.map((layer) => ({ name: named(layer.name), values: layer[resource.value] }));
  const shown = layers.filter((layer) => layer.values.some((value) => value > 0));
  plot?.destroy();
  plot = null;
  if (!shown.length) {
    const nothing = document.createElement("p");
    nothing.className = "nothing";
    nothing.textContent = figure.dataset.empty;
    figure.replaceChildren(nothing);
    legend.replaceChildren();
    return;
  }
  const times = data.times.map((time) => Date.parse(time) / 1000);
  const sums = [];
  for (const { values } of shown) sums.push(values.map((value, index) => value + (sums.at(-1)?.[index] ?? 0)));
  const top = sums.at(-1).reduce((one, two) => Math.max(one, two)) * 1.05;
  const font = `11px ${getComputedStyle(document.documentElement).getPropertyValue("--sans")}`;
  const axis = { stroke: ink("var(--soft)"), font, ticks: { show: false }, grid: { stroke: ink("var(--line)"), width: 1 } };
  const series = sums.map((_, order) => ({ fill: ink("var(--layer)", `layer-${order % COLOURS}`), width: 0, points: { show: false } }));
  figure.replaceChildren();
  plot = new uPlot({
    width: Math.max(280, figure.clientWidth), height: HEIGHT, legend: { show: false },
    cursor: { points: { show: false }, y: false, drag: { y: false } },
    scales: { y: { range: () => [0, top] } },
    axes: [
      { ...axis, space: TIME_SPACE, grid: { show: false }, values: (_, splits) => ticksOf("time", splits) },
      { ...axis, size: 68, values: (_, splits) => splits.map(amountText) },
    ],
    series: [{}, ...series.reverse()], // the whole first, so that the lower layers are drawn over it
  }, [times, ...sums.reverse()], figure);
  figure.setAttribute("role", "img");
  figure.setAttribute("aria-label", `${figure.dataset.label}: ${shown.map((layer) => `${layer.name} ${amountText(layer.values.at(-1))}`).join(", ")}`);
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
  draw();
  let width = figure.clientWidth;
  new ResizeObserver(() => { if (figure.clientWidth !== width) { width = figure.clientWidth; draw(); } }).observe(figure);
} catch {
  const failed = document.createElement("p");
  failed.className = "nothing";
  failed.textContent = figure.dataset.failed;
  figure.replaceChildren(failed);
}
