// The plots of a comparison: which axes there are, which are shown, and that both plots mark the same runs. The choice
// of the axes is in the page's address, so that it can be shared.

import { Axis, keyOf } from "./axis.js";
import { Parallel } from "./parallel.js";
import { Scatter } from "./scatter.js";

const SHOWN = 7; // axes at first
const card = document.querySelector("[data-plots]");

function remember(key, values) {
  const address = new URL(location.href);
  address.searchParams.delete(key);
  for (const value of values) address.searchParams.append(key, value);
  history.replaceState(history.state, "", address);
}

// What the address says, else what a saved comparison has kept.
function asked(key) {
  const here = new URL(location.href).searchParams.getAll(key);
  return here.length ? here : new URLSearchParams(card.dataset.saved).getAll(key);
}

function start({ runs, colours, axes }) {
  const words = { axis: card.dataset.wordAxis };
  const status = card.querySelector("[data-selected]");
  const scatter = new Scatter(card.querySelector("[data-scatter]"), runs, colours);
  const parallel = new Parallel(card.querySelector("[data-parallel]"), runs, words, (chosen) => {
    scatter.select(chosen);
    status.textContent = chosen === null ? "" : card.dataset.wordSelected.replace("{count}", chosen.length).replace("{all}", runs.length);
  });
  const differing = axes.filter((axis) => !axis.same);
  const metrics = axes.filter((axis) => axis.kind === "metric");
  const usual = (axis) => 2 * axis.values.filter((value) => value !== null).length >= runs.length; // most runs have it
  const varied = differing.filter((axis) => axis.kind === "argument").sort((one, two) => usual(two) - usual(one));
  const first = [...varied.slice(0, SHOWN - 1), ...metrics.slice(0, 1)];
  choose(axes, asked("axis").length ? asked("axis") : first.map(keyOf), (shown) => parallel.set(shown.map((axis) => new Axis(axis))));
  between(axes, first, scatter);
}

function choose(axes, initial, then) {
  const list = card.querySelector("[data-axes]");
  const show = () => {
    const ticked = new Set([...list.querySelectorAll("input:checked")].map((box) => box.value));
    then(axes.filter((axis) => ticked.has(keyOf(axis))));
  };
  for (const axis of axes) {
    const label = document.createElement("label");
    const box = document.createElement("input");
    const text = document.createElement("span");
    label.className = "check";
    Object.assign(box, { type: "checkbox", value: keyOf(axis), checked: initial.includes(keyOf(axis)) });
    text.textContent = axis.name;
    label.append(box, text);
    list.append(label);
  }
  list.addEventListener("change", () => {
    remember("axis", [...list.querySelectorAll("input:checked")].map((box) => box.value));
    show();
  });
  show();
}

function between(axes, first, scatter) {
  const boxes = ["x", "y"].map((name) => card.querySelector(`[data-scatter-${name}]`));
  const logs = ["x", "y"].map((name) => card.querySelector(`[data-scatter-log-${name}]`));
  const initial = [first[0], first.at(-1)];
  boxes.forEach((box, index) => {
    for (const kind of ["argument", "metric"]) {
      const group = document.createElement("optgroup");
      group.label = kind === "argument" ? card.dataset.wordArgument : card.dataset.wordMetric;
      group.append(...axes.filter((axis) => axis.kind === kind).map((axis) => new Option(axis.name, keyOf(axis))));
      if (group.children.length) box.append(group);
    }
    const wanted = asked(box.id)[0];
    box.value = wanted ?? keyOf(initial[index] ?? axes[0]);
    if (box.selectedIndex < 0) box.selectedIndex = 0;
  });
  const axisOf = (index, logarithmic) => new Axis(axes.find((axis) => keyOf(axis) === boxes[index].value), logarithmic);
  const show = (chosen) => {
    const drawn = [0, 1].map((index) => axisOf(index, chosen === index ? undefined : logs[index].checked));
    drawn.forEach((axis, index) => {
      logs[index].checked = Boolean(axis.logarithmic);
      logs[index].disabled = !axis.mayBeLogarithmic;
    });
    scatter.set(...drawn);
  };
  boxes.forEach((box, index) => box.addEventListener("change", () => { remember(box.id, [box.value]); show(index); }));
  for (const log of logs) log.addEventListener("change", () => show());
  logs.forEach((log, index) => { log.checked = Boolean(axisOf(index).logarithmic); });
  show();
}

if (card) {
  const data = JSON.parse(card.dataset.plots);
  if (data.axes.length) {
    card.hidden = false;
    start(data);
  }
}
