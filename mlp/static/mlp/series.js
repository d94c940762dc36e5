// A job's small charts: its other metrics by name (accuracy and loss have a separate chart), and its resource usage. Used
// by job.js.

import { SeriesCharts } from "./lines.js";

const USED_EVERY_MS = 3000;

export function seriesOf(card) {
  return charts(card, "series", { leave: ["accuracy", "loss"] });
}

// Returns a function that reloads the resource usage, at most every USED_EVERY_MS.
export function usageOf(card) {
  const drawn = charts(card, "usage", { titles: JSON.parse(card.dataset.titles) });
  let timer = 0;
  let last = 0;
  return () => {
    if (timer) return;
    timer = setTimeout(() => { timer = 0; last = Date.now(); drawn.load(); }, Math.max(0, last + USED_EVERY_MS - Date.now()));
  };
}

function charts(card, kind, options) {
  const { user, job } = card.dataset;
  const address = `/api/v1/users/${user}/jobs/${job}/${kind}?points=800`;
  const then = (names) => { card.hidden = names.length === 0; };
  return new SeriesCharts(card.querySelector("[data-many]"), [{ label: job, address, colour: 0 }], { ...options, then });
}
