// The columns of a table of runs: a menu at each head, and heads that are dragged, or moved by Shift and the arrow keys.
// The columns are in the page's address, so that it can be shared and saved as a view.

import { refresh } from "../refresh.js";

const MOVED_PX = 6; // before a press becomes a drag
const FOCUSED = "runs-column"; // in sessionStorage: the column whose head gets the focus on the next page
const menu = document.querySelector("#column-menu");
let current = null; // the head whose menu is open

const heads = () => [...document.querySelectorAll("th[data-column]")];
const keys = () => heads().map((head) => head.dataset.column);

// Goes to the table with other columns or another order.
function go(change, focused) {
  const address = new URL(location.href);
  for (const name of ["after", "before", "page"]) address.searchParams.delete(name);
  change(address.searchParams);
  if (focused) sessionStorage.setItem(FOCUSED, focused);
  location.assign(address);
}

function show(columns, focused) {
  go((query) => { query.delete("col"); for (const key of columns) query.append("col", key); }, focused);
}

// Moves a column to a place; the name stays the first.
function move(key, to) {
  const now = keys();
  const from = now.indexOf(key);
  const place = Math.max(1, Math.min(now.length - 1, to));
  if (from < 1 || from === place) return;
  now.splice(from, 1);
  now.splice(place, 0, key);
  show(now, key);
}

async function setGoal(metric, goal) {
  const body = new URLSearchParams({ do: "goals", metric, goal });
  body.set("csrfmiddlewaretoken", document.querySelector("[name=csrfmiddlewaretoken]").value);
  const answer = await fetch(menu.dataset.goals, { method: "POST", body, credentials: "same-origin", headers: { "X-Background": "1" } }).catch(() => null);
  if (answer?.ok) refresh();
  else location.reload(); // the page has the message
}

const GROUPED = /^(state|script|project|group|runtime|dataset|param:.+)$/;
const ACTIONS = {
  ascending: (key) => go((query) => query.set("sort", key), key),
  descending: (key) => go((query) => query.set("sort", `-${key}`), key),
  left: (key) => move(key, keys().indexOf(key) - 1),
  right: (key) => move(key, keys().indexOf(key) + 1),
  group: (key) => go((query) => query.set("by", key)),
  remove: (key) => show(keys().filter((one) => one !== key)),
  min: () => setGoal(current.dataset.metric, "min"),
  max: () => setGoal(current.dataset.metric, "max"),
};

function open(button) {
  current = button.closest("th");
  const { column, metric, goal } = current.dataset;
  const at = keys().indexOf(column);
  const shown = {
    left: at > 1, right: at > 0 && at < keys().length - 1, remove: at > 0, group: GROUPED.test(column),
    min: Boolean(metric && menu.dataset.goals), max: Boolean(metric && menu.dataset.goals),
  };
  for (const entry of menu.querySelectorAll("[data-do]")) {
    entry.hidden = shown[entry.dataset.do] === false;
    if (entry.getAttribute("role") === "menuitemradio") entry.setAttribute("aria-checked", String(goal === entry.dataset.do));
  }
  menu.showPopover();
  const place = button.getBoundingClientRect();
  menu.style.left = `${Math.max(8, Math.min(place.left, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${Math.min(place.bottom + 4, innerHeight - menu.offsetHeight - 8)}px`;
  menu.querySelector("button:not([hidden])").focus();
}

function arrows(event) {
  const entries = [...menu.querySelectorAll("button:not([hidden])")];
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  entries[(entries.indexOf(document.activeElement) + step + entries.length) % entries.length].focus();
}

// --- dragging ---------------------------------------------------------------------------------------------------------
function drag(event) {
  const head = event.target.closest?.("th[data-column]");
  if (!head || event.button || event.pointerType === "touch" || event.target.closest("button") || head.dataset.column === "name") return;
  const x = event.clientX;
  let [dragging, target, after] = [false, null, false];
  const mark = (next) => {
    target?.classList.remove("drop-before", "drop-after");
    target = next;
    target?.classList.add(after ? "drop-after" : "drop-before");
  };
  const moving = (now) => {
    if (!dragging && Math.abs(now.clientX - x) < MOVED_PX) return;
    dragging = true;
    now.preventDefault();
    head.classList.add("is-dragged");
    const under = document.elementFromPoint(now.clientX, now.clientY)?.closest("th[data-column]");
    const box = under?.getBoundingClientRect();
    if (box) after = now.clientX > box.left + box.width / 2 || under.dataset.column === "name";
    mark(under === head ? null : under ?? null);
  };
  const end = (now) => {
    removeEventListener("pointermove", moving);
    removeEventListener("pointerup", end);
    removeEventListener("pointercancel", end);
    head.classList.remove("is-dragged");
    const to = target;
    mark(null);
    if (!dragging) return;
    addEventListener("click", (click) => { click.preventDefault(); click.stopPropagation(); }, { capture: true, once: true });
    setTimeout(() => dispatchEvent(new Event("click")), 0); // where no click follows, the listener goes away
    if (!to || now.type !== "pointerup") return;
    const [from, place] = [keys().indexOf(head.dataset.column), keys().indexOf(to.dataset.column) + (after ? 1 : 0)];
    move(head.dataset.column, place > from ? place - 1 : place);
  };
  addEventListener("pointermove", moving);
  addEventListener("pointerup", end);
  addEventListener("pointercancel", end);
}

// The choice of columns keeps their order; those that are new come last.
function choose(event) {
  const form = event.target;
  if (!form.matches("#columns form")) return;
  const ticked = [...form.querySelectorAll("[name=col]:checked")].map((box) => box.value);
  const order = heads().length ? keys() : new URL(location.href).searchParams.getAll("col");
  const kept = order.filter((key) => key === "name" || ticked.includes(key));
  event.preventDefault();
  go((query) => {
    query.delete("col");
    for (const key of [...kept, ...ticked.filter((key) => !kept.includes(key))]) query.append("col", key);
    const by = form.querySelector("[name=by]").value;
    if (by) query.set("by", by);
    else query.delete("by");
  });
}

if (menu) {
  document.addEventListener("submit", choose);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-head-menu]");
    if (button) open(button);
    const entry = event.target.closest("#column-menu [data-do]");
    if (entry) { menu.hidePopover(); ACTIONS[entry.dataset.do](current.dataset.column); }
  });
  menu.addEventListener("keydown", arrows);
  document.addEventListener("keydown", (event) => {
    const head = event.shiftKey && event.target.closest?.("th[data-column]");
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!head || !step) return;
    event.preventDefault();
    move(head.dataset.column, keys().indexOf(head.dataset.column) + step);
  });
  document.addEventListener("pointerdown", drag);
  const focused = sessionStorage.getItem(FOCUSED);
  sessionStorage.removeItem(FOCUSED);
  const head = focused && heads().find((one) => one.dataset.column === focused);
  if (head) { head.scrollIntoView({ block: "nearest", inline: "nearest" }); head.querySelector("a").focus({ preventScroll: true }); }
}
