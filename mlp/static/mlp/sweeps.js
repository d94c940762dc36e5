// The page of a sweep: its plots are drawn from the data in the page, and drawn again after each refresh.

import { Axis } from "./compare/axis.js";
import { Parallel } from "./compare/parallel.js";
import { onRefresh, watch } from "./refresh.js";
import { Contour } from "./sweeps/contour.js";
import { Timeline } from "./sweeps/timeline.js";
import { Trials } from "./sweeps/trials.js";

const MAX_SLICES = 24;
const box = document.querySelector("[data-sweep-plots]");
const figure = (name) => box.querySelector(`[data-figure="${name}"]`);
const plots = { slices: [] };
let drawn = "";

const word = (trial) => `${box.dataset.wordTrial} ${trial.n}`;
const colourOf = (trial) => (trial.best ? "-best" : trial.state === "complete" ? "0" : "-pruned");

// Axes over the trials that have a result.
function axesOf({ params, objectives }, trials) {
  const values = params.map(({ name, log }, index) =>
    new Axis({ kind: "argument", name, values: trials.map((trial) => trial.values[index]) }, log || undefined));
  const results = objectives.map(({ metric, direction }, index) => {
    const better = direction === "minimize" ? "min" : "max";
    return new Axis({ kind: "metric", name: metric, better, values: trials.map((trial) => trial.results[index] ?? null) });
  });
  return { values, results };
}

function progress(trials, { results }, objectives) {
  const numbers = new Axis({ kind: "", name: box.dataset.wordTrial, values: trials.map((trial) => trial.n) }, false);
  plots.progress ??= new Trials(figure("progress"), [], []);
  plots.progress.show(trials.map(word), trials.map(colourOf), objectives.length > 1 ? null : objectives[0].direction);
  plots.progress.set(...(objectives.length > 1 ? results : [numbers, results[0]]));
}

function parallel(trials, { values, results }) {
  plots.parallel ??= new Parallel(figure("parallel"), [], { axis: box.dataset.wordAxis }, (chosen) => {
    for (const plot of [plots.progress, ...plots.slices]) plot?.select(chosen);
  });
  plots.parallel.runs = trials.map(word);
  plots.parallel.set([...values.filter((axis) => !axis.empty), ...results.toReversed()]);
}

function slices(trials, { values, results }) {
  const room = box.querySelector("[data-slices]");
  const shown = values.filter((axis) => !axis.empty).slice(0, MAX_SLICES);
  while (plots.slices.length < shown.length) {
    const figure = document.createElement("figure");
    figure.className = "chart scatter";
    room.append(figure);
    plots.slices.push(new Trials(figure, [], []));
  }
  shown.forEach((axis, index) => {
    const plot = plots.slices[index];
    plot.svg.setAttribute("aria-label", `${axis.name}, ${results[0].name}`);
    plot.show(trials.map(word), trials.map(colourOf), null);
    plot.set(axis, results[0]);
  });
}

function contour(trials, { values, results }) {
  const card = box.querySelector("[data-contour]");
  const numeric = values.filter((axis) => !axis.empty && !axis.text);
  card.hidden = numeric.length < 2;
  if (card.hidden) return;
  const boxes = [card.querySelector("[data-contour-x]"), card.querySelector("[data-contour-y]")];
  boxes.forEach((list, place) => {
    if (list.options.length !== numeric.length) list.replaceChildren(...numeric.map((axis, index) => new Option(axis.name, axis.name, false, index === place)));
  });
  plots.contour ??= new Contour(figure("contour"), [], []);
  plots.contour.show(trials.map(word), trials.map(colourOf), results[0]);
  const set = () => plots.contour.set(...boxes.map((list) => numeric.find((axis) => axis.name === list.value) ?? numeric[0]));
  boxes.forEach((list) => { list.onchange = set; });
  set();
}

function draw() {
  const text = document.querySelector("[data-sweep]").dataset.sweep;
  if (text === drawn) return;
  drawn = text;
  const data = JSON.parse(text);
  plots.timeline ??= new Timeline(figure("timeline"), []);
  plots.timeline.show(data.trials, word);
  const trials = data.trials.filter((trial) => trial.results && trial.results.every((value) => typeof value === "number"));
  box.querySelector("[data-waiting]").hidden = trials.length > 0;
  for (const card of box.querySelectorAll("[data-later]:not([data-contour])")) card.hidden = !trials.length;
  if (!trials.length) return;
  const axes = axesOf(data, trials);
  progress(trials, axes, data.objectives);
  slices(trials, axes);
  contour(trials, axes);
  parallel(trials, axes);
}

draw();
onRefresh(draw);
watch();
