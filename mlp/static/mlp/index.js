// The index: running jobs are updated by their metrics, the rest is refreshed when something has changed.

import { LiveJob } from "./live.js";
import { refresh, watch } from "./refresh.js";

const live = new Map();

function attach() {
  for (const [card, job] of live) {
    if (!card.isConnected) { job.leave(); live.delete(card); }
  }
  for (const card of document.querySelectorAll("[data-live]")) {
    if (!live.has(card)) live.set(card, new LiveJob(card, () => refresh()));
  }
}

attach();
watch({ then: attach, jobs: 60000 });
