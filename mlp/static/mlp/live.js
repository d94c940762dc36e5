// A running job's metrics and chart, updated from the page's websocket. Used by index.js and job.js.

import { Chart } from "./chart.js";
import { watchMetrics } from "./socket.js";

export class LiveJob {
  // `ended` is called when the job has ended, `onMessage` with each message.
  constructor(card, ended, onMessage = () => {}) {
    this.card = card;
    this.ended = ended;
    this.onMessage = onMessage;
    this.rows = [];
    this.chart = new Chart(card.querySelector("[data-chart]"));
    const { user, job } = card.dataset;
    this.leave = watchMetrics(user, job, (message) => this.take(message));
  }

  take(message) {
    this.onMessage();
    if (message.type === "gone") { this.ended?.(null); return; }
    if (message.reset) this.rows = [];
    this.rows.push(...message.rows);
    if (this.rows.length) this.show();
    if (message.ended) this.finish();
  }

  // Shows the final state of a job that has ended.
  async finish() {
    this.leave();
    const { user, job } = this.card.dataset;
    const answer = await fetch(`/api/v1/users/${user}/jobs/${job}`, { credentials: "same-origin" }).catch(() => null);
    if (answer?.ok) {
      const row = await answer.json();
      this.setState(row.state === "error" && row.reason?.startsWith("cancelled") ? "cancelled" : row.state);
      this.setProgress(row.progress);
    }
    this.ended?.();
  }

  show() {
    const row = this.rows.at(-1);
    this.card.querySelector("[data-values]").hidden = false;
    this.card.querySelector('[data-value="epoch"]').textContent = row.epoch;
    this.setProgress(row.progress);
    if (this.card.dataset.state === "creating") this.setState("running");
    this.chart.set(this.rows);
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
