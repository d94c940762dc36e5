// Renders text as a terminal does: colours, and lines that a carriage return overwrites. Used by log.js.
//
// Complete lines are added to the page once; only the line that is still being written is drawn again. Output is always
// set as text, never as HTML.

const SEQUENCE = /\x1b(?:\[([0-?]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])/g;
const UNFINISHED = /\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*)?$/;
const WEIGHTS = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 9: "strike" };
const ENDS = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 29: ["strike"] };
const LONGEST_LINE = 20000;
const CUBE = [0, 95, 135, 175, 215, 255];

// Returns a colour of the 256-colour table: 16 colours of the theme, a colour cube, a greyscale ramp.
function paint(number) {
  if (number < 16) return { name: number };
  if (number >= 232) { const grey = 8 + 10 * (number - 232); return { rgb: `rgb(${grey} ${grey} ${grey})` }; }
  const at = number - 16;
  return { rgb: `rgb(${CUBE[Math.floor(at / 36)]} ${CUBE[Math.floor(at / 6) % 6]} ${CUBE[at % 6]})` };
}

// Returns the style after `codes`, the numbers of a "select graphic rendition" sequence.
function restyle(style, codes) {
  let now = { ...style };
  const numbers = codes === "" ? [0] : codes.split(/[;:]/).map(Number);
  for (let index = 0; index < numbers.length; index += 1) {
    const code = numbers[index];
    if (code === 0) now = {};
    else if (code in WEIGHTS) now[WEIGHTS[code]] = true;
    else if (code in ENDS) for (const name of ENDS[code]) delete now[name];
    else if (code >= 30 && code <= 37) now.fore = { name: code - 30 };
    else if (code >= 90 && code <= 97) now.fore = { name: code - 82 };
    else if (code === 39) delete now.fore;
    else if (code >= 40 && code <= 47) now.back = { name: code - 40 };
    else if (code >= 100 && code <= 107) now.back = { name: code - 92 };
    else if (code === 49) delete now.back;
    else if (code === 38 || code === 48) {
      const place = code === 38 ? "fore" : "back";
      if (numbers[index + 1] === 5) { now[place] = paint(numbers[index + 2] || 0); index += 2; }
      else if (numbers[index + 1] === 2) { now[place] = { rgb: `rgb(${numbers.slice(index + 2, index + 5).map((one) => one || 0).join(" ")})` }; index += 4; }
    }
  }
  return now;
}

function span(text, style) {
  const plain = Object.keys(style).length === 0;
  if (plain) return document.createTextNode(text);
  const made = document.createElement("span");
  made.textContent = text;
  for (const name of Object.values(WEIGHTS)) if (style[name]) made.classList.add(`t-${name}`);
  if (style.fore?.rgb) made.style.color = style.fore.rgb;
  else if (style.fore) made.classList.add(`t-f${style.fore.name}`);
  if (style.back?.rgb) made.style.backgroundColor = style.back.rgb;
  else if (style.back) made.classList.add(`t-b${style.back.name}`);
  return made;
}

export class Terminal {
  // `most`: the number of lines that the page keeps.
  constructor(element, most = 5000) {
    this.element = element;
    this.most = most;
    this.clear();
  }

  clear() {
    this.element.replaceChildren();
    this.style = {}; // at the beginning of the line that is being written
    this.rest = ""; // that line so far
    this.open = null;
  }

  write(text) {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop();
    if (this.rest.length > LONGEST_LINE) { lines.push(this.rest); this.rest = ""; }
    this.open?.remove();
    const made = document.createDocumentFragment();
    for (const line of lines.slice(0, -this.most)) this.style = this.draw(line.replace(/\r+$/, ""))[1];
    for (const line of lines.slice(-this.most)) made.append(this.line(line, true));
    // Drop text that a carriage return has overwritten: a progress bar may run for hours without a line feed.
    const past = this.rest.lastIndexOf("\r", this.rest.length - 2) + 1;
    if (past > 0) { this.style = this.draw(this.rest.slice(0, past))[1]; this.rest = this.rest.slice(past); }
    const unfinished = this.rest.match(UNFINISHED)?.[0].length ?? 0;
    this.open = this.line(this.rest.slice(0, this.rest.length - unfinished), false);
    made.append(this.open);
    this.element.append(made);
    while (this.element.childElementCount > this.most + 1) this.element.firstElementChild.remove();
  }

  line(text, whole) {
    const made = document.createElement("span");
    made.className = "t-line";
    const [parts, after] = this.draw(text.replace(/\r+$/, ""));
    made.append(...parts);
    if (whole) {
      made.append("\n");
      this.style = after;
    }
    return made;
  }

  // Returns [nodes, the style after them] of a line; text before a carriage return affects the style only.
  draw(text) {
    const from = text.lastIndexOf("\r") + 1;
    let style = this.style;
    let at = 0;
    const parts = [];
    for (const match of text.matchAll(SEQUENCE)) {
      if (match.index > from) parts.push(span(text.slice(Math.max(at, from), match.index), style));
      if (match[2] === "m") style = restyle(style, match[1]);
      at = match.index + match[0].length;
    }
    if (at < text.length) parts.push(span(text.slice(Math.max(at, from)), style));
    return [parts, style];
  }
}
