"""How often a template usually comes in a workload's log: learned from counts by minute, in bounded memory.

Two things are learned. The *windows*: the most lines in WINDOW minutes, of which the highest usual one says what is too
often. What is learned of them today counts from tomorrow on, so that slow growth does not become usual as it goes; of
the first two days, at once. The *gaps*: minutes from one minute with the template to the next, of which the longest
usual one says when it is silent. Gaps are counted in active minutes of the workload, those in which it has any line: a
workload that is down, or a job that has ended, does not make its templates silent.

Both are kept as counts by logarithmic class. They are halved when there are many, so that old ones lose their weight.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field

from . import usual_hours

WINDOW = 5  # minutes
DAY = 1440  # minutes
EXACT = 16  # up to here each number is a class of its own; above, four classes for a factor of two
LEAST_WINDOWS = 12  # of active minutes, before anything is too often
LEAST_LINES = 10  # in a window; fewer are never too often
FACTOR, DEVIATIONS = 2.0, 3.0  # too often: above FACTOR times the highest usual number and so many of its deviations
LEAST_GAPS, LEAST_ACTIVE = 20, 60  # before a template can be silent: gaps; active minutes in which it came
REGULAR = 6.0  # a template is regular whose longest usual gap is at most so many times its median
GAPS, SPARE = 3, 2  # silent: for so many of the longest usual gaps, and some minutes more
YOUNG = 30  # minutes that a template of less than a day is silent for at least (a tenth of its age, if that is less)
MAX_WEIGHT = 4032  # windows of two weeks
FORGOTTEN = 0.2  # classes with less weight are dropped
MAX_BEFORE, BEFORE_DAYS, NEAR = 8, 15, 90  # remembered episodes; minutes of the day between two that are alike
ALIKE = 1.5
COUNTS = ("windows", "fresh", "gaps")


def class_of(number: int) -> int:
    """Return the class of a number of at least 0."""
    return number if number < EXACT else EXACT + int(4 * math.log2(number / EXACT) + 1e-9)


def top_of(kind: int) -> int:
    """Return the highest number of a class."""
    return kind if kind < EXACT else math.ceil(EXACT * 2 ** ((kind - EXACT + 1) / 4)) - 1


@dataclass
class Usual:
    """What is usual of one template. `first` and `last`: active minutes in which it came first and last.

    `began`: the minute in which it came first; its days begin there. `recent`: [minute, lines] within the last WINDOW
    minutes. `open`: [number of a window, most lines in it so far]. `fresh`: the windows of day `day`. `before`:
    [minute, lines] of earlier episodes; of silences the negative number of active minutes. `loud`: usual_hours.
    """

    first: int
    last: int
    began: int
    day: int = 0
    recent: list[list[int]] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    windows: dict[int, float] = field(default_factory=dict)
    fresh: dict[int, float] = field(default_factory=dict)
    gaps: dict[int, float] = field(default_factory=dict)
    before: list[list[int]] = field(default_factory=list)
    loud: usual_hours.Loud = field(default_factory=list)

    @classmethod
    def of(cls, state: dict) -> Usual:
        """Return it as it was dumped."""
        counts = {name: {int(kind): weight for kind, weight in state[name].items()} for name in COUNTS}
        return cls(**{**state, **counts})

    def dump(self) -> dict:
        return asdict(self)

    # --- counting --------------------------------------------------------------------------------------------------
    def add(self, minute: int, lines: int, active: int, *, learn: bool) -> None:
        """Count the lines of a minute, which is the workload's active minute of that number. Without `learn` neither
        the gap nor the window becomes usual.
        """
        self.recent = [*(entry for entry in self.recent if minute - WINDOW < entry[0] < minute), [minute, lines]]
        self.close(minute)
        if learn:
            if active > self.last:
                _count(self.gaps, class_of(active - self.last))
            most = max(self.within(minute), self.open[1] if self.open else 0)
            self.open = [minute // WINDOW, most]
        self.last = active

    def close(self, minute: int) -> None:
        """Let the open window become usual, if it is over at that minute."""
        if self.open and self.open[0] < minute // WINDOW:
            _count(self.fresh, class_of(self.open[1]))
            self.open = []
        day = (minute - self.began) // DAY
        if day != self.day:
            for kind, weight in self.fresh.items():
                _count(self.windows, kind, weight)
            self.day, self.fresh = day, {}

    def _settled(self) -> dict[int, float]:
        """Return the windows that say what is usual."""
        if self.day >= 2 and self.windows:
            return self.windows
        return {kind: self.windows.get(kind, 0) + self.fresh.get(kind, 0) for kind in self.windows | self.fresh}

    def within(self, minute: int) -> int:
        """Return the lines in the WINDOW minutes that end with this one."""
        return sum(lines for at, lines in self.recent if minute - WINDOW < at <= minute)

    def since(self, minute: int, most: int) -> int:
        """Return the last minute from which on there are more than `most` lines up to this one."""
        begins = [at for at, _lines in self.recent]
        return max(at for at in begins if sum(lines for other, lines in self.recent if other >= at) > most)

    # --- too often -------------------------------------------------------------------------------------------------
    def seen(self, active: int) -> int:
        """Return the number of windows since the template came first, those without it among them."""
        return (active - self.first) // WINDOW

    def range(self, active: int) -> tuple[int, int]:
        """Return the fewest and the most lines that usually come in a window; of the lowest, one in 20 is left out."""
        windows = self._settled()
        if not windows:
            return 0, 0
        weight = sum(windows.values())
        empty = max(0.0, self.seen(active) - sum(self.windows.values()) - sum(self.fresh.values()))
        left, low = (weight + empty) / 20 - empty, 0
        for kind in sorted(windows):
            if left < 0:
                break
            low, left = (kind if kind < EXACT else top_of(kind - 1) + 1), left - windows[kind]
        return low, top_of(max(windows))

    def most(self, active: int) -> int | None:
        """Return above how many lines in a window the template comes too often; None while that is not known."""
        if self.seen(active) < LEAST_WINDOWS or not self._settled():
            return None
        _low, high = self.range(active)
        return limit_of(high)

    def be_loud(self, minute: int, lines: int) -> None:
        """Keep in mind that more lines than usual came in the window that ends with this minute. They do not become
        usual, except at this time of the day or week.
        """
        self.open = []
        self.loud = usual_hours.add(self.loud, minute // 60, lines)

    def high_at(self, minute: int) -> int:
        """Return the most lines that are usual in a window at this time of the day or week, where these are more than
        at other times; else 0.
        """
        return usual_hours.high(self.loud, minute // 60)

    def was_before(self, minute: int, amount: int) -> bool:
        """Return whether an earlier day had such an episode at that time of the day: a nightly job is reported once.

        amount: lines in a window, or the negative number of minutes without any.
        """
        return any(
            (amount < 0) == (other < 0)
            and DAY - NEAR <= minute - at <= BEFORE_DAYS * DAY
            and abs((minute - at + DAY // 2) % DAY - DAY // 2) <= NEAR
            and abs(amount) <= ALIKE * abs(other)
            for at, other in self.before
        )

    def accept(self, lines: int) -> None:
        """Let so many lines in a window be usual."""
        self.windows[class_of(lines)] = 1

    def remember(self, minute: int, amount: int) -> None:
        self.before = [*self.before, [minute, amount]][-MAX_BEFORE:]

    # --- silent ----------------------------------------------------------------------------------------------------
    def is_usual_pause(self, minute: int, active: int) -> bool:
        """Return whether the template was silent until now as on an earlier day; `minute` is that of its last line."""
        at = self.silent_at()
        return at is not None and at <= active and self.was_before(minute, self.last - active)

    def rest(self) -> None:
        """Forget how regularly the template came: it does not come any more. It is silent no more until it has come
        regularly again.
        """
        self.gaps = {}

    def longest_gap(self) -> int:
        """Return the longest usual gap, in active minutes."""
        return top_of(max(self.gaps)) if self.gaps else 0

    def silent_at(self) -> int | None:
        """Return the active minute at which the template is silent if it does not come; None if it is not regular."""
        age, weight = self.last - self.first, sum(self.gaps.values())
        if age < LEAST_ACTIVE or weight < LEAST_GAPS or self.longest_gap() > REGULAR * self._median_gap(weight):
            return None
        wait = GAPS * self.longest_gap() + SPARE
        return self.last + (wait if age >= DAY else max(wait, min(YOUNG, age // 10)))

    def _median_gap(self, weight: float) -> int:
        for kind in sorted(self.gaps):
            weight -= 2 * self.gaps[kind]
            if weight <= 0:
                return top_of(kind)
        return 0


def limit_of(high: int) -> int:
    """Return above how many lines in a window there are too many, where so many are usual at most."""
    return max(LEAST_LINES - 1, int(FACTOR * high + DEVIATIONS * math.sqrt(high)))


def _count(counts: dict[int, float], kind: int, weight: float = 1) -> None:
    counts[kind] = counts.get(kind, 0) + weight
    if sum(counts.values()) > MAX_WEIGHT:
        for other, its in list(counts.items()):
            counts[other] = round(its / 2, 3)
            if counts[other] < FORGOTTEN:
                del counts[other]
