// The series of one run: fetched in few buckets, more finely where the reader looks, and extended by what comes live.

const COLUMNS = ["step", "time", "attempt", "value", "least", "greatest"];
const MAX_LIVE = 4; // times the buckets asked for: with more points than that the series is fetched again

// A fetched series; `least` and `greatest` are filled where the server leaves them out.
function columns(one) {
  if (!one.least.length) { one.least = one.value; one.greatest = one.value; one.exact = true; }
  return one;
}

export class Run {
  // {user, job, label, colour, started, live, source, find, limit}: `source` is `points`, or `usage` for what a job used;
  // `find` is a part of the names of the series that are fetched, at most `limit` of them.
  constructor(given, asked) {
    Object.assign(this, given);
    this.asked = asked; // buckets of a series
    this.series = new Map();
    this.finer = new Map(); // name -> {x, from, to, one}: the part that is looked at
    this.after = null;
  }

  get address() { return `/api/v1/users/${this.user}/jobs/${this.job}`; }

  async get(query) {
    const answer = await fetch(`${this.address}/${query}`, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(answer.status);
    return answer.json();
  }

  // Fetches all series. Returns false when that failed: the page shows that the connection is lost.
  async load() {
    if (this.shared) return this.shared.load(this);
    try {
      if (this.source === "usage") return await this.loadUsage();
      const query = new URLSearchParams({ points: this.asked });
      if (this.limit) query.set("limit", this.limit);
      if (this.find) query.set("find", this.find);
      return this.take(await this.get(`points?${query}`));
    } catch { return false; }
  }

  take(all) {
    this.series = new Map(all.map((one) => [one.name, columns(one)]));
    this.after = all[0]?.after ?? { metrics: 0, values: 0 };
    return true;
  }

  // Fetches what was measured after the last sample.
  async loadUsage() {
    const known = Math.min(Infinity, ...[...this.series.values()].map((one) => one.count));
    const more = await this.get(`usage?points=${this.asked}&skip=${Number.isFinite(known) ? known : 0}`);
    for (const one of more) {
      const there = this.series.get(one.name) ?? { name: one.name, bad: [], exact: true, step: [], time: [], attempt: [], value: [] };
      for (const [second, value, attempt] of one.points) {
        there.step.push(second);
        there.time.push((this.started ?? 0) + second);
        there.value.push(value);
        there.attempt.push(attempt);
      }
      there.least = there.greatest = there.value;
      Object.assign(there, { count: one.count, last: there.value.at(-1), last_step: there.step.at(-1), min: one.min, max: one.max });
      this.series.set(one.name, there);
    }
    return true;
  }

  // Fetches a part of a series more finely. Returns whether there is something new to draw.
  async look(name, x, from, to) {
    const one = this.series.get(name);
    if (!one || one.exact || this.source === "usage") return false;
    const known = this.finer.get(name);
    if (known && known.x === x && known.from === from && known.to === to) return false;
    const air = (to - from) / 20; // so that lines go on to the edges
    const query = new URLSearchParams({ name, x, points: this.asked, from: from - air, to: to + air });
    try {
      const [part] = await this.get(`points?${query}`);
      if (part) this.finer.set(name, { x, from, to, one: columns(part) });
      return Boolean(part);
    } catch { return false; }
  }

  // Returns the columns to draw: the finer ones of the part that is looked at.
  shown(name, zoomed) {
    return (zoomed && this.finer.get(name)?.one) || this.series.get(name);
  }

  // Adds a point that has just been reported. Returns false when the series is to be fetched again.
  add(name, step, value, time, attempt) {
    let one = this.series.get(name);
    if (!one) {
      one = columns({ name, count: 0, min: null, max: null, last: null, last_step: null, first_bad: null, bucket: 1, bad: [],
        step: [], time: [], attempt: [], value: [], least: [], greatest: [] });
      this.series.set(name, one);
    }
    const finite = typeof value === "number";
    for (const [column, entry] of [["step", step], ["time", time], ["attempt", attempt], ["value", finite ? value : null]]) one[column].push(entry);
    if (!one.exact) { one.least.push(finite ? value : null); one.greatest.push(finite ? value : null); }
    if (!finite) {
      one.bad.push([step, time, attempt, Number(value === "NaN"), Number(value === "Infinity"), Number(value === "-Infinity")]);
      one.first_bad ??= { step, attempt, value };
    } else {
      one.min = one.min === null ? value : Math.min(one.min, value);
      one.max = one.max === null ? value : Math.max(one.max, value);
    }
    Object.assign(one, { count: one.count + 1, last: value, last_step: step });
    return one.step.length < MAX_LIVE * this.asked;
  }
}

export { COLUMNS };
