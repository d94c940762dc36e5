// A job's page: live metrics, and the log followed while the job works.

import { LiveJob } from "./live.js";
import { Log } from "./log.js";
import { refresh, watch } from "./refresh.js";
import { seriesOf } from "./series.js";

const log = new Log(document.querySelector("[data-log]"));
const numbers = seriesOf(document.querySelector("[data-series]"));

function attach() {
  numbers.load();
  log.following(Boolean(document.querySelector(".page-head [data-unsteady]")));
}

new LiveJob(document.querySelector("[data-live]"), async () => {
  await refresh();
  log.following(false);
});
numbers.load();
watch({ then: attach });
