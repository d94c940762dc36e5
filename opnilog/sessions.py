"""Sessions (the events of one block, one request, one job's run) that differ from every normal one. Uses no network.

A session is the count of each of its events. The distinct counts of normal sessions are learned; a session's score is
its distance to the nearest of them, in logarithms, so that a fortieth repetition matters less than a second. An event
that normal sessions never have is an anomaly by itself. One that comes more or less often while all others stay as they
are is optional: within the numbers that were seen, a difference of it does not count. The threshold comes from sessions
held out of the learning, and never exceeds the distance of one event that appears, or is missing, unlike in all similar
sessions.

The order: an event whose first line was before another's in all of many normal sessions must be so. How many are enough
is tried on the sessions held out.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # else imported where it is used: services at rest do without its 16 MiB
    import numpy as np

FOLDS = 5
ALARMS = 0.001  # share of held-out training sessions allowed above the threshold
FLOOR = math.log(1.1)  # a tenth more of a frequent event
CEILING = math.log(2) - 1e-6  # an event once instead of never
MAX = 20_000  # distinct counts that are kept: the most frequent
OPTIONAL_SHARE = 0.1  # of the sessions, whose other events also come with another number of an optional event
SUPPORTS = (50, 100, 200, 400, 800, 1600)  # sessions with both events, of which the order of the two is known
MAX_ORDERED = 40  # most frequent events whose order is learned
ORDERED_SESSIONS = 10_000  # from which it is learned
MAX_VARIED = 5000  # most frequent distinct counts, by which it is found out which events are optional

Event = Hashable
Counts = frozenset[tuple[Event, int]]
Pair = tuple[Event, Event]


def counts_of(events: Iterable[Event]) -> Counts:
    return frozenset(Counter(events).items())


class Sessions:
    """Learn with `fit`, then call `score` (a distance, 0 for a session like a normal one) or `is_odd`."""

    def __init__(self, alarms: float = ALARMS, most: int = MAX):
        self.alarms, self.most = alarms, most
        self.threshold = CEILING
        self.events: dict[Event, int] = {}
        self.known: dict[Counts, None] = {}
        self.optional: dict[Event, tuple[int, int]] = {}  # with the least and the most of it in a normal session
        self.ordered: list[Pair] = []  # the first one before the second
        self.odd_share = 0.0  # of the sessions held out of the learning
        self.table: np.ndarray | None = None  # a row for each of the known, a column for each event

    def fit(self, sessions: Sequence[Iterable[Event]], seed: int = 1) -> Sessions:
        """Learn normal sessions, whose events are in order, and set the threshold from them.

        Raises ValueError when there is none.
        """
        rows = [tuple(session) for session in sessions]
        seen = [counts_of(row) for row in rows]
        if not seen:
            raise ValueError("there is no session to learn from")
        order = list(range(len(seen)))
        random.Random(seed).shuffle(order)
        distances: list[float] = []
        for fold in range(FOLDS):
            held_out = [seen[index] for place, index in enumerate(order) if place % FOLDS == fold]
            rest = [seen[index] for place, index in enumerate(order) if place % FOLDS != fold]
            if rest:
                self._remember(rest)
                distances += [self._distance(counts) for counts in held_out]
        self._remember(seen)
        distances.sort(reverse=True)
        quantile = distances[int(self.alarms * len(distances))] if distances else CEILING
        self.threshold = min(CEILING, max(FLOOR, quantile))
        self.odd_share = sum(distance > self.threshold for distance in distances) / len(seen)
        self.ordered = _learn_order([rows[index] for index in order[:ORDERED_SESSIONS]], self.alarms)
        return self

    def score(self, events: Iterable[Event]) -> float:
        """Return the distance to the nearest normal session; infinite with an event that none of them has, and for a
        wrong order.
        """
        row = tuple(events)
        return math.inf if self.misplaced(row) else self._distance(counts_of(row))

    def is_odd(self, events: Iterable[Event]) -> bool:
        return self.score(events) > self.threshold

    def misplaced(self, events: Iterable[Event]) -> list[Pair]:
        """Return (first, second) of the events that come in the wrong order: the second was before the first."""
        first = _firsts(events)
        return [pair for pair in self.ordered if first.get(pair[0], -1) > first.get(pair[1], math.inf)]

    def reasons(self, events: Iterable[Event]) -> list[tuple[Event, int, int]]:
        """Return (event, count here, count in the nearest normal session) of each event that differs and counts, the
        worst first.
        """
        import numpy as np

        counts = Counter(events)
        strange = [(event, times, 0) for event, times in counts.items() if event not in self.events]
        nearest = np.rint(np.expm1(self.table[self._distances(counts.items()).argmin()])).astype(int)
        weights = self._weights(counts)
        differs = [
            (event, counts[event], int(nearest[place]))
            for event, place in self.events.items()
            if counts[event] != nearest[place] and weights[place]
        ]
        return strange + sorted(
            differs, key=lambda difference: -abs(math.log1p(difference[1]) - math.log1p(difference[2]))
        )

    def compared(self, events: Iterable[Event]) -> Hashable:
        """Return what of a session is compared with normal ones: the events that count, how often each comes, and the
        pairs in the wrong order.
        """
        row = tuple(events)
        counts = Counter(row)
        counted = frozenset((event, times) for event, times in counts.items() if not self._is_optional(event, times))
        return counted, frozenset(self.misplaced(row))

    def _is_optional(self, event: Event, times: int) -> bool:
        least, most = self.optional.get(event, (1, 0))
        return least <= times <= most

    def dump(self) -> dict:
        """Return what was learned, as JSON; the events must be strings or numbers."""
        return {
            "threshold": self.threshold,
            "known": [sorted(([event, times] for event, times in counts), key=str) for counts in self.known],
            "optional": [[event, *span] for event, span in self.optional.items()],
            "ordered": self.ordered,
        }

    @classmethod
    def load(cls, state: Mapping) -> Sessions:
        """Return what `dump` returned. Raises ValueError for anything else."""
        made = cls()
        try:
            made._keep([frozenset((event, int(times)) for event, times in row) for row in state["known"]])
            made.threshold = float(state["threshold"])
            made.optional = {event: (int(low), int(high)) for event, low, high in state["optional"]}
            made.ordered = [(first, second) for first, second in state["ordered"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not learned sessions: {error!r}")
        if not made.known:
            raise ValueError("not learned sessions: there is none")
        return made

    def _remember(self, seen: Sequence[Counts]) -> None:
        counted = Counter(seen)
        self.optional = _optional(dict(counted.most_common(MAX_VARIED)))
        self._keep([counts for counts, _ in counted.most_common(self.most)])

    def _keep(self, most: Sequence[Counts]) -> None:
        import numpy as np

        self.known = dict.fromkeys(most)
        events = dict.fromkeys(event for counts in most for event, _ in sorted(counts, key=str))
        self.events = {event: place for place, event in enumerate(events)}
        self.table = np.stack([self._row(counts) for counts in most]) if most else self.table

    def _row(self, counts: Iterable[tuple[Event, int]]) -> np.ndarray:
        import numpy as np

        row = np.zeros(len(self.events), dtype=np.float32)
        for event, times in counts:
            if event in self.events:
                row[self.events[event]] = math.log1p(times)
        return row

    def _distances(self, counts: Iterable[tuple[Event, int]]) -> np.ndarray:
        """Return the distance to each known session."""
        import numpy as np

        here = dict(counts)
        return np.abs(self.table - self._row(here.items())) @ self._weights(here)

    def _weights(self, here: Mapping[Event, int]) -> np.ndarray:
        import numpy as np

        weights = np.ones(len(self.events), dtype=np.float32)
        for event, (least, most) in self.optional.items():
            if event in self.events and least <= here.get(event, 0) <= most:
                weights[self.events[event]] = 0
        return weights

    def _distance(self, counts: Counts) -> float:
        if counts in self.known:
            return 0.0
        if any(event not in self.events for event, _ in counts):
            return math.inf
        return float(self._distances(counts).min())


def _optional(counted: Mapping[Counts, int]) -> dict[Event, tuple[int, int]]:
    """Return the events whose number varies while all others stay as they are, with the least and the most of each."""
    total = sum(counted.values())
    found = {}
    for event in sorted({event for counts in counted for event, _ in counts}, key=str):
        numbers: dict[Counts, set[int]] = defaultdict(set)
        sessions: Counter = Counter()
        for counts, times in counted.items():
            here = next((number for other, number in counts if other == event), 0)
            rest = counts - {(event, here)}
            numbers[rest].add(here)
            sessions[rest] += times
        varied = sum(sessions[rest] for rest, seen in numbers.items() if len(seen) > 1)
        if varied >= OPTIONAL_SHARE * total:
            every = set().union(*numbers.values())
            found[event] = min(every), max(every)
    return found


# --- the order -----------------------------------------------------------------------------------------------------
def _firsts(events: Iterable[Event]) -> dict[Event, int]:
    """Return where each event is first."""
    first: dict[Event, int] = {}
    for place, event in enumerate(events):
        first.setdefault(event, place)
    return first


def _learn_order(rows: Sequence[tuple], alarms: float) -> list[Pair]:
    """Return the pairs of events whose order is steady: the smallest support by which few enough of the sessions held
    out are in another order; none if there is no such support.
    """
    first = [_firsts(row) for row in rows]
    frequent = Counter(event for places in first for event in places)
    kept = {event for event, _ in frequent.most_common(MAX_ORDERED)}
    first = [{event: place for event, place in places.items() if event in kept} for places in first]
    parts = [_pairs(first[fold::FOLDS]) for fold in range(FOLDS)]
    both, before = sum((part[0] for part in parts), Counter()), sum((part[1] for part in parts), Counter())
    for support in SUPPORTS:
        wrong = 0
        for fold, (part, ahead) in enumerate(parts):
            others = {pair: both[pair] - count for pair, count in part.items() if ahead[pair] < count}
            broken = [
                pair for pair, count in others.items() if count >= support and count == before[pair] - ahead[pair]
            ]
            wrong += sum(_is_broken(places, broken) for places in first[fold::FOLDS])
        if wrong <= alarms * len(rows):
            return sorted((pair for pair in both if both[pair] >= support and both[pair] == before[pair]), key=str)
    return []


def _pairs(first: Sequence[dict[Event, int]]) -> tuple[Counter, Counter]:
    """Return in how many sessions two events are, and in how many the first of them is before the second."""
    both: Counter = Counter()
    before: Counter = Counter()
    for places in first:
        order = sorted(places, key=places.__getitem__)
        for place, event in enumerate(order):
            for later in order[place + 1 :]:
                both[event, later] += 1
                both[later, event] += 1
                before[event, later] += 1
    return both, before


def _is_broken(first: Mapping[Event, int], pairs: Iterable[Pair]) -> bool:
    return any(first.get(before, -1) > first.get(after, math.inf) for before, after in pairs)
