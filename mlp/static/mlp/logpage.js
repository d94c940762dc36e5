// The page of a log: search, errors, anomalies, lines that are linked to, following.

import { LogData } from "./logdata.js";
import { LogSearch } from "./logsearch.js";
import { LogView } from "./logview.js";
import { copy } from "./page.js";
import { watch } from "./refresh.js";
import { Ruler } from "./ruler.js";

const box = document.querySelector("[data-logview]");
const find = (name) => box.querySelector(`[data-${name}]`);
const words = box.dataset;
const address = box.dataset.logview;
const of = box.dataset.worker ? `worker=${box.dataset.worker}&` : "";
const LINK = /^#L(\d{1,12})(?:-L?(\d{1,12}))?$/;
let active = "active" in box.dataset;
let runs = new Map(); // line -> words above it
let anomalies = new Map(); // line -> where its verdict is explained
let chosen = null; // [from, to]

// --- what is marked at a line -----------------------------------------------------------------------------------------
const marks = {
  state(line) {
    const parts = [];
    if (line === search.at) parts.push("is-hit");
    if (chosen && line >= chosen[0] && line <= chosen[1]) parts.push("is-chosen");
    if (anomalies.has(line)) parts.push("is-odd");
    if (runs.has(line)) parts.push("is-first");
    return parts.join(" ");
  },
  run: (line) => runs.get(line),
  explanation: (line) => anomalies.get(line),
};

const data = new LogData(address, of, Number(box.dataset.total), (whole) => {
  if (whole) choose(null);
  const many = data.total.toLocaleString(document.documentElement.lang);
  find("length").textContent = data.total === 1 ? words.wordOne : words.wordLines.replace("{lines}", many);
  search.grown(whole);
  ruler.later();
  view.later();
});
const view = new LogView(find("view"), data, marks, words);
const search = new LogSearch(find("log-search"), address, of, words, {
  onHits() { ruler.later(); },
  chosen(query) { data.mark(query); view.redraw(false); },
  // Goes to a line; returns the first one in view.
  go(line) {
    if (line !== null) { follow(false); view.show(line); }
    return view.line;
  },
});
const ruler = new Ruler(find("ruler"), view, () => ({ hits: search.hits, anomalies: [...anomalies.keys()], runs: [...runs.keys()], chosen }), (line) => { follow(false); view.show(line); });

// --- following --------------------------------------------------------------------------------------------------------
function press(button, on) { button.setAttribute("aria-pressed", String(on)); }
function pressed(button) { return button.getAttribute("aria-pressed") === "true"; }

function follow(on) {
  press(find("follow"), on && active);
  if (on) view.toEnd();
  else view.end = false;
}

function toEnd() {
  view.element.scrollIntoView({ block: "nearest" });
  follow(true);
}
view.listeners.push(() => press(find("follow"), false));
find("follow").addEventListener("click", () => follow(!pressed(find("follow"))));
find("end").addEventListener("click", toEnd);

// --- wrapping and times, remembered -----------------------------------------------------------------------------------
function option(name, first) {
  const button = find(name);
  const set = (on) => {
    press(button, on);
    view.element.classList.toggle(name === "wrap" ? "is-wrapped" : "has-times", on);
    localStorage.setItem(`log-${name}`, on ? "1" : "0");
    view.redraw();
  };
  button.addEventListener("click", () => set(!pressed(button)));
  set((localStorage.getItem(`log-${name}`) ?? first) === "1");
}
option("wrap", "1");
option("times", "0");

// --- links to lines ---------------------------------------------------------------------------------------------------
function choose(range, show = false) {
  chosen = range;
  find("chosen").hidden = !range;
  if (range) {
    find("chosen-lines").textContent = range[0] === range[1] ? `L${range[0]}` : `L${range[0]}–L${range[1]}`;
    if (show) { follow(false); view.show(range[0]); }
  }
  view.later();
  ruler.later();
}

function linked() {
  const match = LINK.exec(location.hash);
  if (!match) return false;
  const ends = [Number(match[1]), Number(match[2] ?? match[1])].sort((one, two) => one - two);
  choose([Math.max(1, ends[0]), Math.max(1, ends[1])], true);
  return true;
}

