// The usage page: what was held over time, stacked by user or by kind, one resource at a time.

const HEIGHT = 260;
const EDGE = { left: 64, right: 12, top: 12, bottom: 24 };
const SPACE = "http://www.w3.org/2000/svg";
const COLOURS = 8;

const figure = document.querySelector("[data-usage]");
const legend = document.querySelector("[data-legend]");
const resource = document.querySelector("#resource");
const time = new Intl.DateTimeFormat(document.documentElement.lang, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
let data = null;

function element(name, attributes, text) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function words(value) {
  if (resource.value === "ram") return `${Math.round(value).toLocaleString()} Mi`;
  if (resource.value === "rom") {
    const units = ["B", "KB", "MB", "GB", "TB", "PB"];
    let step = 0;
    while (value >= 1024 && step < units.length - 1) { value /= 1024; step += 1; }
    return `${value.toFixed(step ? 1 : 0)} ${units[step]}`;
  }
  return value.toLocaleString(undefined, { maximumFractionDigits: 2 });
}

function draw() {
  const width = Math.max(280, figure.clientWidth || 720);
  const svg = element("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": figure.dataset.label });
  const layers = data.layers.map((layer) => ({ name: layer.name || figure.dataset.others, values: layer[resource.value] }));
  const shown = layers.filter((layer) => layer.values.some((value) => value > 0));
  const sums = data.times.map((_, index) => shown.reduce((sum, layer) => sum + layer.values[index], 0));
  const top = Math.max(...sums, 0) || 1;
  const x = (index) => EDGE.left + ((width - EDGE.left - EDGE.right) * index) / Math.max(1, data.times.length - 1);
  const y = (value) => HEIGHT - EDGE.bottom - ((HEIGHT - EDGE.top - EDGE.bottom) * value) / top;
  for (let step = 0; step <= 4; step += 1) {
    const at = y((top * step) / 4);
    svg.append(element("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: at, y2: at }));
    svg.append(element("text", { x: EDGE.left - 6, y: at + 4, "text-anchor": "end" }, words((top * step) / 4)));
  }
  const below = data.times.map(() => 0);
  shown.forEach((layer, number) => {
    const floor = below.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`);
    layer.values.forEach((value, index) => { below[index] += value; });
    const roof = below.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`);
    svg.append(element("polygon", { class: `layer layer-${number % COLOURS}`, points: [...roof, ...floor.reverse()].join(" ") }));
  });
  const last = data.times.length - 1;
  for (const [index, anchor] of [[0, "start"], [last, "end"]]) {
    svg.append(element("text", { x: x(index), y: HEIGHT - 6, "text-anchor": anchor }, time.format(new Date(data.times[index]))));
  }
  if (!shown.length) svg.append(element("text", { x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, figure.dataset.empty));
  figure.replaceChildren(svg);
  legend.replaceChildren(...shown.map((layer, number) => {
    const entry = document.createElement("li");
    entry.className = `layer-${number % COLOURS}`;
    entry.textContent = `${layer.name} ${words(layer.values[last])}`;
    return entry;
  }));
}

const answer = await fetch(figure.dataset.usage, { credentials: "same-origin" });
if (answer.ok) {
  data = await answer.json();
  resource.addEventListener("change", draw);
  new ResizeObserver(draw).observe(figure);
}
