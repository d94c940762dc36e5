// A running job's metrics and charts, updated from the page's websocket. Used by index.js, job.js and compare.js.

import { boardOf } from "./charts/index.js";
import { onChange, watchMetrics } from "./socket.js";

const RELOAD_MS = 3000; // between two loads of series that grow faster than they can be followed

// Keeps one run of a board up to date: loads it, then takes what comes after. `then` is called with each message.
export class LiveRun {
  constructor(board, run, then = () => {}) {
    this.board = board;
    this.run = run;
    this.then = then;
    this.leave = () => {};
  }

  follow() {
    const { user, job, id, after } = this.run;
    this.leave();
    this.leave = watchMetrics(user, job, (message) => this.take(message), { id, ...after });
  }

  take(message) {
    const { run } = this;
    if (message.reset) { // another job of that name
      run.id = message.id;
      run.series.clear();
      run.finer.clear();
      this.board.load().then(() => this.then(message));
      return;
    }
    if (message.type === "metrics") {
      const fresh = message.rows.filter((row) => row.seq > run.after.metrics);
      if (fresh.length) run.after.metrics = fresh.at(-1).seq;
      this.board.add(run, fresh.flatMap((row) => ["accuracy", "loss"].filter((name) => row[name] !== null).map((name) => [name, row.epoch, row[name], row.time, row.attempt])));
    }
    if (message.type === "values") {
      if (message.behind) this.reload();
      else if (message.last > run.after.values) this.board.add(run, message.rows);
      run.after.values = Math.max(run.after.values, message.last);
    }
    this.then(message);
    if (message.ended) this.leave();
  }

  reload() {
    this.waiting ??= setTimeout(async () => { await this.board.load(); this.waiting = null; }, RELOAD_MS);
  }
}

export class LiveJob {
  // `ended` is called when the job has ended, `onMessage` with each message.
  constructor(card, ended, onMessage = () => {}) {
    this.card = card;
    this.ended = ended;
    this.onMessage = onMessage;
    this.board = boardOf(card.querySelector("[data-charts]"));
    this.live = new LiveRun(this.board, this.board.runs[0], (message) => this.take(message));
    this.stopped = false;
    onChange((message) => {
      const { kind, mine, name, progress } = message;
      if (kind === "job" && mine && name === card.dataset.job && progress !== undefined && progress !== null && !this.stopped) this.setProgress(progress);
    });
    this.begin();
  }

  async begin() {
    await this.board.load();
    this.show();
    if (!this.stopped) this.live.follow();
  }

  leave() {
    this.stopped = true;
    this.live.leave();
  }

  take(message) {
    this.onMessage(message);
    if (message.type === "gone") { this.ended?.(null); return; }
    const row = message.rows?.at(-1);
    if (message.type === "metrics" && row) {
      this.setProgress(row.progress);
      if (this.card.dataset.state === "creating") this.setState("running");
    }
    this.show();
    if (message.ended) this.finish();
  }

  // Shows the final state of a job that has ended.
  async finish() {
    this.leave();
    const { user, job } = this.card.dataset;
    const answer = await fetch(`/api/v1/users/${user}/jobs/${job}`, { credentials: "same-origin" }).catch(() => null);
    if (answer?.ok) {
      const row = await answer.json();
      this.setState(row.state === "error" && ["cancelled", "pruned"].includes(row.outcome) ? row.outcome : row.state);
      this.setProgress(row.progress);
      if (row.outcome === "pruned") for (const part of this.card.querySelectorAll("[data-progress], [data-progress-words]")) part.hidden = true;
    }
    this.ended?.();
  }

  show() {
    const one = this.board.runs[0].series.get("loss") ?? this.board.runs[0].series.get("accuracy");
    if (!one?.count) return;
    this.card.querySelector("[data-values]").hidden = false;
    this.card.querySelector('[data-values] [data-value="epoch"]').textContent = one.last_step;
  }

  setProgress(progress) {
    if (progress < 0) return;
    this.card.querySelector("[data-progress]").value = progress;
    this.card.querySelector("[data-progress-words]").textContent = `${progress} %`;
  }

  setState(state) {
    this.card.dataset.state = state;
    const label = this.card.querySelector("[data-state]");
    if (!label) return;
    label.className = `state state-${state}`;
    label.textContent = this.card.dataset[`word${state[0].toUpperCase()}${state.slice(1)}`] ?? state;
  }
}
