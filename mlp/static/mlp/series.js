// A job's own numbers, one chart for each name. Accuracy and loss have a chart of their own. Used by job.js.

import { SeriesCharts } from "./lines.js";

export function seriesOf(card) {
  const { user, job } = card.dataset;
  const address = `/api/v1/users/${user}/jobs/${job}/series?points=800`;
  return new SeriesCharts(card.querySelector("[data-many]"), [{ label: job, address, colour: 0 }], {
    leave: ["accuracy", "loss"],
    then: (names) => { card.hidden = names.length === 0; },
  });
}
