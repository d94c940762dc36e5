// The index page: every job that trains now moves by its own websocket.

import { LiveJob } from "./live.js";

for (const card of document.querySelectorAll("[data-live]")) new LiveJob(card);
