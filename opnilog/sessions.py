"""Sessions (the events of one block, one request, one job's run) that differ from every normal one. Uses no network.

A session is the count of each of its events. The distinct counts of normal sessions are learned; a session's score is
its distance to the nearest of them, in logarithms, so that a fortieth repetition matters less than a second. An event
that normal sessions never have is an anomaly by itself. The threshold comes from sessions held out of the learning, and
never exceeds the distance of one event that appears, or is missing, unlike in all similar sessions.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

FOLDS = 5
ALARMS = 0.001  # share of held-out training sessions allowed above the threshold
FLOOR = math.log(1.1)  # a tenth more of a frequent event
CEILING = math.log(2) - 1e-6  # an event once instead of never
MAX = 20_000  # distinct counts that are kept: the most frequent

Event = Hashable
Counts = frozenset[tuple[Event, int]]


def counts_of(events: Iterable[Event]) -> Counts:
    return frozenset(Counter(events).items())


class Sessions:
    """Learn with `fit`, then call `score` (a distance, 0 for a session like a normal one) or `is_odd`."""

    def __init__(self, alarms: float = ALARMS):
        self.alarms = alarms
        self.threshold = CEILING
        self.events: dict[Event, int] = {}
        self.known: set[Counts] = set()
        self.table = np.zeros((0, 0), dtype=np.float32)

    def fit(self, sessions: Sequence[Iterable[Event]], seed: int = 1) -> Sessions:
        """Learn normal sessions and set the threshold from them. Raises ValueError when there is none."""
        seen = [counts_of(session) for session in sessions]
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
        return self

    def score(self, events: Iterable[Event]) -> float:
        """Return the distance to the nearest normal session; infinite with an event that none of them has."""
        return self._distance(counts_of(events))

    def is_odd(self, events: Iterable[Event]) -> bool:
        return self.score(events) > self.threshold

    def reasons(self, events: Iterable[Event]) -> list[tuple[Event, int, int]]:
        """Return (event, count here, count in the nearest normal session) of each event that
        differs, the worst first.
        """
        counts = Counter(events)
        strange = [(event, times, 0) for event, times in counts.items() if event not in self.events]
        row = self._row(counts.items())
        nearest = np.rint(np.expm1(self.table[np.abs(self.table - row).sum(1).argmin()])).astype(int)
        differs = [
            (event, counts[event], int(nearest[place]))
            for event, place in self.events.items()
            if counts[event] != nearest[place]
        ]
        return strange + sorted(
            differs, key=lambda difference: -abs(math.log1p(difference[1]) - math.log1p(difference[2]))
        )

    def _remember(self, seen: Sequence[Counts]) -> None:
        most = [counts for counts, _ in Counter(seen).most_common(MAX)]
        self.known = set(most)
        self.events = {
            event: place for place, event in enumerate(dict.fromkeys(e for counts in most for e, _ in counts))
        }
        self.table = np.stack([self._row(counts) for counts in most])

    def _row(self, counts: Iterable[tuple[Event, int]]) -> np.ndarray:
        row = np.zeros(len(self.events), dtype=np.float32)
        for event, times in counts:
            if event in self.events:
                row[self.events[event]] = math.log1p(times)
        return row

    def _distance(self, counts: Counts) -> float:
        if counts in self.known:
            return 0.0
        if any(event not in self.events for event, _ in counts):
            return math.inf
        return float(np.abs(self.table - self._row(counts)).sum(1).min())
