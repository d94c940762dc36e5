// Draws the lines of a log around the place that is read, of a log of any length.
//
// The place is an anchor: the line at the top edge and how many of its pixels are above the edge. Small movements go by
// pixels over the lines as they are drawn, whose heights differ when they are wrapped; large ones go by the share of the
// scroll bar. The position of the scroll bar is the share of lines above; browsers limit the height of elements, so a pixel of it may be
// more than a line.

import { nodes } from "./styled.js";

const ROW = 20; // pixels of a line that is not wrapped, as in log.css
const TALLEST = 8000000; // pixels
const SPARE = 12; // lines drawn beyond each edge
const IDLE_MS = 150;

export class LogView {
  // `data`: a LogData. `marks`: of a line, {state(line): class names, run(line): words above it, explanation(line): where
  // the verdict of an anomaly is explained}.
  constructor(element, data, marks, words) {
    this.element = element;
    this.data = data;
    this.marks = marks;
    this.words = words;
    this.tall = element.querySelector(".log-tall");
    this.pane = element.querySelector(".log-pane");
    this.line = 1;
    this.above = 0;
    this.end = false; // whether the last line is kept in view
    this.wanted = 0; // the line to show next
    this.heights = new Map();
    this.drawn = new Map(); // number -> {row, state, element}
    this.listeners = [];
    this.time = new Intl.DateTimeFormat(document.documentElement.lang, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 1, hourCycle: "h23" });
    this.day = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium", timeStyle: "long" });
    this.pane.replaceChildren();
    element.classList.add("is-live");
    element.addEventListener("scroll", () => this.scrolled());
    element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    new ResizeObserver(() => { this.heights.clear(); this.later(); }).observe(element);
  }

  get total() { return this.data.total; }
  get room() { return this.element.clientHeight; }
  get track() { return Math.max(1, this.tall.offsetHeight - this.room); }
  get lastTop() { return Math.max(0.001, this.total - Math.max(1, Math.floor(this.room / ROW))); } // the anchor at the end, about
  height(line) { return this.heights.get(line) ?? ROW; }

  // --- moving -----------------------------------------------------------------------------------------------------------
  scrolled() {
    const now = this.element.scrollTop;
    const by = now - (this.top ?? 0);
    if (Math.abs(by) < 1) return;
    this.top = now;
    this.dragged = true;
    this.left();
    if (now <= 0) { this.line = 1; this.above = 0; }
    else if (now >= this.track - 1) { this.end = true; }
    else if (Math.abs(by) < this.room * 1.5) this.shift(by);
    else {
      const place = (now / this.track) * this.lastTop;
      this.line = Math.min(this.total, Math.floor(place) + 1);
      this.above = (place % 1) * this.height(this.line);
    }
    this.later();
  }

  // The wheel goes by pixels of the lines, not by pixels of the scroll bar; at the ends the page scrolls.
  wheel(event) {
    if (event.ctrlKey || event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return;
    const by = event.deltaY * (event.deltaMode === 1 ? ROW : event.deltaMode === 2 ? this.room : 1);
    if (this.moveBy(by)) event.preventDefault();
  }

  // Returns whether there is anything to move to in that direction.
  moveBy(by) {
    if (by < 0 && this.line === 1 && this.above <= 0) return false;
    if (by > 0 && (this.end || this.atEnd)) return false;
    this.left();
    this.shift(by);
    this.later();
    return true;
  }

  left() {
    this.end = false;
    this.wanted = 0;
    for (const listener of this.listeners) listener();
  }

  shift(by) {
    this.above += by;
    while (this.above < 0 && this.line > 1) { this.line -= 1; this.above += this.height(this.line); }
    while (this.above >= this.height(this.line) && this.line < this.total) { this.above -= this.height(this.line); this.line += 1; }
    this.above = Math.max(0, this.above);
  }

  // Shows the line, a third below the edge if it is not in view.
  show(line) {
    const wanted = Math.max(1, line); // beyond the end: a search may know of lines that have not come yet
    this.element.scrollIntoView({ block: "nearest" });
    const box = this.drawn.get(wanted)?.element.getBoundingClientRect();
    const frame = this.element.getBoundingClientRect();
    if (box && box.top >= frame.top && box.bottom <= frame.bottom) { this.later(); return; }
    this.end = false;
    this.wanted = wanted;
    this.later();
  }

  toEnd() {
    this.wanted = 0;
    this.end = true;
    this.later();
  }

  // --- drawing ----------------------------------------------------------------------------------------------------------
  later() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  // Forgets what is drawn: wrapping, or what the lines show, is another.
  redraw(heights = true) {
    if (heights) this.heights.clear();
    this.later();
  }

  draw() {
    this.tall.style.height = `${Math.max(this.room, Math.min(TALLEST, this.total * ROW))}px`;
    this.pane.style.height = `${this.room}px`;
    this.element.toggleAttribute("data-none", this.total === 0);
    if (this.total === 0) { this.pane.replaceChildren(); this.drawn.clear(); return; }
    let before = "";
    for (let tries = 0; tries < 6; tries += 1) { // heights are known once lines are drawn
      this.place();
      this.put();
      if (this.settle()) this.put();
      const now = `${this.line} ${this.above}`;
      if (now === before) break;
      before = now;
    }
    if (this.wanted <= this.total && [...this.drawn.values()].every((one) => one.row)) this.wanted = 0;
    this.atEnd = this.offset(this.total) !== null && this.offset(this.total) + this.height(this.total) <= this.room + 1;
    clearTimeout(this.idle);
    if (this.dragged) this.idle = setTimeout(() => { this.dragged = false; this.align(); }, IDLE_MS);
    else this.align();
  }

  // Puts the anchor where the line that is gone to, or the end, is in view.
  place() {
    if (this.wanted) { this.line = Math.min(this.wanted, this.total); this.above = 0; this.shift(-Math.floor(this.room / 3)); }
    if (this.end || this.line > this.total) { this.line = Math.max(1, this.total); this.above = 0; this.shift(this.height(this.total) - this.room); }
  }

  // Moves back when there is room below the last line, and returns whether it did.
  settle() {
    const last = this.offset(this.total);
    const room = last === null ? 0 : this.room - last - this.height(this.total);
    if (room <= 0.5 || (this.line === 1 && this.above <= 0)) return false;
    this.shift(-room);
    return true;
  }

  // Returns where a drawn line begins below the edge; null for others.
  offset(line) {
    if (!this.drawn.has(line)) return null;
    let at = -this.above;
    for (let number = this.line; number < line; number += 1) at += this.height(number);
    for (let number = this.line - 1; number >= line; number -= 1) at -= this.height(number);
    return at;
  }

  // The scroll bar follows the anchor; while a finger or the mouse moves it, only once they rest.
  align() {
    const place = this.atEnd ? this.track : Math.min(this.track - 1, ((this.line - 1 + this.above / this.height(this.line)) / this.lastTop) * this.track);
    if (Math.abs(place - this.element.scrollTop) < 1) { this.top = this.element.scrollTop; return; }
    this.element.scrollTop = place;
    this.top = this.element.scrollTop;
  }

  put() {
    const first = Math.max(1, this.line - SPARE);
    const wanted = [];
    let below = -this.above;
    let number = first;
    for (; number <= this.total && (below < this.room || number < this.line + SPARE); number += 1) {
      wanted.push(this.element_of(number));
      if (number >= this.line) below += this.height(number);
    }
    for (let more = 0; more < SPARE && number <= this.total; more += 1, number += 1) wanted.push(this.element_of(number));
    const last = number - 1;
    for (const [key, one] of this.drawn) if (key < first || key > last) { one.element.remove(); this.drawn.delete(key); }
    let next = this.pane.firstChild;
    for (const element of wanted) {
      if (element === next) next = next.nextSibling;
      else this.pane.insertBefore(element, next);
    }
    while (next) { const gone = next; next = next.nextSibling; gone.remove(); }
    let start = 0;
    for (let index = 0; index < wanted.length; index += 1) {
      const height = wanted[index].getBoundingClientRect().height;
      this.heights.set(first + index, height);
      if (first + index < this.line) start += height;
    }
    if (this.heights.size > 20000) this.heights.clear();
    this.pane.style.setProperty("--by", `${-start - this.above}px`);
    this.data.need(first, last);
  }

  element_of(number) {
    const row = this.data.row(number);
    const state = `${this.marks.state(number)} ${this.element.classList.contains("has-times")}`;
    const known = this.drawn.get(number);
    if (known && known.row === row && known.state === state) return known.element;
    const element = this.elementFor(number, row);
    if (known) known.element.replaceWith(element);
    this.drawn.set(number, { row, state, element });
    return element;
  }

  elementFor(number, row) {
    const element = document.createElement("div");
    element.className = `log-row ${this.marks.state(number)}`;
    element.dataset.line = number;
    const run = this.marks.run(number);
    if (run) {
      const begins = document.createElement("div");
      begins.className = "begins";
      begins.textContent = run;
      element.append(begins);
    }
    const link = document.createElement("a");
    link.className = "no";
    link.href = `#L${number}`;
    link.textContent = number;
    link.tabIndex = -1;
    link.setAttribute("aria-label", this.words.wordLine.replace("{line}", number));
    element.append(link);
    if (this.element.classList.contains("has-times")) element.append(this.at(row));
    const explained = this.marks.explanation(number);
    if (explained) {
      const odd = document.createElement("a");
      odd.className = "odd";
      odd.href = explained;
      odd.title = this.words.wordAnomaly;
      odd.textContent = "!";
      odd.setAttribute("aria-label", this.words.wordAnomaly);
      element.append(odd);
    }
    const code = document.createElement("code");
    code.append(...(row ? nodes(row.text, row.styles, row.hits) : []));
    if (row?.cut) code.append(this.more(row));
    element.append(code);
    return element;
  }

  at(row) {
    const time = document.createElement("time");
    const at = row?.at ? new Date(row.at) : null;
    if (at) {
      time.dateTime = row.at;
      time.textContent = this.time.format(at);
      time.title = this.day.format(at);
    }
    return time;
  }

  // The rest of a long line is read as plain text, from its place in the log.
  more(row) {
    const link = document.createElement("a");
    link.className = "more";
    link.href = `${this.data.address}?offset=${row.offset}`;
    link.rel = "noopener";
    link.textContent = ` … ${this.words.wordCut.replace("{bytes}", row.cut.toLocaleString(document.documentElement.lang))}`;
    return link;
  }
}
