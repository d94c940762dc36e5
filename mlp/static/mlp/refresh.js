// Keeps the parts of a page up to date that are marked `data-region`: fetches the page again when the server says that
// something on it has changed (socket.js), and puts in the regions that look different. Elements with the same
// `data-keep` stay as they are (a chart goes on moving); with `data-retain` a region also keeps some that the server
// does not show any more. `data-everyone` on a page of operators: other people's objects are of interest, too.
// Where the page is not our own template, `mark` gives its parts their `data-region`.

import { connection, hydrate, sessionEnded } from "./page.js";
import { onChange } from "./socket.js";

const SOON_MS = 60; // changes within it are one fetch
const MOVING_MS = 2000; // between two fetches, where only something like progress has moved
const AGAIN_MS = 3000;
const MOST_RETAINED = 6;
const MARKS = /<input type="hidden" name="csrfmiddlewaretoken"[^>]*>/g;
const LOGINS = /^\/(regist_login|admin\/login)/;
const seen = new Map();
const listeners = [];
const markers = [];
const self = {};
let timer = 0;
let due = 0;
let last = 0;
let busy = false;
let more = false;
let missed = false;
let untouched = false; // something changed while a question was open
let away = null; // where a page goes whose object is deleted

function regions(part) {
  for (const mark of markers) mark(part);
  return new Map([...part.querySelectorAll("[data-region]")].map((region) => [region.dataset.region, region]));
}

function plain(region) {
  return region.outerHTML.replace(MARKS, "");
}

function put(old, fresh) {
  const kept = new Map([...old.querySelectorAll("[data-keep]")].map((element) => [element.dataset.keep, element]));
  for (const element of fresh.querySelectorAll("[data-keep]")) {
    const same = kept.get(element.dataset.keep);
    if (same) { element.replaceWith(same); kept.delete(element.dataset.keep); }
  }
  const list = "retain" in old.dataset && fresh.querySelector("[data-list]");
  if (list && kept.size) {
    list.append(...[...kept.values()].slice(0, MOST_RETAINED)); // those that were shown first: the last to end
    list.querySelector("[data-none]")?.remove();
  }
  for (const box of old.querySelectorAll("details[open]")) {
    const same = fresh.querySelector(`details[data-keep-open="${CSS.escape(box.dataset.keepOpen ?? "")}"]`);
    if (same) same.open = true;
  }
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  old.replaceWith(fresh);
  if (focused) {
    const again = focused.isConnected ? focused : fresh.querySelector(focused.getAttribute("href") ? `a[href="${CSS.escape(focused.getAttribute("href"))}"]` : "button");
    again?.focus({ preventScroll: true });
  }
  hydrate(fresh);
}

function take(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  const now = regions(document);
  untouched = false;
  for (const [name, fresh] of regions(page)) {
    const html = plain(fresh);
    const old = now.get(name);
    if (!old || seen.get(name) === html) continue;
    if (document.querySelector("dialog[open]") || old.querySelector("form[data-sent]")) { untouched = true; continue; }
    seen.set(name, html);
    put(old, document.adoptNode(fresh));
  }
  document.title = page.title;
  for (const listener of listeners) listener();
}

// Fetches now; while a fetch is under way, once more after it. Called by those who know that something has changed.
export async function refresh() {
  clearTimeout(timer);
  timer = 0;
  if (busy) { more = true; return; }
  busy = true;
  last = Date.now();
  try {
    const answer = await fetch(location.pathname + location.search, { credentials: "same-origin" });
    if (answer.redirected && LOGINS.test(new URL(answer.url).pathname)) { sessionEnded(); return; }
    if (answer.redirected && away) { location.replace(away); return; }
    if (answer.status === 404) { location.replace(location.pathname.replace(/\/[^/]*$/, "")); return; } // it is deleted
    if (!answer.ok) throw new Error(answer.status);
    take(await answer.text());
    connection(self, true);
  } catch {
    connection(self, false);
    soon(AGAIN_MS); // the server is there, or the websocket would have gone as well: this one answer failed
  } finally {
    busy = false;
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

function hear(message) {
  if (message.type === "again") { soon(0); return; }
  if (!message.mine && !("everyone" in document.body.dataset) && !document.querySelector("[data-everyone]")) return;
  soon(message.moving ? Math.max(SOON_MS, last + MOVING_MS - Date.now()) : SOON_MS);
}

// `then` is called after each refresh; `mark` with each page, also one that came, before its regions are looked for.
// `gone`: the address to go to when the page is sent elsewhere, since its object is deleted.
export function watch({ then = null, mark = null, gone = null } = {}) {
  if (then) listeners.push(then);
  if (mark) markers.push(mark);
  away = gone;
  for (const name of regions(document).keys()) seen.set(name, null);
  document.addEventListener("close", () => { if (untouched) refresh(); }, true); // of a dialog
  document.addEventListener("visibilitychange", () => { if (!document.hidden && missed) { missed = false; refresh(); } });
  onChange(hear);
}
