// Lists and the pages of single objects: states are updated live.

import { watch } from "./refresh.js";

watch();
