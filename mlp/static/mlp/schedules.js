// The list of schedules: the form shows the fields of times or of events, and proposes the browser's time zone. Loaded
// before next_times.js, which reads that zone.

import { watch } from "./refresh.js";

const form = document.querySelector("form[data-schedule]");
if (form) {
  const on = form.querySelector("[data-on]");
  const show = () => {
    for (const field of form.querySelectorAll("[data-of-times]")) field.hidden = on.value !== "";
    for (const field of form.querySelectorAll("[data-of-events]")) field.hidden = on.value === "";
  };
  on.addEventListener("change", show);
  show();
  const zone = form.elements.time_zone;
  if (!zone.value) zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "";
}
watch();
