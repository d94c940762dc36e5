"""Which values are usual in the lines of a template: a status, a duration, an amount. Learned by the trainer without
labels, and asked by the DRAIN service for each line, whose text alone says nothing about them.

A position of a template, where masking hides a value, is judged if its values in the training lines are numbers of one
unit and regular: few small ones (a set, such as statuses), or a range. What grows (counters, times) and what could be
an identifier is not. Whether it is regular is tried: the values learned from the first seven tenths of the lines must
be usual for the rest, and the last seven tenths for those before. Depends on neither Django nor torch.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from opnilog.masking import VALUES, mask, values_of

from .template_learning import WILD, learn_groups, template_of, words_of

FILE, FORMAT = "values.json", 1
LEAST, LEAST_CONSTANT = (
    50,
    200,
)  # values of a position, below which nothing is learned about it; of one that has always the same but 0
KEPT = 2000  # values of a position in one text; of more, every second, every fourth, …
MAX_TEXTS, MAX_TEMPLATES = 100_000, 10_000
PARSED = 0.98  # share of the values that must be numbers of the same unit
TRIED = 0.7  # share of the lines that is learned to try the rest
ALARMS, TRIED_ALARMS = 0.001, 0.002  # share of the values that may be unusual: of those learned from, of those tried
SET_SHARE = 20  # lines for each different value of a set, at least
SET_BELOW = 1000  # larger whole numbers that are few may be identifiers: of processes, of ports
GROWS = 0.8  # rank correlation with the order of the lines from which a position is one that grows
COUNTS = 0.5  # share of equal steps up from which it counts
FACTOR = 2.0  # of the largest known value, at least, before a larger one is unusual
MAX_SHARE = 0.99  # of the values; as far above the largest of these as that is above the middle, in logarithms
FAR = 2.0  # the ratio of a value that is in no set or has the other sign
BOUNDS = ("low", "high", "least", "most")
SHOWN = 4  # usual values named in an explanation
# Unusual values at a position, and their share of the last WINDOW, after which they are the usual ones.
MUTED_AFTER, MUTED_SHARE, WINDOW = 50, 0.2, 1000

_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)\s*([A-Za-zµμ%]*)")
_AROUND = "[](){}<>'\"`#$~*"
_TIME = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "min": 60.0}
_TIME |= {"h": 3600.0, "hr": 3600.0, "m": 60.0}
_SIZE = {"b": 1.0, "k": 1e3, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_SIZE |= {"kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}
_UNITS = {name: ("s", factor) for name, factor in _TIME.items()} | {
    name: ("B", factor) for name, factor in _SIZE.items()
}
_UNITS |= {"": ("", 1.0), "%": ("%", 1.0)}


class Unusual(NamedTuple):
    """A value that is not usual where it stands."""

    position: int  # in the masked text, in words
    value: str  # as in the line
    usual: str  # a set or range, as shown to people
    ratio: float  # how far away: more than 1


def number_of(value: str) -> tuple[float, str] | None:
    """Return a value of a line as (number, unit): seconds, bytes, % or none; None if it is no number."""
    match = _NUMBER.fullmatch(value.strip(_AROUND).rstrip(".,;:!?"))
    if match is None:
        return None
    unit = _UNITS.get(match[2]) or _UNITS.get(match[2].lower())
    if unit is None:
        return None
    number = float(match[1]) * unit[1]
    return (number, unit[0]) if math.isfinite(number) else None


@dataclass(slots=True)
class Position:
    """The usual values of a position: a set, or those from `low` to `high`; from `least` to `most` none is unusual."""

    unit: str
    values: tuple[float, ...] = ()
    low: float = 0.0
    high: float = 0.0
    least: float = 0.0
    most: float = 0.0
    # what was seen since, to notice that the unusual has become usual
    seen: int = field(default=0, compare=False)
    unusual: int = field(default=0, compare=False)

    @classmethod
    def of(cls, numbers: Sequence[float], unit: str) -> Position | None:
        """Return what is usual among these numbers; None where they could be identifiers, or are not regular.

        One in a thousand may itself be unusual: these are left out.
        """
        counts, few = Counter(numbers), int(len(numbers) * ALARMS)
        if len(numbers) >= SET_SHARE * len(counts):
            small = all(abs(count) < SET_BELOW for count in counts)
            constant = len(counts) == 1 and 0 not in counts
            once = sum(count == 1 for count in counts.values())
            if not small or once > few or (constant and len(numbers) < LEAST_CONSTANT):
                return None
            kept, left = dict(counts), few
            for number, count in sorted(counts.items(), key=lambda item: item[1]):
                if (left := left - count) < 0:
                    break
                del kept[number]
            return cls(unit, tuple(sorted(kept)))
        order = sorted(numbers)[few : len(numbers) - few]
        low, high = order[0], order[-1]
        if low < 0 < high:
            wide = high - low
            return cls(unit, (), low, high, low - wide, high + wide)
        if high <= 0:
            return cls(unit, (), low, high, -_limit([-number for number in reversed(order)]), 0.0)
        return cls(unit, (), low, high, 0.0, _limit(order))

    def ratio(self, number: float) -> float:
        """Return how far a number is from the usual ones: 0 for those that were seen, 1 where it becomes unusual.

        Of a range of sizes a smaller one than ever is no problem, but one of the other sign is.
        """
        if self.values:
            return 0.0 if number in self.values else FAR
        if self.low <= number <= self.high:
            return 0.0
        if self.low < 0 < self.high:
            return max(self.low - number, number - self.high) / (self.high - self.low)
        if number < self.least or number > self.most:
            size, limit = abs(number), max(abs(self.least), abs(self.most))
            return max(1.0 + 1e-9, math.log(size / limit) + 1) if size > limit else FAR
        return 0.0

    def shown(self) -> str:
        """Return the usual values for people: `200, 304`, `0.01 – 0.9 s`."""
        if self.values:
            some = ", ".join(f"{value:g}" for value in self.values[:SHOWN])
            text = f"{some}, …" if len(self.values) > SHOWN else some
        else:
            text = f"{self.low:.4g} – {self.high:.4g}"
        return f"{text} {self.unit}".strip()

    def is_muted(self, number_is_unusual: bool) -> bool:
        """Count a value; return whether unusual ones have come so often that they are the usual ones now."""
        self.seen += 1
        self.unusual += number_is_unusual
        if self.seen > WINDOW:
            self.seen, self.unusual = self.seen // 2, self.unusual // 2
        return self.unusual > MUTED_AFTER and self.unusual > MUTED_SHARE * self.seen

    def saw_usual(self, count: int) -> None:
        """Count so many values that are not unusual."""
        self.seen += count
        while self.seen > WINDOW:
            self.seen, self.unusual = self.seen // 2, self.unusual // 2

    def dump(self) -> dict:
        if self.values:
            return {"unit": self.unit, "values": list(self.values)}
        return {"unit": self.unit, **{name: getattr(self, name) for name in BOUNDS}}

    @classmethod
    def load(cls, row: dict) -> Position:
        numbers = {name: float(row.get(name, 0.0)) for name in BOUNDS}
        return cls(str(row["unit"]), tuple(map(float, row.get("values", ()))), **numbers)


def _limit(order: Sequence[float]) -> float:
    """Return the size above which a value is unusual; order: the known sizes, sorted, none below 0."""
    middle, most, high = order[len(order) // 2], order[int(len(order) * MAX_SHARE)], order[-1]
    scale = middle or most or high
    spread = 2 * math.log1p(most / scale) - math.log1p(middle / scale)
    return max(FACTOR * high, scale * math.expm1(spread))


# --- learning ------------------------------------------------------------------------------------------------------
class Sample:
    """Some of the lines of one text, in order: (workload, number of the line, values)."""

    def __init__(self):
        self.rows: list[tuple[str, int, list[str]]] = []
        self.every, self.count = 1, 0

    def add(self, row: tuple[str, int, list[str]]) -> None:
        if self.count % self.every == 0:
            self.rows.append(row)
        self.count += 1
        if len(self.rows) > KEPT:
            self.rows, self.every = self.rows[::2], self.every * 2


def learn(lines: Iterable[dict]) -> dict:
    """Return what is usual, as JSON. lines: rows with `log`, and `masked_log`, `workload` and `label` if there are."""
    samples: dict[str, Sample] = {}
    for number, row in enumerate(lines):
        text = row.get("log")
        if not text or row.get("label") == "anomaly":
            continue
        masked = row.get("masked_log") or mask(text)
        if masked not in samples and (len(samples) >= MAX_TEXTS or not VALUES.search(masked)):
            continue
        values = values_of(text)
        if len(values) == len(VALUES.findall(masked)):
            samples.setdefault(masked, Sample()).add((str(row.get("workload", "")), number, values))
    templates = []
    for group in learn_groups({masked: sample.count for masked, sample in samples.items()}):
        positions = _positions({masked: samples[masked] for masked in group})
        if positions and len(templates) < MAX_TEMPLATES:
            templates.append({"words": list(template_of(group)), "positions": positions})
    return {"format": FORMAT, "templates": templates}


def _positions(samples: Mapping[str, Sample]) -> dict[str, dict]:
    series: dict[str, list[tuple[str, int, str]]] = defaultdict(list)
    for masked, sample in samples.items():
        places = places_of(masked)
        for workload, number, values in sample.rows:
            for place, value in zip(places, values, strict=True):
                series[place].append((workload, number, value))
    positions = {place: _position([value for _, _, value in sorted(rows)]) for place, rows in series.items()}
    return {place: position.dump() for place, position in positions.items() if position is not None}


def _position(values: Sequence[str]) -> Position | None:
    """Return what is usual among a position's values, which are in order; None where that cannot be said."""
    parsed = [number for value in values if (number := number_of(value)) is not None]
    if len(parsed) < max(LEAST, PARSED * len(values)):
        return None
    unit, most = Counter(unit for _, unit in parsed).most_common(1)[0]
    numbers = [number for number, other in parsed if other == unit]
    if most < max(LEAST, PARSED * len(values)) or _grows(numbers):
        return None
    cut = int(len(numbers) * TRIED)
    unusual = 0
    for learned, tried in ((numbers[:cut], numbers[cut:]), (numbers[-cut:], numbers[:-cut])):
        part = Position.of(learned, unit)
        if part is None:
            return None
        unusual += sum(part.ratio(number) > 1 for number in tried)
    if unusual > TRIED_ALARMS * 2 * (len(numbers) - cut):
        return None
    return Position.of(numbers, unit)


