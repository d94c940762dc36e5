// A log: read from where the page begins to show it, and followed over one answer that lasts while the run works.

import { Terminal } from "./terminal.js";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15000;

export class Log {
  // `heard` is called when something has come.
  constructor(element, heard = () => {}) {
    this.element = element;
    this.heard = heard;
    this.offset = Number(element.dataset.start);
    this.decoder = new TextDecoder();
    this.terminal = null; // the server's own text stays until ours is there
    this.pause = FIRST_PAUSE_MS;
    this.on = "follow" in element.dataset;
    this.mark();
    element.scrollTop = element.scrollHeight;
    addEventListener("pagehide", () => this.stop());
    addEventListener("pageshow", (event) => { if (event.persisted && this.on) this.read(); });
    this.read();
  }

  // While it is not followed any more, the answer that is under way still brings the very end.
  following(is) {
    if (is === this.on) return;
    this.on = is;
    this.mark();
    if (is) this.read();
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
        this.heard();
      }
      if (!this.on) return;
    } catch {
      if (answer.signal.aborted) return;
    }
    // It ended, or broke off: the page says whether the run works on.
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
