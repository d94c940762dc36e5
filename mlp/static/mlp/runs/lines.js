// The lines of runs in the charts above their table: the eye hides and shows a run, the swatch chooses its colour. Both
// are kept with the run, so that they are the same on every page; the board is fetched again with the runs that it draws.

import { refresh } from "../refresh.js";

const menu = document.querySelector("#colour-menu");
let current = null; // the swatch whose menu is open

async function send(address, name, value) {
  const body = new URLSearchParams({ [name]: value });
  body.set("csrfmiddlewaretoken", document.querySelector("[name=csrfmiddlewaretoken]").value);
  const answer = await fetch(address, { method: "POST", body, credentials: "same-origin", headers: { "X-Background": "1" } }).catch(() => null);
  if (answer?.ok) await refresh();
  else location.reload(); // the page says what is wrong
}

function open(swatch) {
  current = swatch;
  for (const entry of menu.children) entry.setAttribute("aria-checked", String(entry.dataset.set === swatch.dataset.colour));
  menu.showPopover();
  const place = swatch.getBoundingClientRect();
  menu.style.left = `${Math.max(8, Math.min(place.left, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${Math.min(place.bottom + 4, innerHeight - menu.offsetHeight - 8)}px`;
  menu.querySelector("[aria-checked=true]").focus();
}

function choose(entry) {
  menu.hidePopover();
  const swatch = current;
  swatch.focus({ preventScroll: true });
  if (entry.dataset.set === swatch.dataset.colour) return;
  swatch.classList.replace(`c${swatch.dataset.colour}`, `c${entry.dataset.set}`);
  send(swatch.dataset.address, "colour", entry.dataset.set);
}

if (menu) {
  document.addEventListener("click", (event) => {
    const swatch = event.target.closest("button.swatch[data-colour]");
    if (swatch) open(swatch);
    const entry = event.target.closest("#colour-menu [data-set]");
    if (entry) choose(entry);
    const eye = event.target.closest("[data-eye]");
    if (!eye) return;
    const shown = eye.getAttribute("aria-pressed") !== "true";
    eye.setAttribute("aria-pressed", String(shown));
    send(eye.dataset.address, "hidden", shown ? "0" : "1");
  });
  menu.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 5, ArrowUp: -5 }[event.key];
    if (!step) return;
    event.preventDefault();
    const entries = [...menu.children];
    entries[(entries.indexOf(document.activeElement) + step + entries.length) % entries.length].focus();
  });
}
