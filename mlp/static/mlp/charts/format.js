// Numbers and times as charts show them, in the page's language.

const language = document.documentElement.lang || "en";
const clock = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const parts = new Intl.DateTimeFormat(language, { minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
const minutes = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit" });
const days = new Intl.DateTimeFormat(language, { month: "short", day: "numeric" });
const moments = new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" });

export const UNITS = language.startsWith("zh") ? { d: "天", h: "小时", min: "分钟", s: "秒" } : { d: "d", h: "h", min: "min", s: "s" };

export const TIME_SPACE = 76; // for a mark such as 02:30:15 PM

export const DURATIONS = [1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800,
  21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000];

export const WHOLE = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat(); // steps

// Returns a value with four digits or so, and a count in full.
export function short(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value; // NaN, Infinity, -Infinity
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return size >= 10000 ? value.toLocaleString(language) : String(value);
  if (size !== 0 && (size >= 100000 || size < 0.001)) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

// Returns the number of a tick: 20k, 1.5M, 1e-5.
function tick(value) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size < 1e-4 && size > 0)) return value.toExponential().replace("e+", "e");
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) return `${Number((value / (letter === "k" ? 1e3 : unit)).toPrecision(6))}${letter}`;
  }
  return String(Number(value.toPrecision(6)));
}

// Returns the numbers of ticks, with as many digits as it takes to tell them apart.
export function numbersOf(splits) {
  const known = splits.filter((value) => value !== null);
  const differ = (format) => new Set(known.map(format)).size === new Set(known).size;
  let format = tick;
  for (let digits = 7; digits < 17 && !differ(format); digits += 1) format = (value) => String(Number(value.toPrecision(digits)));
  return splits.map((value) => (value === null ? null : format(value)));
}

// Returns a duration in seconds as 1:02:03, or 1.5 s.
export function duration(seconds) {
  const size = Math.abs(seconds);
  if (size < 60) return `${Number(seconds.toPrecision(4))} ${UNITS.s}`;
  const whole = Math.round(size);
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const text = parts.slice(parts[0] ? 0 : 1).map((part, index) => (index ? String(part).padStart(2, "0") : part)).join(":");
  return seconds < 0 ? `-${text}` : text;
}

// Returns where on the x axis a point is, in words.
export function place(kind, value) {
  if (kind === "time") return moments.format(value * 1000);
  if (kind === "relative") return duration(value);
  return short(Math.round(value * 1000) / 1000);
}

// Returns the texts of an x axis' ticks.
// The marks of a logarithmic axis: powers of ten, and within few decades some between them. uPlot's own never end where
// the axis begins between two powers.
export function logSplits(low, high) {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const decades = Math.log10(high / low);
  const digits = decades < 1 ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : decades < 3 ? [1, 2, 5] : [1];
  const step = Math.max(1, Math.ceil(decades / 8));
  const splits = [];
  for (let power = from; power <= to; power += step) {
    for (const digit of digits) {
      const value = Number(`${digit}e${power}`);
      if (value >= low && value <= high) splits.push(value);
    }
  }
  return splits.length > 1 ? splits : [low, high];
}

export function ticksOf(kind, splits) {
  if (kind === "relative") return splits.map(duration);
  if (kind !== "time") return numbersOf(splits);
  const [span, step] = [splits.at(-1) - splits[0], splits[1] - splits[0]];
  if (span < 2 * 86400) return splits.map((value) => (step < 1 ? parts : step < 60 ? clock : minutes).format(value * 1000));
  const texts = splits.map((value) => days.format(value * 1000));
  return texts.map((text, index) => (text === texts[index - 1] ? minutes.format(splits[index] * 1000) : text));
}

// Fills `%(name)s` of a translated text.
export function fill(text, values) {
  return text.replace(/%\((\w+)\)s/g, (_, name) => values[name] ?? "");
}
