// One live job: its websocket, its numbers and its chart. Used by index.js and job.js.
//
// Each connection begins with the whole history, so after a reconnect the rows are replaced, never doubled. A normal
// close (1000) means that the job has ended; anything else is tried again, with growing pauses.

import { Chart } from "./chart.js";

const NORMAL = 1000;
const LONGEST_PAUSE_MS = 10000;

export class LiveJob {
  constructor(card, ended) {
    this.card = card;
    this.ended = ended;
    this.chart = new Chart(card.querySelector("[data-chart]"));
    this.pause = 500;
    this.connect();
  }

  connect() {
    const address = new URL(this.card.dataset.socket, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const rows = [];
    const socket = new WebSocket(address);
    socket.addEventListener("open", () => {
      this.pause = 500;
      this.card.querySelector("[data-lost]").hidden = true;
    });
    socket.addEventListener("message", (event) => {
      rows.push(JSON.parse(event.data));
      this.show(rows);
    });
    socket.addEventListener("close", (event) => {
      if (event.code === NORMAL) {
        this.refresh();
        return;
      }
      this.card.querySelector("[data-lost]").hidden = false;
      setTimeout(() => this.connect(), this.pause * (0.7 + 0.6 * Math.random()));
      this.pause = Math.min(LONGEST_PAUSE_MS, this.pause * 2);
    });
    addEventListener("pagehide", () => socket.close(), { once: true });
  }

  show(rows) {
    const row = rows.at(-1);
    const values = { epoch: row.epoch, accuracy: row.accuracy.toFixed(4), loss: row.loss.toFixed(4) };
    if (row.progress >= 0) values.progress = `${row.progress} %`;
    for (const [name, value] of Object.entries(values)) this.card.querySelector(`[data-value="${name}"]`).textContent = value;
    if (row.progress >= 0) this.card.querySelector("[data-progress]").value = row.progress;
    this.setState("running");
    this.chart.set(rows);
  }

  setState(state, words) {
    const label = this.card.querySelector("[data-state]");
    if (label.classList.contains(`state-${state}`)) return;
    label.className = `state state-${state}`;
    label.textContent = words ?? this.card.dataset[state] ?? state;
  }

  // The job has ended: how, says its row.
  async refresh() {
    const { user, job } = this.card.dataset;
    const answer = await fetch(`/api/v1/users/${user}/jobs/${job}`, { credentials: "same-origin" });
    if (!answer.ok) return;
    const row = await answer.json();
    this.setState(row.state);
    this.card.querySelector("[data-progress]").value = row.progress;
    this.card.querySelector('[data-value="progress"]').textContent = `${row.progress} %`;
    this.ended?.(row);
  }
}