view.element.addEventListener("click", (event) => {
  const link = event.target.closest("a.no");
  if (!link) return;
  event.preventDefault();
  const line = Number(link.textContent);
  const from = event.shiftKey && chosen ? chosen[0] : line;
  const range = [Math.min(from, line), Math.max(from, line)];
  history.replaceState(null, "", range[0] === range[1] ? `#L${line}` : `#L${range[0]}-L${range[1]}`);
  follow(false);
  choose(range);
});
find("link").addEventListener("click", async () => {
  await copy(location.href);
  const button = find("link");
  const before = button.textContent;
  button.textContent = words.wordCopied;
  setTimeout(() => { button.textContent = before; }, 1400);
});
find("clear").addEventListener("click", () => {
  history.replaceState(null, "", location.pathname + location.search);
  choose(null);
});
addEventListener("hashchange", linked);

// --- the first error, anomalies, a line by its number -----------------------------------------------------------------
async function firstError() {
  const state = find("found");
  for (let first = 1; first;) {
    const answer = await fetch(`${address}/search?${of}errors=1&limit=1&first=${first}`, { credentials: "same-origin" }).catch(() => null);
    if (!answer?.ok) { state.textContent = words.wordFailed; return; }
    const hits = await answer.json();
    if (hits.lines.length) { go(hits.lines[0]); return; }
    first = hits.next;
  }
  state.textContent = words.wordNoError;
}

function go(line) {
  const there = Math.min(Math.max(1, line), Math.max(1, data.total));
  history.replaceState(null, "", `#L${there}`);
  choose([there, there], true);
}

function nextAnomaly() {
  const lines = [...anomalies.keys()].sort((one, two) => one - two);
  const from = chosen ? chosen[0] : view.line - 1;
  const line = lines.find((one) => one > from) ?? lines[0];
  if (line) go(line);
}

find("error").addEventListener("click", firstError);
find("anomaly").addEventListener("click", nextAnomaly);
find("goto").addEventListener("submit", (event) => {
  event.preventDefault();
  const number = Number(event.target.querySelector("input").value.replace(/[^\d]/g, ""));
  if (number) go(number);
});

// The list of anomalies below the log, which AIOps serves, says in which lines they are.
document.addEventListener("htmx:afterSwap", () => {
  anomalies = new Map([...document.querySelectorAll("[data-anomaly-line]")].map((link) => [Number(link.dataset.anomalyLine), link.dataset.explain]));
  find("anomaly").hidden = anomalies.size === 0;
  view.later();
  ruler.later();
});

// --- keyboard ---------------------------------------------------------------------------------------------------------
const KEYS = {
  n: () => search.step(1), N: () => search.step(-1), p: () => search.step(-1), e: firstError, a: nextAnomaly,
  g: () => find("goto").querySelector("input").focus(), w: () => find("wrap").click(), t: () => find("times").click(),
  f: () => { if (active) find("follow").click(); },
  Home: () => { follow(false); view.show(1); }, End: toEnd,
  ArrowDown: () => view.moveBy(20), ArrowUp: () => view.moveBy(-20),
  PageDown: () => view.moveBy(view.room - 40), PageUp: () => view.moveBy(40 - view.room), " ": () => view.moveBy(view.room - 40),
};
view.element.addEventListener("keydown", (event) => {
  if (event.altKey || event.metaKey) return;
  if (event.ctrlKey) {
    if (event.key === "f" && document.activeElement === view.element) { event.preventDefault(); search.field.select(); }
    return;
  }
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// --- the state of the run ---------------------------------------------------------------------------------------------
function readRuns() {
  const links = [...document.querySelectorAll("[data-run]")];
  runs = new Map(links.map((link) => [Number(link.dataset.line), link.textContent.trim()]));
  view.redraw();
  ruler.later();
}

function state() {
  const now = Boolean(document.querySelector(".page-head [data-unsteady]"));
  readRuns();
  if (now === active) return;
  active = now;
  find("follow").hidden = !active;
  if (active) data.follow(true);
  else data.rest();
}

find("log-tools").hidden = false;
find("ruler").hidden = false;
readRuns();
if (!linked()) { if (active) follow(true); else view.toEnd(); }
if (active) data.follow(true);
watch({ then: state });
