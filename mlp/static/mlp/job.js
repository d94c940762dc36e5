// A job's page: live metrics, and the log followed while the job works.

import { LiveJob } from "./live.js";
import { Log } from "./log.js";
import { refresh, watch } from "./refresh.js";

const log = new Log(document.querySelector("[data-log]"));

function attach() {
  log.following(Boolean(document.querySelector(".page-head [data-unsteady]")));
}

new LiveJob(document.querySelector("[data-live]"), async () => {
  await refresh();
  log.following(false);
});
watch({ then: attach });
