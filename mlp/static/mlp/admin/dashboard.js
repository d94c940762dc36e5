// The administrators' overview: regions are refreshed after changes (refresh.js), the components' card after changes of
// their state (socket.js).

import { watch } from "../refresh.js";
import { watchParts } from "../socket.js";

watch();
watchParts(() => document.dispatchEvent(new CustomEvent("parts-changed")));
