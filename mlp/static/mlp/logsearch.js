// The search of a log: the server searches the whole log, a part at a time; the numbers of the lines that match are kept
// here, and go on while new lines come.

const MAX = 200000; // lines that match
const AT_ONCE = 20000;
const TYPING_MS = 250;
const AGAIN_MS = 1000;

export class LogSearch {
  // `onHits()` is called when hits have come; `chosen(query)` when what is searched is another.
  constructor(form, address, of, words, { onHits, chosen, go }) {
    this.form = form;
    this.address = address;
    this.of = of; // the beginning of each query: which worker's log it is
    this.words = words;
    this.call = { onHits, chosen, go };
    this.field = form.querySelector("input");
    this.state = form.querySelector("[data-found]");
    this.hits = [];
    this.query = "";
    this.round = 0;
    this.next = null; // the line to search from
    this.at = 0; // the line that was gone to
    form.hidden = false;
    form.addEventListener("submit", (event) => { event.preventDefault(); this.start(); this.step(1); });
    this.field.addEventListener("input", () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.start(), TYPING_MS); });
    this.field.addEventListener("keydown", (event) => this.key(event));
    for (const name of ["case", "regex"]) {
      const button = form.querySelector(`[data-${name}]`);
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
        this.start();
      });
    }
    form.querySelector("[data-previous]").addEventListener("click", () => this.step(-1));
    form.querySelector("[data-next]").addEventListener("click", () => this.step(1));
  }

  pressed(name) {
    return this.form.querySelector(`[data-${name}]`).getAttribute("aria-pressed") === "true";
  }

  key(event) {
    if (event.key === "Enter" && event.shiftKey) { event.preventDefault(); this.start(); this.step(-1); }
    if (event.key === "Escape" && this.field.value) { event.preventDefault(); this.field.value = ""; this.start(); }
  }

  start() {
    clearTimeout(this.typing);
    const q = this.field.value;
    const query = q && `&q=${encodeURIComponent(q)}${this.pressed("case") ? "&case=1" : ""}${this.pressed("regex") ? "&regex=1" : ""}`;
    if (query === this.query) return;
    this.query = query;
    this.hits = [];
    this.at = 0;
    this.next = query ? 1 : null;
    this.wrong("");
    this.call.onHits();
    if (query) this.run();
    else { this.round += 1; this.call.chosen(""); }
    this.show();
  }

  async run() {
    const round = ++this.round;
    const query = this.query;
    let marked = false;
    while (this.next !== null && this.hits.length < MAX) {
      const from = this.next;
      const answer = await fetch(`${this.address}/search?${this.of}first=${from}&limit=${AT_ONCE}${query}`, { credentials: "same-origin" }).catch(() => null);
      if (round !== this.round) return;
      if (!answer?.ok) { this.wrong(answer?.status === 403 ? (await answer.json()).msg : this.words.wordFailed); return; }
      const page = await answer.json();
      if (round !== this.round) return;
      if (!marked) { marked = true; this.call.chosen(query); }
      while (this.hits.at(-1) >= from) this.hits.pop(); // a line that had not ended
      for (const line of page.lines) this.hits.push(line);
      this.next = page.next;
      this.reached = page.total;
      this.call.onHits();
      this.show();
      if (this.waits) this.step(this.waits);
    }
  }

  // Searches new lines, at most so often; all of them when the log is another one than before. A search may know of lines
  // that the view does not know yet.
  grown(whole) {
    if (whole) { this.restart(); return; }
    if (!this.query || this.next !== null || this.form.querySelector("[aria-invalid]") || this.waiting) return;
    this.waiting = setTimeout(() => {
      this.waiting = 0;
      if (!this.query || this.next !== null) return;
      this.next = Math.max(1, this.reached);
      this.run();
    }, AGAIN_MS);
  }

  restart() {
    this.reached = 0;
    const again = this.query;
    this.query = "";
    if (again) this.start();
  }

  wrong(words) {
    this.field.toggleAttribute("aria-invalid", Boolean(words));
    if (words) { this.field.setAttribute("aria-invalid", "true"); this.state.textContent = words.replace(/^q: /, ""); }
  }

  // The place of the first hit after that line.
  place(line) {
    let [low, high] = [0, this.hits.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.hits[middle] <= line) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // Goes to the next (1) or previous (-1) hit, around the ends.
  step(way) {
    this.waits = 0;
    if (!this.query) return;
    if (!this.hits.length) { if (this.next !== null) this.waits = way; return; }
    const from = this.at || this.call.go(null);
    let place = way > 0 ? this.place(this.at ? from : from - 1) : this.place(from - 1) - 1;
    if (place < 0) place = this.hits.length - 1;
    if (place >= this.hits.length) place = 0;
    this.at = this.hits[place];
    this.call.go(this.at);
    this.show();
  }

  show() {
    if (this.field.hasAttribute("aria-invalid")) return;
    const all = this.hits.length.toLocaleString(document.documentElement.lang) + (this.next !== null ? "+" : "");
    if (!this.query) this.state.textContent = "";
    else if (!this.hits.length) this.state.textContent = this.next === null ? this.words.wordNone : "…";
    else {
      const at = this.at ? this.place(this.at).toLocaleString(document.documentElement.lang) : "–";
      this.state.textContent = this.words.wordHits.replace("{at}", at).replace("{all}", all);
    }
  }
}
