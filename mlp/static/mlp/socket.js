// The page's one websocket (`/ws/live`, described in mlp/visitors/live.py): what has changed, and the metrics of the jobs shown.
//
// It comes back by itself, with growing pauses; whoever listens is told of that (`again`), to fetch what was missed.

import { connection, sessionEnded } from "./page.js";

const FIRST_PAUSE_MS = 400;
const LONGEST_PAUSE_MS = 15000;
const STEADY_MS = 5000; // a connection that lives this long counts as good, and the pauses begin anew
const SILENCE_MS = 50000; // the server says something every 20 s
const ENDED = 4401; // after any other end, that of other rights (4403) too, it comes back

const who = {};
const listeners = [];
const watched = new Map(); // "user/job" > {user, job, id, after, take}
let lines = null; // {query, take}
const partsListeners = [];
let socket = null;
let pause = FIRST_PAUSE_MS;
let timer = 0;
let silence = 0;
let refused = 0;
let been = false;
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
    listen();
    const message = JSON.parse(event.data);
    if (message.type === "ready") {
      opened = true;
      refused = 0;
      steady = setTimeout(() => { pause = FIRST_PAUSE_MS; }, STEADY_MS);
      connection(who, true);
      send();
      if (been) for (const listener of listeners) listener({ type: "again" });
      been = true;
    } else if (message.type === "metrics" || message.type === "gone") {
      numbers(message);
    } else if (message.type === "lines") {
      lines?.take(message.rows);
    } else if (message.type === "parts") {
      for (const listener of partsListeners) listener();
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
    if (!opened && ++refused > 1) ask();
    timer = setTimeout(connect, pause * (0.75 + 0.5 * Math.random()));
    pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
  });
}

// Refused again and again: perhaps the session has ended, which the handshake does not say.
async function ask() {
  const answer = await fetch("/account", { method: "HEAD", credentials: "same-origin", redirect: "manual" }).catch(() => null);
  if (answer?.type === "opaqueredirect") { leaving = true; clearTimeout(timer); sessionEnded(); }
}

function listen() {
  clearTimeout(silence);
  silence = setTimeout(() => socket.close(), SILENCE_MS);
}

function send() {
  if (socket?.readyState !== WebSocket.OPEN) return;
  const watch = [...watched.values()].map(({ user, job, id, after }) => ({ kind: "metrics", user, job, id, after }));
  if (lines) watch.push({ kind: "lines", query: lines.query });
  if (partsListeners.length) watch.unshift({ kind: "parts" });
  socket.send(JSON.stringify({ watch }));
}

function numbers(message) {
  const one = watched.get(`${message.user}/${message.job}`);
  if (!one) return;
  if (message.type === "metrics") {
    one.id = message.id;
    if (message.reset) one.after = 0;
    if (message.rows.length) one.after = message.rows.at(-1).seq;
  }
  one.take(message);
}

// `take` is given each message of the job; the answer is what to call when it is not of interest any more.
export function watchMetrics(user, job, take) {
  const key = `${user}/${job}`;
  watched.set(key, { user, job, id: 0, after: 0, take });
  send();
  return () => { if (watched.get(key)?.take === take) { watched.delete(key); send(); } };
}

// `take` is given log lines as they come, those that `query` asks for (the filters, as in a page's address): the newest
// when it begins, and again after the connection was lost; then each when it is stored and when it is judged.
export function watchLines(query, take) {
  lines = { query, take };
  send();
}

// For operators: `listener` is called when the platform's parts are different from before, and once at the beginning.
export function watchParts(listener) {
  partsListeners.push(listener);
  send();
}

// `listener` is given every `changed` message, and {type: "again"} when the connection was lost and is back.
export function onChange(listener) {
  listeners.push(listener);
}

addEventListener("pagehide", () => { leaving = true; clearTimeout(timer); clearTimeout(silence); socket?.close(); });
addEventListener("pageshow", (event) => { if (event.persisted) { leaving = false; connect(); } });
addEventListener("online", () => { if (timer) { pause = FIRST_PAUSE_MS; connect(); } });
connect();
