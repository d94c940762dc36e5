// Panels are resized by their corner: it is dragged, or moved by the arrow keys. The size is a number of columns and rows
// of the board's grid; it is saved once the hand rests.

import { refresh } from "../refresh.js";

const COLUMNS = 4;
const ROWS = 4;
const ROW_PX = 210; // by which a row makes a chart higher (runs.css)
const REST_MS = 500;
const waiting = new WeakMap(); // panel -> timer

const sizeOf = (panel) => ({ columns: Number(panel.dataset.columns), rows: Number(panel.dataset.rows) });
const within = (value, most) => Math.max(1, Math.min(most, Math.round(value)));

function show(panel, columns, rows) {
  panel.classList.remove(`span-${panel.dataset.columns}`);
  panel.classList.add(`span-${columns}`);
  Object.assign(panel.dataset, { columns, rows, editing: "" }); // a refresh leaves the board as it is, meanwhile
}

async function save(panel) {
  clearTimeout(waiting.get(panel));
  waiting.delete(panel);
  const form = panel.querySelector("form.panel-tools");
  const body = new URLSearchParams(new FormData(form));
  const { columns, rows } = sizeOf(panel);
  body.set("do", "size");
  body.set("columns", columns);
  body.set("rows", rows);
  const room = panel.closest("[data-region]").parentElement; // a refresh does not set its attributes
  room.setAttribute("aria-busy", "true"); // until the page has the mark of the new board
  const answer = await fetch(form.action, {
    method: "POST", body, credentials: "same-origin", headers: { "X-Background": "1" }, keepalive: true, // the page may be left
  }).catch(() => null);
  delete panel.dataset.editing;
  if (!answer?.ok) { location.reload(); return; } // the page has the message
  await refresh();
  room.removeAttribute("aria-busy");
}

function later(panel) {
  clearTimeout(waiting.get(panel));
  waiting.set(panel, setTimeout(() => save(panel), REST_MS));
}

addEventListener("keydown", (event) => {
  const corner = event.target.closest?.("[data-size]");
  const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (!corner || !step || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (corner.closest("[aria-busy]")) return; // the board is being saved
  const panel = corner.closest("[data-panel-number]");
  const now = sizeOf(panel);
  const rows = corner.dataset.size === "both" ? within(now.rows + step[1], ROWS) : now.rows;
  show(panel, within(now.columns + step[0], COLUMNS), rows);
  later(panel);
});

addEventListener("focusout", (event) => {
  const panel = event.target.closest?.("[data-size]")?.closest("[data-panel-number]");
  if (panel && waiting.has(panel)) save(panel);
});

addEventListener("pointerdown", (event) => {
  const corner = event.target.closest?.("[data-size]");
  if (!corner || event.button || corner.closest("[aria-busy]")) return;
  event.preventDefault();
  corner.focus({ preventScroll: true });
  corner.setPointerCapture(event.pointerId);
  const panel = corner.closest("[data-panel-number]");
  const before = sizeOf(panel);
  const [x, y, width, top] = [event.clientX, event.clientY, panel.offsetWidth, scrollY];
  const column = panel.parentElement.clientWidth / getComputedStyle(panel.parentElement).gridTemplateColumns.split(" ").length;
  panel.classList.add("is-resized");
  const move = (now) => {
    const rows = corner.dataset.size === "both" ? within(before.rows + (now.clientY - y + scrollY - top) / ROW_PX, ROWS) : before.rows;
    show(panel, within((width + now.clientX - x) / column, COLUMNS), rows);
  };
  const end = (now) => {
    corner.removeEventListener("pointermove", move);
    panel.classList.remove("is-resized");
    if (now.type !== "pointerup") show(panel, before.columns, before.rows);
    const after = sizeOf(panel);
    if (after.columns === before.columns && after.rows === before.rows) delete panel.dataset.editing;
    else save(panel);
  };
  corner.addEventListener("pointermove", move);
  for (const type of ["pointerup", "pointercancel"]) corner.addEventListener(type, end, { once: true });
});
