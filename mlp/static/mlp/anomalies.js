// A page's region with the anomalies in the user's logs (`data-anomalies`: the filters). htmx fetches it when the page is
// loaded, and again (the event `anomalies`) when a line has been classified as an anomaly.

import { hydrate } from "./page.js";
import { watchLines } from "./socket.js";

const AGAIN_MS = 1000;
const seen = new Set();
let first = true;
let timer = 0;

function take(rows) {
  const fresh = rows.filter((row) => !seen.has(row.id));
  for (const row of fresh) seen.add(row.id);
  if (!first && fresh.length) timer ||= setTimeout(() => { timer = 0; document.body.dispatchEvent(new Event("anomalies")); }, AGAIN_MS);
  first = false; // the first message has the lines that existed when the page was opened
}

document.addEventListener("htmx:afterSwap", (event) => hydrate(event.target));
const part = document.querySelector("[data-anomalies]");
if (part) watchLines(part.dataset.anomalies, take);
