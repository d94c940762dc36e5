// The scale of one axis: numbers (linear or logarithmic) or texts (evenly spaced), as places from 0 to 1.

import { short, ticks } from "../charts/svg.js";

const WIDE = 100; // an axis of positive numbers whose largest is this many times the smallest is logarithmic

export const keyOf = (axis) => `${axis.kind}.${axis.name}`;

export class Axis {
  // `axis`: {kind, name, values: [number | text | null, …], better}; null where a run has none.
  constructor(axis, logarithmic) {
    Object.assign(this, axis, { key: keyOf(axis) });
    const known = axis.values.filter((value) => value !== null);
    this.text = known.some((value) => typeof value === "string");
    if (this.text) {
      this.words = [...new Set(known)].sort(new Intl.Collator(undefined, { numeric: true }).compare);
      return;
    }
    this.low = Math.min(...known);
    this.high = Math.max(...known);
    this.mayBeLogarithmic = known.length > 0 && this.low > 0;
    this.logarithmic = this.mayBeLogarithmic && (logarithmic ?? this.high / this.low >= WIDE);
  }

  get empty() { return this.text ? this.words.length === 0 : !Number.isFinite(this.low); }

  // Returns the place of a run's value, null where it has none.
  place(run) {
    const value = this.values[run];
    if (value === null || value === undefined) return null;
    if (this.text) return this.words.length < 2 ? 0.5 : this.words.indexOf(value) / (this.words.length - 1);
    return this.of(value);
  }

  of(value) {
    if (this.high === this.low) return 0.5;
    const scale = this.logarithmic ? Math.log10 : (number) => number;
    return (scale(value) - scale(this.low)) / (scale(this.high) - scale(this.low));
  }

  // Returns about `count` marks as {place, text}.
  marks(count) {
    if (this.text) {
      const every = Math.ceil(this.words.length / (2 * count));
      return this.words.flatMap((text, index) =>
        index % every ? [] : [{ place: this.words.length < 2 ? 0.5 : index / (this.words.length - 1), text }]);
    }
    if (this.high === this.low) return [{ place: 0.5, text: short(this.low) }];
    const values = this.logarithmic ? this.powers(count) : ticks(this.low, this.high, count);
    const ends = values.length < 2 ? [this.low, this.high] : values;
    return ends.map((value) => ({ place: this.of(value), text: short(value) }));
  }

  powers(count) {
    const ticks = [];
    const first = Math.ceil(Math.log10(this.low) - 1e-9);
    const last = Math.floor(Math.log10(this.high) + 1e-9);
    const every = Math.max(1, Math.ceil((last - first + 1) / count));
    for (let power = first; power <= last; power += every) ticks.push(10 ** power);
    return ticks;
  }

  shown(run) {
    const value = this.values[run];
    return typeof value === "number" ? short(value) : value ?? "–";
  }
}
