// A log: read from the offset that the page was rendered with, and followed by a streaming response while the run is
// active.

import { Terminal } from "./terminal.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15000;

export class Log {
  // `onData` is called after each chunk.
  constructor(element, onData = () => {}) {
    this.element = element;
    this.onData = onData;
    this.offset = Number(element.dataset.start);
    this.decoder = new TextDecoder();
    this.terminal = null; // the server's text stays until the first chunk arrives
    this.pause = FIRST_PAUSE_MS;
    this.on = "follow" in element.dataset;
    this.mark();
    element.scrollTop = element.scrollHeight;
    addEventListener("pagehide", () => this.stop());
    addEventListener("pageshow", (event) => { if (event.persisted && this.on) this.read(); });
    this.read();
  }

  // Starts or stops following; a response that is under way still delivers the end of the log.
  following(active) {
    if (active === this.on) return;
    this.on = active;
    this.mark();
    if (active) this.read();
  }

  mark() {
    const label = document.querySelector("[data-following]");
    if (label) label.hidden = !this.on;
  }

  stop() {
    clearTimeout(this.timer);
    this.answer?.abort();
  }

  async read() {
    this.stop();
    const answer = new AbortController();
    this.answer = answer;
    try {
      const follow = this.on ? "&follow=1" : "";
      const response = await fetch(`${this.element.dataset.log}?offset=${this.offset}${follow}`, { credentials: "same-origin", signal: answer.signal });
      if (!response.ok) throw new Error(response.status);
      for (let part, reader = response.body.getReader(); !(part = await reader.read()).done;) {
        if (answer.signal.aborted) return;
        this.pause = FIRST_PAUSE_MS;
        this.add(part.value);
        this.onData();
      }
      if (!this.on) return;
    } catch {
      if (answer.signal.aborted) return;
    }
    // The response has ended or failed: read on while the page says that the run is active.
    this.timer = setTimeout(() => { if (this.on) this.read(); }, this.pause);
    this.pause = Math.min(LONGEST_PAUSE_MS, this.pause * 2);
  }

  add(bytes) {
    const atEnd = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - 30;
    if (!this.terminal) this.terminal = new Terminal(this.element);
    this.offset += bytes.byteLength;
    this.terminal.write(this.decoder.decode(bytes, { stream: true }));
    if (atEnd) this.element.scrollTop = this.element.scrollHeight;
  }
}
