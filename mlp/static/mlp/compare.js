// The comparison of jobs: one chart for each metric, one line for each job; those of running jobs grow.

import { boardOf } from "./charts/index.js";
import { LiveRun } from "./live.js";
import { watch } from "./refresh.js";

const box = document.querySelector("[data-compare] [data-charts]");
if (box) {
  const board = boardOf(box);
  await board.load();
  for (const run of board.runs) if (run.after) new LiveRun(board, run).follow();
}
// What the plots have put into the address since the page was rendered is saved, too.
document.querySelector("form[data-here]")?.addEventListener("submit", (event) => {
  event.target.elements.query.value = location.search.slice(1);
});
watch({ jobs: 60000 });
