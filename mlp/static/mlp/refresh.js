// Keeps the parts of a page up to date that are marked `data-region`: fetches the page again while something in it is
// unsteady (`data-unsteady`) and puts in the regions that have changed. Elements with the same `data-keep` stay as they
// are (a chart goes on moving); with `data-retain` a region also keeps those that the server does not show any more.

import { connection, hydrate, sessionEnded } from "./page.js";

const SOON_MS = 2500;
const LATER_MS = 20000;
const MARKS = /<input type="hidden" name="csrfmiddlewaretoken"[^>]*>/g;
const seen = new Map();
const listeners = [];
const self = {};
let timer = 0;
let busy = false;
let always = false;

function regions(part) {
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
    list.append(...kept.values());
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
  for (const [name, fresh] of regions(page)) {
    const html = plain(fresh);
    const old = now.get(name);
    if (!old || seen.get(name) === html) continue;
    if (document.querySelector("dialog[open]") || old.querySelector("form[data-sent]")) continue;
    seen.set(name, html);
    put(old, document.adoptNode(fresh));
  }
  document.title = page.title;
  for (const listener of listeners) listener();
}

// Fetches now. Called by those who know that something has changed.
export async function refresh() {
  if (busy) return;
  busy = true;
  clearTimeout(timer);
  try {
    const answer = await fetch(location.pathname + location.search, { credentials: "same-origin" });
    if (answer.redirected && new URL(answer.url).pathname.startsWith("/regist_login")) { sessionEnded(); return; }
    if (answer.status === 404) { location.replace(location.pathname.replace(/\/[^/]*$/, "")); return; } // it is deleted
    if (!answer.ok) throw new Error(answer.status);
    take(await answer.text());
    connection(self, true);
  } catch {
    connection(self, false);
  } finally {
    busy = false;
    plan();
  }
}

function plan() {
  clearTimeout(timer);
  const unsteady = document.querySelector("[data-unsteady]");
  if ((unsteady || always) && !document.hidden) timer = setTimeout(refresh, unsteady ? SOON_MS : LATER_MS);
}

// `everything`: also while all is steady, less often. `then` is called after each refresh.
export function watch({ everything = false, then = null } = {}) {
  always ||= everything;
  if (then) listeners.push(then);
  for (const [name, region] of regions(document)) seen.set(name, null);
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
  plan();
}
