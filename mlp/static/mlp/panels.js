// The board of a project: its charts are drawn once they come into sight and grow while runs report; panels are moved by
// dragging their heads, or by the arrow keys on their handles, and the new order is saved.

import { boardOf } from "./charts/index.js";
import { sharedOf } from "./charts/shared.js";
import { Axis } from "./compare/axis.js";
import { Parallel } from "./compare/parallel.js";
import { Scatter } from "./compare/scatter.js";
import "./panels/size.js";
import { onRefresh, refresh } from "./refresh.js";

const MOVED_PX = 6; // before a press becomes a drag
const drawn = new WeakSet();
let wanted = null; // the place of the panel whose handle has the focus

// --- charts and plots -------------------------------------------------------------------------------------------------
function namesOf(box) {
  const names = [...box.querySelectorAll("figure[data-names]")].flatMap((figure) => JSON.parse(figure.dataset.names));
  return box.dataset.axis === "epoch" ? [...names, "accuracy", "loss"] : names; // these know when epochs were
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    near.unobserve(entry.target);
    boardOf(entry.target, (run, board) => { const one = sharedOf(run); one.join(board, namesOf(entry.target)); return one; }).load();
  }
}, { rootMargin: "300px" });

function plot(box) {
  const data = JSON.parse(box.dataset.plot);
  const axes = data.axes.map((axis, index) => new Axis(axis, data.kind === "scatter" && [data.logX, data.logY][index] ? true : undefined));
  if (axes.some((axis) => axis.empty)) { box.querySelector("[data-nothing]").hidden = false; return; }
  const figure = box.querySelector("figure");
  figure.hidden = false;
  if (data.kind === "scatter") new Scatter(figure, data.runs, data.colours).set(...axes);
  else new Parallel(figure, data.runs, { axis: box.dataset.wordAxis }, () => {}).set(axes);
}

function draw() {
  const charts = [...document.querySelectorAll("[data-panel][data-charts]")].filter((box) => !drawn.has(box));
  for (const box of charts) for (const run of JSON.parse(box.dataset.runs)) sharedOf(run).join(null, namesOf(box));
  for (const box of charts) { drawn.add(box); near.observe(box); }
  for (const box of document.querySelectorAll("[data-plot]")) if (!drawn.has(box)) { drawn.add(box); plot(box); }
}

// --- arranging --------------------------------------------------------------------------------------------------------
const panelsOf = (list) => [...list.querySelectorAll(":scope > [data-panel-number]")];

async function save(list, focused) {
  const room = list.closest("[data-region]").parentElement; // a refresh does not set its attributes
  const at = panelsOf(list).indexOf(focused); // now: a refresh under way may show the order as it was
  const form = list.querySelector("form.panel-tools");
  const body = new URLSearchParams(new FormData(form));
  body.delete("panel");
  body.set("do", "order");
  for (const panel of panelsOf(list)) body.append("order", panel.dataset.panelNumber);
  room.setAttribute("aria-busy", "true");
  const answer = await fetch(form.action, {
    method: "POST", body, credentials: "same-origin", headers: { "X-Background": "1" }, keepalive: true, // the page may be left
  }).catch(() => null);
  if (!answer?.ok) { location.reload(); return; }
  await refresh();
  room.removeAttribute("aria-busy");
  wanted = at;
  restore();
}

// Keeps the focus on the handle of the moved panel, also through later refreshes, until the user goes elsewhere.
function restore() {
  if (wanted === null) return;
  const now = document.activeElement;
  if (now && now !== document.body && !now.matches("[data-move]")) { wanted = null; return; }
  panelsOf(document.querySelector("[data-panels]"))[wanted]?.querySelector("[data-move]")?.focus({ preventScroll: true });
}

// Moves a panel before another one, or to the end.
function put(panel, before) {
  const list = panel.parentElement;
  if (before === panel || before === panel.nextElementSibling) return false;
  list.insertBefore(panel, before);
  return true;
}

addEventListener("keydown", (event) => {
  const handle = event.target.closest?.("[data-move]");
  const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
  if (!handle || !step || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (handle.closest("[aria-busy]")) return; // the board is being saved
  const panel = handle.closest("[data-panel-number]");
  const other = step < 0 ? panel.previousElementSibling : panel.nextElementSibling?.nextElementSibling ?? null;
  if (step < 0 ? other : panel.nextElementSibling) { put(panel, other); save(panel.parentElement, panel); }
});

addEventListener("pointerdown", (event) => {
  const handle = event.target.closest?.("[data-move]");
  if (!handle || event.button || handle.closest("[aria-busy]")) return;
  const panel = handle.closest("[data-panel-number]");
  const list = panel.parentElement;
  const [x, y] = [event.clientX, event.clientY];
  let [dragging, target, after] = [false, null, false];
  handle.setPointerCapture(event.pointerId);
  const mark = (next) => {
    target?.classList.remove("drop-before", "drop-after");
    target = next;
    target?.classList.add(after ? "drop-after" : "drop-before");
  };
  const move = (now) => {
    if (!dragging && Math.hypot(now.clientX - x, now.clientY - y) < MOVED_PX) return;
    dragging = true;
    panel.classList.add("is-dragged");
    const under = document.elementsFromPoint(now.clientX, now.clientY).map((one) => one.closest("[data-panel-number]")).find((one) => one?.parentElement === list);
    const box = under?.getBoundingClientRect();
    if (box) after = now.clientX > box.left + box.width / 2;
    mark(under === panel ? null : under ?? null);
  };
  const end = (now) => {
    handle.removeEventListener("pointermove", move);
    panel.classList.remove("is-dragged");
    const to = target;
    mark(null);
    if (to && now.type === "pointerup" && put(panel, after ? to.nextElementSibling : to)) save(list, panel);
  };
  handle.addEventListener("pointermove", move);
  for (const type of ["pointerup", "pointercancel"]) handle.addEventListener(type, end, { once: true });
});

// The other tools are sent in the background, so that the page stays where it is.
addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form.panel-tools")) return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(form, event.submitter));
  const answer = await fetch(form.action, { method: "POST", body, credentials: "same-origin", headers: { "X-Background": "1" } }).catch(() => null);
  if (answer?.ok) await refresh();
  else location.reload();
}, { capture: true });

// --- the form: only the fields of the chosen kind ---------------------------------------------------------------------
function suit(form) {
  const kind = form.querySelector("[name=kind]").value;
  for (const part of form.querySelectorAll("[data-for]")) {
    const fits = part.dataset.for.split(" ").includes(kind);
    part.hidden = !fits;
    for (const field of part.querySelectorAll("input, select, textarea")) field.disabled = !fits;
  }
}

for (const form of document.querySelectorAll("form[data-panel-form]")) {
  suit(form);
  form.addEventListener("change", () => suit(form));
}

draw();
onRefresh(() => { draw(); restore(); });
