// The Media tab of a job: sliders over the steps, tables sorted by a click. What is chosen is in the address, so that a
// refresh shows it again; a medium whose slider is at its end follows the newest step.

import { hydrate } from "./page.js";
import { refresh, watch } from "./refresh.js";

const root = document.querySelector("[data-media]");
const loading = new Map(); // medium -> the step that is wanted, while a part is being fetched

function stepsOf(card) {
  return card.dataset.steps.split(",");
}

// Puts the choice `field=medium:value` into the address, or removes it.
function choose(field, medium, value) {
  const address = new URL(location.href);
  const others = address.searchParams.getAll(field).filter((one) => !one.startsWith(`${medium}:`));
  address.searchParams.delete(field);
  for (const one of others) address.searchParams.append(field, one);
  if (value !== null) address.searchParams.append(field, `${medium}:${value}`);
  history.replaceState(null, "", address);
}

// Shows the medium at the step of its slider; while one part is being fetched, only the last wanted one is remembered.
async function show(card) {
  const { medium } = card.dataset;
  const wanted = stepsOf(card)[card.querySelector("[data-slider]").value];
  const busy = loading.has(medium);
  loading.set(medium, wanted);
  if (busy) return;
  let shown = null;
  while (shown !== loading.get(medium)) {
    shown = loading.get(medium);
    const query = new URLSearchParams({ at: `${medium}:${shown}` });
    for (const sort of new URL(location.href).searchParams.getAll("sort")) query.append("sort", sort);
    const answer = await fetch(`${root.dataset.part}?${query}`, { credentials: "same-origin" }).catch(() => null);
    if (!answer?.ok || answer.redirected) { refresh(); break; }
    const place = card.querySelector("[data-shown]");
    const open = place.querySelector("details")?.open;
    place.innerHTML = await answer.text(); // rendered by the server, with all names escaped
    if (open && place.querySelector("details")) place.querySelector("details").open = true;
    hydrate(place);
  }
  loading.delete(medium);
}

root.addEventListener("input", (event) => {
  const slider = event.target.closest("[data-slider]");
  if (!slider) return;
  const card = slider.closest("[data-medium]");
  const step = stepsOf(card)[slider.value];
  card.querySelector("[data-step]").textContent = step;
  slider.setAttribute("aria-valuetext", step);
  choose("at", card.dataset.medium, slider.value === slider.max ? null : step);
  show(card);
});

root.addEventListener("click", (event) => {
  const link = event.target.closest("[data-sort]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  choose("sort", link.closest("[data-medium]").dataset.medium, link.dataset.sort);
  refresh();
});

// After a refresh each slider stands where the address says, or else at the newest step.
function settle() {
  const chosen = new URL(location.href).searchParams.getAll("at");
  for (const card of root.querySelectorAll("[data-medium]")) {
    const slider = card.querySelector("[data-slider]");
    if (!slider) continue;
    const steps = stepsOf(card);
    const choice = chosen.find((one) => one.startsWith(`${card.dataset.medium}:`));
    const at = choice ? steps.indexOf(choice.slice(card.dataset.medium.length + 1)) : -1;
    slider.value = at < 0 ? steps.length - 1 : at;
    card.querySelector("[data-step]").textContent = steps[slider.value];
    slider.setAttribute("aria-valuetext", steps[slider.value]);
    if (loading.has(card.dataset.medium)) continue; // its part comes
    if (!card.querySelector(`[data-at$=":${steps[slider.value]}"]`)) show(card);
  }
}

watch({ then: settle });
