// The table of runs: the tick in the head ticks all rows of the page, what cannot be undone at once is confirmed with the
// number and the names of the runs; menus close when something else is clicked.

import { watch } from "./refresh.js";
import "./runs/columns.js";
import "./runs/editing.js";
import "./runs/lines.js";

const MAX_NAMED = 5;
const PLACE = "mlp-runs"; // in the session's storage: where the table was left for another version of itself
const PLACE_MS = 60000;

function ticks(form) {
  return [...form.querySelectorAll("input[name=job]")];
}

// Returns how many runs are selected, and the names of those on this page.
function selected(form) {
  const everything = form.querySelector("[name=all]")?.checked;
  const on = ticks(form).filter((tick) => tick.checked || everything);
  const names = on.map((tick) => tick.closest("tr").querySelector("th.name a").textContent.trim());
  return { count: everything ? Number(form.querySelector("[data-selected]").dataset.total) : on.length, names };
}

function count(form) {
  const place = form.querySelector("[data-selected]");
  if (!place) return;
  const { count: number } = selected(form);
  const none = number ? "" : place.dataset.none;
  const why = offer(form, none);
  place.textContent = none || [
    place.dataset.word.replace("{n}", number.toLocaleString(document.documentElement.lang)), ...why,
  ].join(" · ");
}

// A button is offered as long as one of the selected runs is in a state that it is for; of other pages nobody knows here.
// Returns why buttons are not offered.
function offer(form, none) {
  const rows = ticks(form).filter((tick) => tick.checked).map((tick) => tick.closest("tr"));
  const known = rows.length > 0 && !form.querySelector("[name=all]")?.checked;
  const states = {
    ended: (row) => !("unsteady" in row.dataset),
    unended: (row) => "unsteady" in row.dataset,
    restorable: (row) => !("withoutProject" in row.dataset),
  };
  const fits = (button) => !known || !("for" in button.dataset) || rows.some(states[button.dataset.for]);
  const reasons = [];
  for (const button of form.querySelectorAll(".bulk button[name=do]")) {
    const why = none || (fits(button) ? "" : button.dataset.why);
    button.disabled = Boolean(why);
    button.title = why;
    if (why && !none) reasons.push(why);
  }
  return reasons;
}

document.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-runs]");
  if (!form) return;
  const head = form.querySelector("[data-all]");
  if (event.target === head) {
    for (const tick of ticks(form)) tick.checked = head.checked;
  } else if (event.target.name === "job") {
    head.checked = ticks(form).every((tick) => tick.checked);
    head.indeterminate = !head.checked && ticks(form).some((tick) => tick.checked);
  }
  count(form);
});

// Before page.js looks at the form: it asks what `data-confirm` says.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("form[data-runs]")) return;
  for (const name of ["confirm", "confirmTitle", "confirmButton", "confirmBack"]) delete form.dataset[name];
  const { ask, askTitle, askBack } = event.submitter?.dataset ?? {};
  const { count: number, names } = selected(form);
  if (!ask || !number) return;
  const list = names.slice(0, MAX_NAMED).join(", ") + (number > Math.min(names.length, MAX_NAMED) ? ", …" : "");
  form.dataset.confirm = `${form.querySelector("[data-selected]").dataset.word.replace("{n}", number)} (${list}). ${ask}`;
  form.dataset.confirmTitle = askTitle;
  form.dataset.confirmButton = event.submitter.textContent.trim();
  if (askBack) form.dataset.confirmBack = askBack;
});

// Keeps the selection and how far the page is scrolled, for the page that comes: the same table filtered, sorted or changed.
function leave() {
  const names = [...document.querySelectorAll("form[data-runs] input[name=job]:checked")].map((tick) => tick.value);
  sessionStorage.setItem(PLACE, JSON.stringify({ path: location.pathname, at: Date.now(), y: scrollY, names }));
}

function comeBack() {
  const left = JSON.parse(sessionStorage.getItem(PLACE) ?? "null");
  sessionStorage.removeItem(PLACE);
  if (left?.path !== location.pathname || Date.now() - left.at > PLACE_MS) return;
  for (const form of document.querySelectorAll("form[data-runs]")) {
    for (const tick of ticks(form)) tick.checked ||= left.names.includes(tick.value);
  }
  scrollTo(0, left.y);
}

document.addEventListener("submit", (event) => {
  if (event.defaultPrevented || !event.target.matches("form[data-runs], form.filter, .runs-tools form")) return;
  if (event.submitter?.value !== "compare") leave();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.target.id !== "bulk-tags") return;
  event.preventDefault(); // it would press the form's first button
  event.target.closest("form").requestSubmit(event.target.parentElement.querySelector("button[value=tag]"));
});

document.addEventListener("click", (event) => {
  if (event.target.closest(".runs-tools .chips a, form[data-runs] thead a")) leave();
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

watch({ then: () => document.querySelectorAll("form[data-runs]").forEach(count) });
comeBack();
document.querySelectorAll("form[data-runs]").forEach(count);
