// Updates the parts of a page that are marked `data-region`: fetches the page again when the server says that something
// on it has changed (socket.js), and morphs the regions that differ (idiomorph), so that focus, selection and scroll
// position survive. An element with `data-keep` and an id is left alone (a chart goes on moving); a region with
// `data-retain` also keeps some that the server no longer shows. `data-everyone` on a page of administrators: changes
// of other users' objects count, too; where it names a kind, those of this kind. Where the page is not our own template, `mark` sets `data-region` on its parts.

import { Idiomorph } from "../vendor/idiomorph.esm.js";
import { connection, hydrate, sessionEnded } from "./page.js";
import { onChange } from "./socket.js";

const SOON_MS = 60; // changes within it share one fetch
const MOVING_MS = 2000; // between two fetches when only progress has moved
const AGAIN_MS = 3000;
const MAX_RETAINED = 6;
const MARKS = /<input type="hidden" name="csrfmiddlewaretoken"[^>]*>/g;
const LOGINS = /^\/(regist_login|admin\/login)/;
const seen = new Map();
const listeners = [];
const markers = [];
const self = {};
let timer = 0;
let due = 0;
let last = Date.now();
let jobsMs = MOVING_MS;
let busy = false;
let more = false;
let missed = false;
let untouched = false; // something changed while a dialog was open
const waiting = []; // those who wait for the fetch after the one under way
let away = null; // where to go when the object is deleted

function regions(part) {
  for (const mark of markers) mark(part);
  return new Map([...part.querySelectorAll("[data-region]")].map((region) => [region.dataset.region, region]));
}

function plain(region) {
  return region.outerHTML.replace(MARKS, "");
}

// Cards of a `data-retain` list that the server no longer shows stay at its end, the first ones shown first.
function retain(old, fresh) {
  const list = "retain" in old.dataset && fresh.querySelector("[data-list]");
  if (!list) return;
  const shown = new Set([...fresh.querySelectorAll("[data-keep]")].map((element) => element.id));
  const ended = [...old.querySelectorAll("[data-keep]")].filter((element) => !shown.has(element.id)).slice(0, MAX_RETAINED);
  if (!ended.length) return;
  list.append(...ended.map((element) => element.cloneNode(false)));
  list.querySelector("[data-none]")?.remove();
}

// Returns whether the attribute is the user's input: open details, typed, ticked or selected values.
function isUserInput(attribute, element) {
  if (attribute === "open") return element.localName === "details";
  if (attribute === "value") return element.matches("input, textarea") && element.value !== element.defaultValue;
  if (attribute === "checked") return element.checked !== element.defaultChecked;
  if (attribute === "selected") return element.selected !== element.defaultSelected;
  return false;
}

const MORPHING = {
  morphStyle: "outerHTML",
  callbacks: {
    beforeNodeMorphed: (old, fresh) => !(fresh.dataset && "keep" in fresh.dataset && old.id === fresh.id),
    beforeAttributeUpdated: (attribute, element) => !isUserInput(attribute, element),
  },
};

function put(old, fresh) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const address = focused?.getAttribute("href");
  retain(old, fresh);
  Idiomorph.morph(old, fresh, MORPHING);
  if (focused && (document.activeElement !== focused || focused.getAttribute("href") !== address)) {
    old.querySelector(address ? `a[href="${CSS.escape(address)}"]` : "button")?.focus({ preventScroll: true });
  }
  hydrate(old);
}

// Shows a page that was asked for at `asked`, by performance.now().
function take(text, asked) {
  const page = new DOMParser().parseFromString(text, "text/html");
  const now = regions(document);
  untouched = false;
  for (const [name, fresh] of regions(page)) {
    const html = plain(fresh);
    const old = now.get(name);
    if (!old || seen.get(name) === html) continue;
    if (document.querySelector("dialog[open]") || old.querySelector("form[data-sent], [data-editing]")) { untouched = true; continue; }
    seen.set(name, html);
    put(old, fresh);
  }
  document.title = page.title;
  for (const listener of listeners) listener(asked);
}

// Fetches the page now; if a fetch is under way, once more after it, which is waited for.
export async function refresh() {
  clearTimeout(timer);
  timer = 0;
  if (busy) { more = true; return new Promise((resolve) => { waiting.push(resolve); }); }
  const served = waiting.splice(0);
  busy = true;
  last = Date.now();
  const asked = performance.now();
  try {
    const answer = await fetch(location.pathname + location.search, { credentials: "same-origin" });
    if (answer.redirected && LOGINS.test(new URL(answer.url).pathname)) { sessionEnded(); return; }
    if (answer.redirected && away) { location.replace(away); return; }
    if (answer.status === 404) { // deleted, or no longer shared
      location.replace(location.pathname.startsWith("/u/") ? "/shared" : location.pathname.replace(/\/[^/]*$/, ""));
      return;
    }
    if (!answer.ok) throw new Error(answer.status);
    take(await answer.text(), asked);
    connection(self, true);
  } catch {
    connection(self, false);
    soon(AGAIN_MS); // the websocket is still connected, so only this response failed
  } finally {
    busy = false;
    for (const resolve of served) resolve();
    if (more) { more = false; soon(SOON_MS); }
  }
}

function soon(wait) {
  const at = Date.now() + wait;
  if (timer && due <= at) return;
  clearTimeout(timer);
  due = at;
  timer = setTimeout(() => { timer = 0; if (document.hidden) missed = true; else refresh(); }, wait);
}

// Shows an object's progress where the page marks it with `data-progress-of`: kind and name.
function move({ kind, name, progress }) {
  for (const element of document.querySelectorAll(`[data-progress-of="${CSS.escape(`${kind} ${name}`)}"]`)) {
    if (element.localName === "progress") element.value = progress;
    else element.textContent = `${progress} %`;
  }
}

function onMessage(message) {
  if (message.type === "again") { soon(0); return; }
  if (!message.mine && !["", message.kind].includes(document.querySelector("[data-everyone]")?.dataset.everyone)) return;
  if (message.progress !== undefined) move(message);
  const pause = message.kind === "job" && message.mine ? jobsMs : MOVING_MS;
  soon(message.moving ? Math.max(SOON_MS, last + pause - Date.now()) : SOON_MS);
}

// Calls `listener` after each refresh of the page, with the time at which the page was asked for (performance.now()).
export function onRefresh(listener) { listeners.push(listener); }

// Starts updating the page. `then` is called after each refresh; `mark` with the document, and with each fetched one
// before its regions are looked up. `gone`: the address to go to when the page redirects, since its object is deleted.
// `jobs`: milliseconds between two fetches when only a job's progress has moved; a page to which progress and points come
// by themselves needs few.
export function watch({ then = null, mark = null, gone = null, jobs = MOVING_MS } = {}) {
  jobsMs = jobs;
  if (then) listeners.push(then);
  if (mark) markers.push(mark);
  away = gone;
  for (const name of regions(document).keys()) seen.set(name, null);
  document.addEventListener("close", () => { if (untouched) refresh(); }, true); // of a dialog
  document.addEventListener("visibilitychange", () => { if (!document.hidden && missed) { missed = false; refresh(); } });
  onChange(onMessage);
}
