// An object's page in the admin: its fields, verbs and history are updated live.

import { watch } from "../refresh.js";

function mark(part) {
  part.querySelectorAll("#content-main .field-line .readonly").forEach((field, number) => { field.dataset.region = `field ${number}`; });
}

watch({ mark, gone: "../../" });
