// The operators' overview: its regions follow what changes (refresh.js), the card of the parts what they say (socket.js).

import { watch } from "../refresh.js";
import { watchParts } from "../socket.js";

watch();
watchParts(() => document.dispatchEvent(new CustomEvent("parts-changed")));
