// A series as lines on a chart: where its points are on the x axis, smoothed, and split where attempts begin.

// Returns a function from a time to the epoch at that time, between the reports of the run's own lines.
function epochs(run) {
  const one = run.series.get("loss") ?? run.series.get("accuracy");
  if (!one?.step.length) return null;
  const { time, step } = one;
  return (at) => {
    let [low, high] = [0, time.length - 1];
    if (at <= time[0]) return step[0];
    if (at >= time[high]) return step[high];
    while (high - low > 1) { const middle = (low + high) >> 1; if (time[middle] <= at) low = middle; else high = middle; }
    return step[low] + ((step[high] - step[low]) * (at - time[low])) / (time[high] - time[low] || 1);
  };
}

// Returns a function from (step, time) to the place on the x axis; null when the run has no such axis.
export function axisOf(run, name, x) {
  if (x === "time") return (_, time) => time;
  if (x === "relative") {
    const zero = run.source === "usage" ? null : run.started ?? run.series.get(name)?.time[0] ?? 0;
    return zero === null ? (step) => step : (_, time) => time - zero;
  }
  if (x === "epoch" && name !== "accuracy" && name !== "loss") {
    const at = epochs(run);
    return at && ((_, time) => at(time));
  }
  return (step) => step;
}

// Returns the exponential moving average without the bias to its beginning, over the points that are drawn.
export function smoothed(values, weight) {
  let [last, counted] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    last = last * weight + (1 - weight) * value;
    counted += 1;
    return last / (1 - weight ** counted);
  });
}

// Returns the line of a run's series: {pieces: [{x, y, low, high, smooth, earlier}], bad: [{x, kind, count}], one}.
export function lineOf(run, name, { x, smooth, zoomed }) {
  const one = run.shown(name, zoomed);
  const axis = one && axisOf(run, name, x);
  if (!axis) return null;
  const pieces = [];
  for (let begin = 0; begin < one.step.length;) {
    let end = begin + 1;
    while (end < one.step.length && one.attempt[end] === one.attempt[begin] && one.step[end] >= one.step[end - 1]) end += 1;
    const part = (column) => one[column].slice(begin, end);
    const [steps, times, y] = [part("step"), part("time"), part("value")];
    const piece = { x: steps.map((step, index) => axis(step, times[index])), y, earlier: false };
    if (!one.exact) { piece.low = part("least"); piece.high = part("greatest"); }
    if (smooth > 0 && y.length > 2) piece.smooth = smoothed(y, smooth);
    pieces.push(piece);
    begin = end;
  }
  for (const piece of pieces.slice(0, -1)) piece.earlier = true;
  const bad = one.bad.flatMap(([step, time, , nan, inf, ninf]) => [["nan", nan], ["inf", inf], ["ninf", ninf]]
    .filter(([, count]) => count).map(([kind, count]) => ({ x: axis(step, time), kind, count })));
  return { run, name, pieces, bad, one: run.series.get(name) };
}

// Returns the extent [low, high] of the lines' x.
export function extentX(lines) {
  let [low, high] = [Infinity, -Infinity];
  for (const { pieces, bad } of lines) {
    for (const { x } of pieces) for (const at of x) { if (at < low) low = at; if (at > high) high = at; }
    for (const { x } of bad) { if (x < low) low = x; if (x > high) high = x; }
  }
  return low > high ? null : [low, high];
}

// Returns the extent of the lines' values between two places of the x axis; only positive ones for a logarithmic axis.
export function extentY(lines, [from, to], log) {
  let [low, high] = [Infinity, -Infinity];
  const see = (value) => {
    if (value === null || value === undefined || (log && value <= 0)) return;
    if (value < low) low = value;
    if (value > high) high = value;
  };
  for (const { pieces } of lines) {
    for (const { x, y, low: least = y, high: greatest = y } of pieces) {
      for (let index = 0; index < x.length; index += 1) {
        if (x[index] < from || x[index] > to) continue;
        see(y[index]); see(least[index]); see(greatest[index]);
      }
    }
  }
  return low > high ? null : [low, high];
}

// Returns the point of a line that is nearest to a place on the x axis: {x, value, smooth}; of the last attempt if equal.
export function nearest(line, at) {
  let best = null;
  for (const piece of line.pieces) {
    for (let index = 0; index < piece.x.length; index += 1) {
      const far = Math.abs(piece.x[index] - at);
      if (best === null || far <= best.far) best = { far, x: piece.x[index], value: piece.y[index], smooth: piece.smooth?.[index] };
    }
  }
  return best;
}

// Returns all places of the lines' points, in order: the steps of the arrow keys.
export function places(lines) {
  return [...new Set(lines.flatMap(({ pieces }) => pieces.flatMap(({ x }) => x)))].sort((one, two) => one - two);
}
