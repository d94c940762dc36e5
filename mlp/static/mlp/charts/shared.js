// What the panels of a page know of one run: fetched once for all of them, with the metrics that they show, and followed
// once while it runs.

import { LiveRun } from "../live.js";
import { Run } from "./runs.js";

const MAX_NAMES = 100; // of one request; with more, all series are fetched
const all = new Map();

export class Shared {
  constructor(given) {
    this.run = new Run(given, 0);
    this.names = new Set();
    this.boards = new Set();
    this.loaded = null; // a promise while or after it was fetched
    this.followed = false;
  }

  // Announces a board with its metrics, before the first one is loaded.
  join(board, names) {
    if (names.some((name) => !this.names.has(name))) this.loaded = null;
    for (const name of names) this.names.add(name);
    if (board) this.boards.add(board);
    for (const one of this.boards) if (!one.box.isConnected) this.boards.delete(one);
  }

  // Gives a board's run the series that all of them share.
  async load(mine) {
    this.loaded ??= this.fetch(Math.max(mine.asked, this.run.asked));
    const good = await this.loaded;
    if (!good) this.loaded = null;
    mine.series = this.run.series;
    mine.after = this.run.after;
    return good;
  }

  async fetch(points) {
    this.run.asked = points;
    const query = new URLSearchParams({ points });
    if (this.names.size <= MAX_NAMES) for (const name of this.names) query.append("name", name);
    try {
      this.run.take(await this.run.get(`points?${query}`));
    } catch { return false; }
    if (this.run.live && !this.followed) {
      this.followed = true;
      new LiveRun({ add: (_, points_) => this.add(points_), load: () => this.again() }, this.run).follow();
    }
    return true;
  }

  // Adds what was just reported, for all boards.
  add(points) {
    const wanted = points.filter(([name]) => this.names.has(name));
    let whole = true;
    for (const point of wanted) whole = this.run.add(...point) && whole;
    if (!whole) this.again();
    else if (wanted.length) for (const board of this.boards) board.later();
  }

  async again() {
    this.loaded = null;
    await Promise.all([...this.boards].filter((board) => board.box.isConnected).map((board) => board.load()));
  }
}

// Returns what the boards of this page share of a run.
export function sharedOf(run) {
  const key = `${run.user}/${run.job}/${run.id}`;
  if (!all.has(key)) all.set(key, new Shared(run));
  return all.get(key);
}
