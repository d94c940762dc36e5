// A job's page: live metrics, and the log followed while the job works.

import { LiveJob } from "./live.js";

const LOOK_EVERY_MS = 1500;
const log = document.querySelector("[data-log]");
const decoder = new TextDecoder();
let offset = Number(log.dataset.offset);
let over = !("follow" in log.dataset);

async function readLog() {
  const answer = await fetch(`${log.dataset.log}?offset=${offset}`, { credentials: "same-origin" }).catch(() => null);
  if (!answer?.ok) return;
  const bytes = await answer.arrayBuffer();
  if (bytes.byteLength === 0) return;
  offset = Number(answer.headers.get("X-Next-Offset"));
  const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 24;
  log.append(decoder.decode(bytes, { stream: true }));
  if (atEnd) log.scrollTop = log.scrollHeight;
}

async function follow() {
  await readLog();
  if (!over) setTimeout(follow, LOOK_EVERY_MS);
}

for (const card of document.querySelectorAll("[data-live]")) {
  const wasOver = over;
  new LiveJob(card, async () => {
    over = true;
    await readLog();
    if (!wasOver) location.reload(); // its output, reason and buttons have changed
  });
}
log.scrollTop = log.scrollHeight;
if (!over) follow();
