// The page of log lines: while live tail is on, new lines appear, and lines that are classified are updated in place.

import { hydrate } from "./page.js";
import { refresh, watch } from "./refresh.js";
import { watchLines } from "./socket.js";
import { nodes } from "./styled.js";
import { timeFields, zoomable } from "./zoom.js";

const MAX = 200; // lines that the page keeps
const waiting = new Map(); // id -> the latest version of a line that is not drawn yet
const recent = new Map(); // id -> {row, at}: the latest version of a line that came last, and when
let drawn = false;

function on() {
  const part = document.querySelector("[data-tail]");
  return part && part.querySelector("[data-live-switch]").checked;
}

function take(rows) {
  if (!on()) return;
  const at = performance.now();
  for (const row of rows) {
    waiting.set(row.id, row);
    recent.delete(row.id);
    recent.set(row.id, { row, at });
  }
  for (const kept of [waiting, recent]) while (kept.size > MAX) kept.delete(kept.keys().next().value);
  if (!drawn) {
    drawn = true;
    requestAnimationFrame(draw);
  }
}

// A page that was asked for before a line came does not have it.
function restore(asked) {
  if (!on()) return;
  for (const [id, { row, at }] of recent) if (at >= asked && !waiting.has(id)) waiting.set(id, row);
  if (waiting.size) draw();
}

function verdict(level) {
  const known = document.querySelector(`template[data-level="${CSS.escape(level)}"]`) ?? document.querySelector('template[data-level=""]');
  return known.content.cloneNode(true);
}

function elementOf(row) {
  const line = document.querySelector("template[data-line]").content.firstElementChild.cloneNode(true);
  const at = new Date(row.time);
  line.dataset.id = row.id;
  line.dataset.at = row.time;
  line.querySelector("time").dateTime = at.toISOString();
  line.querySelector("[data-verdict]").append(verdict(row.level));
  const link = line.querySelector("a");
  link.href += encodeURIComponent(row.id);
  link.querySelector("code").replaceChildren(...(row.log ? nodes(row.log, row.styles) : ["–"]));
  line.querySelector("[data-workload]").textContent = `${row.cluster} / ${row.namespace} / ${row.deployment}`;
  hydrate(line);
  return line;
}

function draw() {
  drawn = false;
  const rows = [...waiting.values()].sort((a, b) => a.time - b.time);
  const body = document.querySelector("[data-tail] tbody");
  if (!body) { waiting.clear(); if (rows.length) refresh(); return; } // the page has no lines yet: the refresh adds the table
  waiting.clear();
  for (const row of rows) {
    const there = body.querySelector(`tr[data-id="${CSS.escape(row.id)}"]`);
    if (there) {
      there.querySelector("[data-verdict]").replaceChildren(verdict(row.level));
      continue;
    }
    const before = [...body.children].find((one) => Number(one.dataset.at) <= row.time);
    if (before || body.children.length < MAX) body.insertBefore(elementOf(row), before ?? null);
  }
  while (body.children.length > MAX) body.lastElementChild.remove();
}

watch({ then: restore });
zoomable();
timeFields();
const part = document.querySelector("[data-tail]");
if (part) {
  part.querySelector("[data-live]").hidden = false;
  watchLines(location.search.slice(1), take);
}
