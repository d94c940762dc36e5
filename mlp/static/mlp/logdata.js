// The lines of a log, fetched as they are needed and kept while they are near; new ones come by a stream while the run is
// active (jobs/log/follow.py).

import { lines as stream } from "./stream.js";

const BLOCK = 200; // lines of one request
const KEPT = 20000; // lines
const AT_ONCE = 500; // new lines of one message; a reader sees no more

export class LogData {
  // `changed(whole)` is called when lines have come: `whole` when the log is another one than before.
  constructor(address, of, total, changed) {
    this.address = address;
    this.of = of; // the beginning of each query: which worker's log it is
    this.total = total;
    this.changed = changed;
    this.rows = new Map(); // number -> row
    this.stale = new Map(); // rows without the hits of the present search, shown until they come again
    this.asked = new Map(); // first line of a block -> when it may be asked again
    this.query = "";
    this.stream = null;
  }

  row(number) {
    return this.rows.get(number) ?? this.stale.get(number);
  }

  // Fetches what is missing of these lines.
  need(from, to) {
    const last = Math.min(to, this.total);
    for (let first = from - ((from - 1) % BLOCK); first <= last; first += BLOCK) {
      for (let number = Math.max(first, from); number <= Math.min(first + BLOCK - 1, last); number += 1) {
        if (!this.rows.has(number)) { this.fetch(first); break; }
      }
    }
  }

  async fetch(first) {
    if ((this.asked.get(first) ?? 0) > Date.now()) return;
    this.asked.set(first, Date.now() + 10000);
    const query = this.query;
    try {
      const answer = await fetch(`${this.address}/lines?${this.of}first=${first}&limit=${BLOCK}${query}`, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(answer.status);
      const page = await answer.json();
      if (query !== this.query) return;
      this.asked.delete(first);
      if (this.stream) page.total = Math.max(page.total, this.total); // an answer that comes late knows fewer lines
      this.take(page);
    } catch {
      this.asked.set(first, Date.now() + 2000);
      setTimeout(() => this.changed(false), 2100); // draws, and so asks again
    }
  }

  take(page) {
    const whole = page.total < this.total;
    if (whole) { this.rows.clear(); this.stale.clear(); }
    this.total = page.total;
    for (const row of page.rows) this.rows.set(row.line, row);
    if (this.rows.size > KEPT) {
      const near = page.rows[0]?.line ?? this.total;
      for (const number of this.rows.keys()) if (Math.abs(number - near) > KEPT / 4) this.rows.delete(number);
    }
    this.changed(whole);
  }

  // Marks the hits of a search from now on: `query` is what the requests get added.
  mark(query) {
    if (query === this.query) return;
    this.query = query;
    for (const [number, row] of this.rows) this.stale.set(number, row);
    this.rows.clear();
    this.asked.clear();
    if (this.stream) this.follow(true);
    this.changed(false);
  }

  // The run has ended: reads what is left of the stream.
  rest() {
    this.stream?.last();
    this.stream = null;
  }

  follow(active) {
    this.stream?.stop();
    this.stream = null;
    if (!active) return;
    this.stream = stream(() => `${this.address}/lines?${this.of}follow=1&limit=${AT_ONCE}&first=${Math.max(1, this.total)}${this.query}`, (page) => this.take(page));
  }
}
