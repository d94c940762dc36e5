// Parts of hand-drawn SVG plots: elements, round numbers of an axis, and short numbers.

const SPACE = "http://www.w3.org/2000/svg";

export function element(name, attributes, text) {
  const node = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// Returns about `count` round numbers from low to high.
export function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const values = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) values.push(at * step || 0); // never -0
  return values;
}

// Returns a text as far as it fits into so many pixels; ideographs are as wide as two letters.
export function cut(text, width, letter = 7) {
  let used = 0;
  const all = [...text];
  const fits = all.findIndex((sign) => (used += sign.codePointAt(0) > 0x2e7f ? 2 * letter : letter) > width);
  return fits < 0 ? text : `${all.slice(0, Math.max(1, fits - 1)).join("")}…`;
}

// Returns the name of an axis, cut to `width`; the whole is on hover then.
export function nameOf(name, width, attributes) {
  const shown = cut(name, width);
  const label = element("text", { class: "axis-name", ...attributes }, shown);
  if (shown !== name) label.append(element("title", {}, name));
  return label;
}

export function short(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 100000 || size < 0.001)) return value.toExponential(1);
  return String(Number(value.toPrecision(size >= 1 ? 4 : 3)));
}
