// The button "Share": shows the page of an object's shares (templates/sharing/share.html) in a dialog. Its forms are sent
// from there, and the dialog shows the answer. Without this script, or when a fetch fails, the button is a link to that page.

import { hydrate } from "./page.js";

let dialog = null;

// Where the focus goes after an answer: to the wrong field, to the new link, else to what was used.
function focus(used) {
  const wrong = dialog.querySelector('[aria-invalid="true"]') ?? dialog.querySelector("#share-link");
  const title = dialog.querySelector("#shares-title");
  if (title) title.tabIndex = -1;
  (wrong ?? (used?.closest("[data-region]") ? title : dialog.querySelector("button.primary")))?.focus();
}

function show(html, address, used = null) {
  const page = new DOMParser().parseFromString(html, "text/html");
  const content = page.querySelector("[data-share-content]");
  if (!content) return false;
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.className = "wide";
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    dialog.addEventListener("submit", send);
    document.body.append(dialog);
  }
  const title = content.querySelector("h1");
  title.id = "share-title";
  content.querySelector(".trail")?.remove();
  dialog.setAttribute("aria-labelledby", title.id);
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "×";
  close.className = "quiet close";
  close.setAttribute("aria-label", document.body.dataset.wordClose);
  close.addEventListener("click", () => dialog.close());
  dialog.replaceChildren(close, ...content.children);
  dialog.dataset.address = address;
  if (dialog.open) focus(used);
  else dialog.showModal();
  hydrate(dialog);
  return true;
}

async function send(event) {
  event.preventDefault();
  event.stopPropagation(); // page.js would mark the form as sent
  const form = event.target;
  const body = new URLSearchParams(new FormData(form, event.submitter));
  if (body.has("next")) body.set("next", dialog.dataset.address);
  const answer = await fetch(form.action, { method: "POST", body, credentials: "same-origin" }).catch(() => null);
  if (!answer || !show(await answer.text(), dialog.dataset.address, form)) location.assign(dialog.dataset.address);
}

addEventListener("click", async (event) => {
  const button = event.target.closest?.("a[data-share]");
  if (!button || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const address = button.getAttribute("href");
  const answer = await fetch(address, { credentials: "same-origin" }).catch(() => null);
  if (!answer?.ok || !show(await answer.text(), address)) location.assign(address);
});
