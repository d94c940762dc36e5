// The end of a log on the page of its job or application: a few lines, live while the run is active. The whole log has a
// page of its own (logpage.js).

import { lines } from "./stream.js";
import { nodes } from "./styled.js";

const SHOWN = 8;
const EVERY_S = 10; // between two updates of a log that grows all the time

export class Log {
  // `onData` is called after each update.
  constructor(element, onData = () => {}) {
    this.element = element;
    this.onData = onData;
    this.on = false;
    this.following("follow" in element.dataset);
  }

  // Starts or stops following; a response that is under way still delivers the end of the log.
  following(active) {
    if (active === this.on) return;
    this.on = active;
    const label = document.querySelector("[data-following]");
    if (label) label.hidden = !active;
    this.stream?.last();
    const address = `${this.element.dataset.log}/lines?limit=${SHOWN}`;
    if (active) this.stream = lines(() => `${address}&follow=1&every=${EVERY_S}`, (page) => this.take(page));
    else this.once(address);
  }

  async once(address) {
    const answer = await fetch(address, { credentials: "same-origin" }).catch(() => null);
    if (answer?.ok) this.take(await answer.json(), true);
  }

  take(page, whole = false) {
    if (whole || !this.rows || page.total < this.rows.at(-1)?.line) this.rows = [];
    const first = page.rows[0]?.line ?? Infinity;
    this.rows = [...this.rows.filter((row) => row.line < first), ...page.rows].slice(-SHOWN);
    this.element.replaceChildren(...this.rows.flatMap((row) => [...nodes(row.text, row.styles), "\n"]));
    this.onData();
  }
}
