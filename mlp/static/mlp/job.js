// A job's page: live metrics, and while the job is active a live log and its resource usage.

import { LiveJob } from "./live.js";
import { Log } from "./log.js";
import { refresh, watch } from "./refresh.js";
import { seriesOf, usageOf } from "./series.js";

const used = usageOf(document.querySelector("[data-usage]"));
const log = new Log(document.querySelector("[data-log]"), used);
const numbers = seriesOf(document.querySelector("[data-series]"));

function attach() {
  numbers.load();
  used();
  log.following(Boolean(document.querySelector(".page-head [data-unsteady]")));
}

async function ended() {
  await refresh();
  log.following(false);
}

new LiveJob(document.querySelector("[data-live]"), ended, used);
numbers.load();
used();
watch({ then: attach });
