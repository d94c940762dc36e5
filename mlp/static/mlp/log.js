// A job's log, read on from where the page ends while the job works. Shown as a terminal would leave it.

const LOOK_EVERY_MS = 1200;
const MOST = 400000; // characters kept on the page
const TERMINAL = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;

export class Log {
  constructor(element) {
    this.element = element;
    this.offset = Number(element.dataset.offset);
    this.decoder = new TextDecoder();
    this.text = element.textContent;
    this.on = false;
    element.scrollTop = element.scrollHeight;
    this.following("follow" in element.dataset);
  }

  // While it is not followed any more, once more to the very end.
  following(is) {
    document.querySelector("[data-following]").hidden = !is;
    if (is === this.on) return;
    this.on = is;
    this.read();
  }

  async read() {
    clearTimeout(this.timer);
    try {
      const answer = await fetch(`${this.element.dataset.log}?offset=${this.offset}`, { credentials: "same-origin" });
      if (answer.ok) this.add(await answer.arrayBuffer(), Number(answer.headers.get("X-Next-Offset")));
    } catch { /* the next look will tell; the page says that the connection is lost */ }
    if (this.on) this.timer = setTimeout(() => this.read(), LOOK_EVERY_MS);
  }

  add(bytes, offset) {
    if (bytes.byteLength === 0) return;
    this.offset = offset;
    const atEnd = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - 30;
    this.text += this.decoder.decode(bytes, { stream: true });
    const last = this.text.lastIndexOf("\n", this.text.length - MOST);
    if (this.text.length > MOST) this.text = this.text.slice(Math.max(last + 1, this.text.length - MOST));
    const lines = this.text.replace(TERMINAL, "").replaceAll("\r\n", "\n").split("\n");
    this.element.textContent = lines.map((line) => line.replace(/\r+$/, "").replace(/^.*\r/, "")).join("\n");
    if (atEnd) this.element.scrollTop = this.element.scrollHeight;
  }
}
