// Tags and notes are edited in their cells: Enter saves (Ctrl and Enter in notes), Escape leaves them as they were.

import { refresh } from "../refresh.js";

const words = document.querySelector("#column-menu")?.dataset;

function element(name, properties, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

async function send(cell, text) {
  const body = new URLSearchParams({ [cell.dataset.edit]: text });
  body.set("csrfmiddlewaretoken", document.querySelector("[name=csrfmiddlewaretoken]").value);
  const answer = await fetch(cell.dataset.address, { method: "POST", body, credentials: "same-origin", headers: { "X-Background": "1" } }).catch(() => null);
  if (answer?.status === 204) return "";
  return (await answer?.json().catch(() => null))?.msg ?? words.wordFailed;
}

function edit(cell) {
  const field = element(cell.dataset.edit === "notes" ? "textarea" : "input", { value: cell.dataset.value, maxLength: 65536, autocomplete: "off" });
  field.setAttribute("aria-label", cell.querySelector("button").title);
  const save = element("button", { type: "button", className: "small primary", textContent: words.wordSave });
  const cancel = element("button", { type: "button", className: "small quiet", textContent: words.wordCancel });
  const problem = element("span", { className: "problem" });
  problem.setAttribute("role", "alert");
  const before = [...cell.childNodes];
  const close = () => {
    delete cell.dataset.editing;
    cell.replaceChildren(...before);
    cell.querySelector("button").focus();
  };
  const store = async () => {
    save.disabled = true;
    problem.textContent = await send(cell, field.value);
    save.disabled = false;
    if (problem.textContent) { field.setAttribute("aria-invalid", "true"); field.focus(); return; }
    close();
    await refresh();
  };
  cell.dataset.editing = "";
  cell.replaceChildren(element("div", { className: "editor" }, field, save, cancel), problem);
  save.addEventListener("click", store);
  cancel.addEventListener("click", () => { close(); refresh(); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.preventDefault(); close(); refresh(); }
    if (event.key === "Enter" && (field.localName === "input" || event.ctrlKey || event.metaKey)) { event.preventDefault(); store(); }
  });
  field.focus();
}

document.addEventListener("click", (event) => {
  const cell = event.target.closest?.("td[data-edit] > button")?.parentElement;
  if (cell) edit(cell);
});
document.addEventListener("dblclick", (event) => {
  const cell = event.target.closest?.("td[data-edit]");
  if (cell && !("editing" in cell.dataset)) edit(cell);
});
