// A workspace's page: its state, and a live log while it is running or starting.

import { Log } from "./log.js";
import { watch } from "./refresh.js";

const log = new Log(document.querySelector("[data-log]"));

watch({ then: () => log.following(Boolean(document.querySelector("[data-follow-log]"))) });
