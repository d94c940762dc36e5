// The page's websocket (`/ws/live`, described in mlp/visitors/live.py): changes, and the metrics of the jobs shown.
//
// It reconnects automatically with increasing pauses; listeners then receive `again`, to fetch what they have missed.

import { connection, sessionEnded } from "./page.js";

const FIRST_PAUSE_MS = 400;
const LONGEST_PAUSE_MS = 15000;
const STEADY_MS = 5000; // a connection that lasts this long is stable and resets the pauses
const SILENCE_MS = 50000; // the server sends a beat every 20 s
const ENDED = 4401; // after any other code, such as changed rights (4403), it reconnects

const who = {};
const listeners = [];
const watched = new Map(); // "user/job" -> {user, job, id, after, values, take}
let lines = null; // {query, take}
const partsListeners = [];
let socket = null;
let pause = FIRST_PAUSE_MS;
let timer = 0;
let silence = 0;
let refused = 0;
let been = false;
let since = Number(document.body.dataset.begun) || undefined; // when the server began to make the page, in seconds
let leaving = false;

function connect() {
  clearTimeout(timer);
  timer = 0;
  if (leaving) return;
  const address = new URL("/ws/live", location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  const mine = new WebSocket(address);
  let opened = false;
  let steady = 0;
  socket = mine;
  mine.addEventListener("message", (event) => {
    if (mine !== socket) return;
    restartSilenceTimer();
    const message = JSON.parse(event.data);
    if (message.type === "ready") {
      opened = true;
      refused = 0;
      steady = setTimeout(() => { pause = FIRST_PAUSE_MS; }, STEADY_MS);
      connection(who, true);
      send();
      if (been) for (const listener of listeners) listener({ type: "again" });
      been = true;
    } else if (["metrics", "values", "gone"].includes(message.type)) {
      takeMetrics(message);
    } else if (message.type === "lines") {
      lines?.take(message.rows);
    } else if (message.type === "parts") {
      for (const listener of partsListeners) listener();
    } else if (message.type === "missed") {
      for (const listener of listeners) listener({ type: "again" });
    } else if (message.type === "changed") {
      for (const listener of listeners) listener(message);
    }
  });
  mine.addEventListener("close", (event) => {
    clearTimeout(steady);
    clearTimeout(silence);
    if (mine !== socket || leaving) return;
    connection(who, false);
    if (event.code === ENDED) { sessionEnded(); return; }
    if (!opened && ++refused > 1) checkSession();
    timer = setTimeout(connect, pause * (0.75 + 0.5 * Math.random()));
    pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
  });
}

// Checks, after repeated refusals, whether the session has ended: a refused handshake does not tell the reason.
async function checkSession() {
  const answer = await fetch("/account", { method: "HEAD", credentials: "same-origin", redirect: "manual" }).catch(() => null);
  if (answer?.type === "opaqueredirect") { leaving = true; clearTimeout(timer); sessionEnded(); }
}

function restartSilenceTimer() {
  clearTimeout(silence);
  silence = setTimeout(() => socket.close(), SILENCE_MS);
}

function send() {
  if (socket?.readyState !== WebSocket.OPEN) return;
  const watch = [...watched.values()].map(({ user, job, id, after, values }) => ({ kind: "metrics", user, job, id, after, values }));
  if (lines) watch.push({ kind: "lines", query: lines.query });
  const { shownUser, shownKind, shownName } = document.body.dataset; // another user's object, shared with the reader
  if (shownUser) watch.push({ kind: "object", user: shownUser, object: shownKind, name: shownName });
  if (partsListeners.length) watch.unshift({ kind: "parts" });
  const begun = since;
  since = undefined; // sent once: later changes are pushed
  socket.send(JSON.stringify({ watch, begun }));
}

function takeMetrics(message) {
  const one = watched.get(`${message.user}/${message.job}`);
  if (!one) return;
  if (message.type === "metrics") {
    one.id = message.id;
    if (message.reset) one.after = 0;
    if (message.rows.length) one.after = message.rows.at(-1).seq;
  } else if (message.type === "values") {
    one.values = message.last;
  }
  one.take(message);
}

// Calls `take` with each message about the job; returns a function that unsubscribes. `known`: the job's id, and the last
// rows of metrics and of values that the page has, so that only later ones come.
export function watchMetrics(user, job, take, known = {}) {
  const key = `${user}/${job}`;
  watched.set(key, { user, job, id: known.id ?? 0, after: known.metrics ?? 0, values: known.values ?? 0, take });
  send();
  return () => { if (watched.get(key)?.take === take) { watched.delete(key); send(); } };
}

// Calls `take` with the log lines that match `query` (the filters, as in a page's address): the newest ones first, and
// again after a reconnect; then each line when it is stored and when it is classified.
export function watchLines(query, take) {
  lines = { query, take };
  send();
}

// Calls `listener` when the state of a component changes, and once at the beginning. For administrators.
export function watchParts(listener) {
  partsListeners.push(listener);
  send();
}

// Calls `listener` with every `changed` message, and with {type: "again"} after a reconnect.
export function onChange(listener) {
  listeners.push(listener);
}

addEventListener("pagehide", () => { leaving = true; clearTimeout(timer); clearTimeout(silence); socket?.close(); });
addEventListener("pageshow", (event) => { if (event.persisted) { leaving = false; connect(); } });
addEventListener("online", () => { if (timer) { pause = FIRST_PAUSE_MS; connect(); } });
connect();