def _grows(numbers: Sequence[float]) -> bool:
    """Tell whether the numbers follow the order of the lines: times, counters."""
    steps = Counter(after - before for before, after in pairwise(numbers) if after > before)
    if steps and max(steps.values()) >= COUNTS * (len(numbers) - 1):
        return True
    ranks = _ranks(numbers)
    middle = (len(numbers) - 1) / 2
    spread = sum((rank - middle) ** 2 for rank in ranks)
    if not spread:
        return False
    full = sum((place - middle) ** 2 for place in range(len(numbers)))
    together = sum((place - middle) * (rank - middle) for place, rank in enumerate(ranks))
    return abs(together) / math.sqrt(spread * full) > GROWS


def _ranks(numbers: Sequence[float]) -> list[float]:
    """Return the rank of each number; equal ones share theirs."""
    places: dict[float, list[int]] = defaultdict(list)
    for place, number in enumerate(numbers):
        places[number].append(place)
    ranks, below = [0.0] * len(numbers), 0
    for number in sorted(places):
        for place in places[number]:
            ranks[place] = below + (len(places[number]) - 1) / 2
        below += len(places[number])
    return ranks


def places_of(masked: str) -> list[str]:
    """Return where each value of a masked text is: `word.number`, the word as templates count words."""
    return [
        f"{at}.{number}" for at, word in enumerate(words_of(masked)) for number, _ in enumerate(VALUES.findall(word))
    ]


