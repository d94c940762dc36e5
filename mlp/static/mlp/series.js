// A job's small charts: its own numbers by name (accuracy and loss have a chart of their own), and what it has used.
// Used by job.js.

import { SeriesCharts } from "./lines.js";

const USED_EVERY_MS = 3000; // at most

export function seriesOf(card) {
  return charts(card, "series", { leave: ["accuracy", "loss"] });
}

// Gives a function that says that the job is at work: what it uses is asked for again, but not too often.
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
