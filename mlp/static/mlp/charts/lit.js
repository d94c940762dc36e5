// The run under the pointer or the focus, in a table, a legend or a chart: all charts of the page draw its lines strongly
// and the others weakly, and its row in the table is marked.

const EVENT = "lit-run";
const NEAR_PX = 24; // from the pointer to a line of a chart
let current = null; // "user/job"

export const keyOf = (run) => `${run.user}/${run.job}`;

export function light(key) {
  if (key === current) return;
  current = key;
  for (const row of document.querySelectorAll("tr[data-run]")) row.classList.toggle("is-lit", row.dataset.run === key);
  document.dispatchEvent(new CustomEvent(EVENT));
}

// Calls the function whenever another run is lit, or none.
export function onLight(redraw) { document.addEventListener(EVENT, redraw); }

// Returns the lines as they are drawn: where one of several runs is lit, that one strongly and last.
export function litLines(lines) {
  const mine = lines.filter((line) => keyOf(line.run) === current);
  if (!mine.length || mine.length === lines.length) return lines;
  const others = lines.filter((line) => !mine.includes(line)).map((line) => ({ ...line, weak: 0.2 }));
  return [...others, ...mine.map((line) => ({ ...line, strong: 1.6 }))];
}

// Returns the points at the cursor of a plot ([line, point], …), those that are nearest to the pointer first, and lights
// the run of the first if it is near.
export function lightNearest(points, plot) {
  const away = ([, point]) => Math.abs(plot.valToPos(point.smooth ?? point.value, "y") - plot.cursor.top);
  const near = points.filter(([, point]) => point.value !== null).sort((one, two) => away(one) - away(two));
  light(near.length && away(near[0]) <= NEAR_PX ? keyOf(near[0][0].run) : null);
  return [...near, ...points.filter(([, point]) => point.value === null)];
}

function pointed(event) {
  const row = event.target.closest?.("tr[data-run]");
  if (row) light(row.dataset.run);
  else if (event.target.closest?.(".runs")) light(null);
}

document.addEventListener("pointerover", pointed);
document.addEventListener("focusin", pointed);
document.addEventListener("pointerout", (event) => {
  if (event.target.closest?.("tr[data-run]") && !event.relatedTarget?.closest?.("tr[data-run]")) light(null);
});