def are_usual(line: str, limits: Iterable[tuple[int, Position]]) -> bool:
    """Return whether no value of the line is unusual; limits: those of its text, as UsualValues.limits returns them."""
    values = values_of(line)
    for index, known in limits:
        if index < len(values):
            number = number_of(values[index])
            if number is not None and number[1] == known.unit and known.ratio(number[0]) > 1:
                return False
    return True


# --- judging -------------------------------------------------------------------------------------------------------
class UsualValues:
    """What a model version has learned, asked for each line. Not thread-safe."""

    def __init__(self, learned: dict | None = None, most_texts: int = MAX_TEXTS):
        """Take what `learn` returned. Raises ValueError for anything else."""
        self.by_length: dict[int, list[tuple[tuple[str, ...], dict[str, Position]]]] = defaultdict(list)
        self.texts: OrderedDict[str, list[tuple[int, int, Position]] | None] = OrderedDict()
        self.most_texts = most_texts
        try:
            if learned is not None and learned["format"] != FORMAT:
                raise ValueError(f"format {learned['format']}")
            for row in (learned or {"templates": ()})["templates"]:
                positions = {place: Position.load(position) for place, position in row["positions"].items()}
                self.by_length[len(row["words"])].append((tuple(row["words"]), positions))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not learned values: {error!r}")

    @classmethod
    def open(cls, folder: Path) -> UsualValues:
        """Return those of a model's folder; none where it has no such file. Raises ValueError for a damaged one."""
        try:
            data = (folder / FILE).read_bytes()
        except FileNotFoundError:
            return cls()
        return cls(json.loads(data))

    def limits(self, masked: str, lines: int) -> list[tuple[int, dict]]:
        """Return what `are_usual` needs to judge so many lines of this text elsewhere: (number of the value, what is
        usual) of each judged value. Those lines count as usual; `unusual` is asked about the others.
        """
        judged = self._judged(masked) or ()
        for _index, _position, known in judged:
            known.saw_usual(lines)
        return [(index, known.dump()) for index, _position, known in judged]

    def unusual(self, masked: str, line: str) -> list[Unusual]:
        """Return the values of a line that are not usual, farthest first; [] where nothing is known about them."""
        judged = self._judged(masked)
        if not judged:
            return []
        values = values_of(line)
        result = []
        for index, position, known in judged:
            if index >= len(values) or (number := number_of(values[index])) is None or number[1] != known.unit:
                continue
            ratio = known.ratio(number[0])
            if not known.is_muted(ratio > 1) and ratio > 1:
                result.append(Unusual(position, values[index], known.shown(), ratio))
        return sorted(result, key=lambda value: -value.ratio)

    def _judged(self, masked: str) -> list[tuple[int, int, Position]] | None:
        """Return (number of the value, word of the masked text, what is usual) for each judged value of a text."""
        try:
            judged = self.texts[masked]
        except KeyError:
            judged = self.texts[masked] = self._find(masked) if VALUES.search(masked) else None
            if len(self.texts) > self.most_texts:
                self.texts.popitem(last=False)
        return judged

    def _find(self, masked: str) -> list[tuple[int, int, Position]] | None:
        words = words_of(masked)
        best, most = None, -1
        for template, positions in self.by_length.get(len(words), ()):
            fixed = sum(word != WILD for word in template)
            fits = all(mine in (WILD, other) for mine, other in zip(template, words, strict=True))
            if fits and fixed > most:
                best, most = positions, fixed
        if not best:
            return None
        shown = [at for at, word in enumerate(masked.split()) for _ in VALUES.findall(word)]
        places = places_of(masked)
        return [(index, shown[index], best[place]) for index, place in enumerate(places) if place in best]
