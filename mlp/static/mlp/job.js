// A job's page: live metrics, and while the job is active a live log and its resource usage.

import { boardOf } from "./charts/index.js";
import { LiveJob } from "./live.js";
import { Log } from "./log.js";
import { refresh, watch } from "./refresh.js";

const EVERY_MS = 15000; // how often the usage of an active job, its remaining time and its output are fetched

const PROCESSES_MS = 5000; // how often its processes are

const active = () => Boolean(document.querySelector(".page-head [data-unsteady]"));
const shown = document.querySelector("[data-log]"); // a run that a client reports has none
const log = shown && new Log(shown, () => {});

// Loads what the job has used since the last time; its card is there once the job has started.
function used() {
  const box = document.querySelector("[data-usage] [data-charts]");
  if (!box) return;
  const board = boardOf(box);
  for (const run of board.runs) run.live = active();
  board.load();
}

function attach() {
  log?.following(active());
  const processes = document.querySelector("[data-region=processes] [hx-get]:empty"); // of a job that has just started
  if (processes) window.htmx?.process(processes);
}

async function ended() {
  await refresh();
  used();
  log?.following(false);
}

new LiveJob(document.querySelector("[data-live]"), ended);
used();
setInterval(() => { if (active() && !document.hidden) { used(); refresh(); } }, EVERY_MS);
setInterval(() => { if (active() && !document.hidden) document.body.dispatchEvent(new Event("processes")); }, PROCESSES_MS);
watch({ then: attach, jobs: EVERY_MS });
