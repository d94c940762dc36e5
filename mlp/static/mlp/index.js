// The index: every running job moves by its own websocket; the rest is refreshed when something has begun or ended.

import { LiveJob } from "./live.js";
import { refresh, watch } from "./refresh.js";

const live = new Map();

function attach() {
  for (const card of document.querySelectorAll("[data-live]")) {
    if (!live.has(card)) live.set(card, new LiveJob(card, refresh));
  }
}

attach();
watch({ everything: true, then: attach });
