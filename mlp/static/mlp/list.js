// Lists and the pages of single objects: their states move by themselves.

import { watch } from "./refresh.js";

watch();
