// A live list of the admin. Changed cells are updated at once; added, removed or moved rows wait until nothing is
// selected, so that an action only applies to the rows that were ticked.

import { hydrate } from "../page.js";
import { watch } from "../refresh.js";

const FORM = "#changelist-form";
const COUNT = ".mlp-count"; // the footer: how many there are, and the pages
const SELECTED = ".action-select:checked";
let wanted = null; // a fetched page whose rows are not shown yet
let binding = null;

function rows(part) {
  return [...part.querySelectorAll("#result_list .data-row")];
}

function key(row) {
  return row.querySelector(".action-select")?.value ?? row.querySelector("a")?.getAttribute("href") ?? "";
}

function keys(part) {
  return rows(part).map(key).join("\n");
}

function mark(part) {
  for (const row of rows(part)) {
    [...row.children].forEach((cell, number) => {
      if (!cell.querySelector(".action-select")) cell.dataset.region = `${key(row)} ${number}`;
    });
  }
  if (part !== document) wanted = part.cloneNode(true); // a copy, since updating cells moves them out of the page
}

function swap(selector) {
  const [old, fresh] = [document.querySelector(selector), wanted.querySelector(selector)];
  if (!old || !fresh) return;
  old.replaceChildren(...document.adoptNode(fresh).childNodes);
  hydrate(old);
}

// Binds the admin's own script to the current rows and removes the event listeners of the previous ones.
function bind() {
  binding?.abort();
  binding = new AbortController();
  const parent = document.querySelector(".result-list-wrapper");
  const boxes = parent.querySelectorAll(".action-select");
  if (!boxes.length || !window.Actions) return;
  const { addEventListener } = EventTarget.prototype;
  EventTarget.prototype.addEventListener = function bound(type, listener) {
    addEventListener.call(this, type, listener, { signal: binding.signal });
  };
  try {
    window.Actions(boxes, { parent });
  } finally {
    EventTarget.prototype.addEventListener = addEventListener;
  }
}

function settle() {
  if (!wanted || document.querySelector(SELECTED)) return;
  if (keys(document) !== keys(wanted)) {
    swap(FORM);
    bind();
  }
  swap(COUNT);
  wanted = null;
}

watch({ mark, then: settle });
document.addEventListener("change", (event) => { if (event.target.closest(FORM)) setTimeout(settle); });
