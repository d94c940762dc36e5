// The comparison of jobs: one chart for each metric, one line for each job.

import { SeriesCharts } from "./lines.js";
import { watch } from "./refresh.js";

const box = document.querySelector("[data-compare]");
if (box) {
  const jobs = [...document.querySelectorAll("[data-compared]")].map((one, index) => ({
    label: one.dataset.compared,
    address: `/api/v1/users/${one.dataset.user}/jobs/${one.dataset.compared}/series?points=800`,
    colour: index,
  }));
  const charts = new SeriesCharts(box, jobs, {
    titles: JSON.parse(box.dataset.titles),
    then: (names) => { document.querySelector("[data-no-series]").hidden = names.length > 0; },
  });
  charts.load();
  watch({ then: () => charts.load() });
}
