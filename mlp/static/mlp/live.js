// One live job: its websocket, its numbers and its chart. Used by index.js and job.js.
//
// Each connection begins with the whole history, so after a reconnect the rows are replaced, never doubled. A normal
// close (1000) means that the job has ended; anything else is tried again, with growing pauses.

import { Chart } from "./chart.js";
import { connection } from "./page.js";

const NORMAL = 1000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15000;
const CATCH_UP_MS = 3000;
const STEADY_MS = 5000; // a connection that lives this long counts as good, and the pauses begin anew

export class LiveJob {
  constructor(card, ended) {
    this.card = card;
    this.ended = ended;
    this.chart = new Chart(card.querySelector("[data-chart]"));
    this.pause = FIRST_PAUSE_MS;
    addEventListener("pagehide", () => { this.leaving = true; this.socket?.close(); });
    addEventListener("pageshow", (event) => { if (event.persisted) { this.leaving = false; this.connect(); } });
    addEventListener("online", () => { if (this.timer) this.connect(); });
    this.connect();
  }

  connect() {
    clearTimeout(this.timer);
    this.timer = 0;
    const address = new URL(this.card.dataset.socket, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const rows = [];
    const before = this.count ?? 0; // what is shown already stays until as much has come again
    const begun = Date.now();
    const socket = new WebSocket(address);
    let steady = 0;
    this.socket = socket;
    socket.addEventListener("open", () => {
      steady = setTimeout(() => { this.pause = FIRST_PAUSE_MS; }, STEADY_MS);
      this.lost(false);
    });
    socket.addEventListener("message", (event) => {
      if (socket !== this.socket) return;
      rows.push(JSON.parse(event.data));
      if (rows.length < before && Date.now() - begun < CATCH_UP_MS) return;
      this.count = rows.length;
      this.show(rows);
    });
    socket.addEventListener("close", (event) => {
      clearTimeout(steady);
      if (socket !== this.socket || this.leaving) return;
      if (event.code === NORMAL) {
        if (rows.length) this.show(rows);
        this.finish();
      }
      else this.again();
    });
  }

  // Refused or broken off: perhaps the job is gone, or the session; that is asked before the next try.
  async again() {
    this.lost(true);
    this.timer = setTimeout(() => this.connect(), this.pause * (0.75 + 0.5 * Math.random()));
    this.pause = Math.min(LONGEST_PAUSE_MS, this.pause * 2);
    const row = await this.ask().catch(() => null);
    if (row === "gone") {
      clearTimeout(this.timer);
      this.lost(false);
      this.ended?.(null);
    }
  }

  // The job has ended: how, says its row.
  async finish() {
    this.lost(false);
    const row = await this.ask().catch(() => null);
    if (row === null) { this.again(); return; }
    if (row !== "gone") {
      this.setState(row.state);
      this.setProgress(row.progress);
    }
    this.ended?.(row);
  }

  async ask() {
    const { user, job } = this.card.dataset;
    const answer = await fetch(`/api/v1/users/${user}/jobs/${job}`, { credentials: "same-origin" });
    if (answer.status === 403) return "gone";
    return answer.ok ? answer.json() : null;
  }

  show(rows) {
    const row = rows.at(-1);
    this.card.querySelector("[data-values]").hidden = false;
    this.card.querySelector('[data-value="epoch"]').textContent = row.epoch;
    this.setProgress(row.progress);
    if (this.card.dataset.state === "creating") this.setState("running");
    this.chart.set(rows);
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

  lost(is) {
    this.card.querySelector("[data-lost]").hidden = !is;
    connection(this, !is);
  }
}
