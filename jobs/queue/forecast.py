"""Estimates when queued jobs will start, by simulating the queue with the durations of similar runs.

The duration of a run is that of earlier runs of the same script by the same user, else of this user's runs, else of the
tenant's. For a running job it follows from its progress, else from those earlier durations that are longer than its
age. The simulation runs three times, with short, middle and long durations. Objects without an end time (applications),
and runs with unknown durations, keep their resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from heapq import heappop, heappush
from itertools import count, islice

from django.utils import timezone

from jobs.models import Job, State
from jobs.queue import turns
from jobs.queue.turns import Turns

from .line import Line, QueuedJob, Room, admit, entries_of

LOOKED_BACK = 2000  # finished runs
ALIKE = 50  # the latest of one kind that count
FEWEST = {"script": 1, "user": 3, "tenant": 5}
PLAYED = 100  # jobs from the head of a line; those behind are estimated from the pace
SHARES = (0.1, 0.5, 0.9)
HORIZON_S = 60 * 86400
SPREAD = (0.8, 1.0, 1.5)  # of an estimate from progress


@dataclass(frozen=True)
class Guess:
    """An estimated duration in seconds: short, middle, long; `basis` is its source: "progress", "script", "user" or
    "tenant".
    """

    seconds: tuple[float, float, float]
    basis: str
    runs: int = 0


class Durations:
    """The durations of finished runs, by similarity."""

    def __init__(self) -> None:
        self.known: dict[tuple, list[float]] = {}
        rows = Job.objects.filter(state=State.FINISHED).order_by("-pk")
        columns = rows.values_list("tenant_id", "user_id", "entry", "started", "ended")[:LOOKED_BACK]
        for tenant, user, script, started, ended in columns:
            if started is None or ended is None or ended < started:
                continue
            for key in ((tenant, user, script), (tenant, user), (tenant,)):
                alike = self.known.setdefault(key, [])
                if len(alike) < ALIKE:
                    alike.append((ended - started).total_seconds())

    def guess(self, entry: QueuedJob, age: float = 0.0) -> Guess | None:
        """Return the estimated duration of the job, or its remaining time at that age; None if unknown."""
        key = (entry.tenant_id, entry.user_id, entry.script)
        for basis, length in (("script", 3), ("user", 2), ("tenant", 1)):
            longer = sorted(value - age for value in self.known.get(key[:length], ()) if value > age)
            if len(longer) >= FEWEST[basis]:
                return Guess(_range(longer), basis, len(longer))
        return None


def _range(ordered: list[float]) -> tuple[float, float, float]:
    """Return quantiles of the values. The range is widened for few values."""
    low, middle, high = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in SHARES)
    return (low, middle, high) if len(ordered) >= 5 else (low * 0.8, middle, high * 1.5)


def remaining(job: Job, entry: QueuedJob, known: Durations) -> Guess | None:
    """Return the estimated time until a job that has its resources ends."""
    if job.left_for is not None:
        short, middle, long = (share * job.left_for for share in SPREAD)
        return Guess((short, middle, long), "progress")
    return known.guess(entry, job.ran_for or 0.0)


@dataclass
class Forecast:
    """For a tenant: the estimated starts of its queued jobs and remaining times of its runs, in seconds from `at`."""

    at: object
    starts: dict[int, list[float | None]]
    ends: dict[int, Guess | None]  # of the jobs that hold resources
    bases: dict[int, str]  # of the jobs that are queued


def forecast(tenant_id: int, line: Line) -> Forecast:
    """Return the forecast of the tenant, by simulating its queue."""
    known, now = Durations(), timezone.now()
    running = list(Job.objects.filter(tenant_id=tenant_id, reserved=True).select_related("user"))
    holders = entries_of(Job.objects.filter(tenant_id=tenant_id, reserved=True))
    ends = {job.pk: remaining(job, holders[job.pk], known) for job in running if job.pk in holders}
    heads = set(islice(line.order, PLAYED)) | {
        pk for order in line.limited_order.values() for pk in islice(order, PLAYED)
    }
    queued = entries_of(turns.waiting().filter(pk__in=heads))
    lasts = {pk: known.guess(entry) for pk, entry in queued.items()}
    admitted, served = turns.admitted_counts(), turns.last_starts(entry.user_id for entry in queued.values())
    room = Room()
    starts: dict[int, list[float | None]] = {pk: [None, None, None] for pk in queued}
    for which in range(3):
        play = _Play(which, ends, lasts, {**holders, **queued}, room.fresh(), dict(admitted), dict(served))
        for pk, second in play.run(sorted(queued), now):
            starts[pk][which] = second
    bases = {pk: guess.basis if guess else "" for pk, guess in lasts.items()}
    return Forecast(now, starts, ends, bases)


class _Play:
    """One simulation: with the short, the middle or the long durations."""

    def __init__(self, which, ends, lasts, entries, room, admitted, served):
        self.which, self.lasts, self.entries, self.room = which, lasts, entries, room
        self.admitted, self.served = admitted, served
        self.number = count()
        self.events: list[tuple[float, int, QueuedJob]] = []
        for pk, guess in ends.items():
            self._ends(entries[pk], 0.0, guess)

    def _ends(self, entry: QueuedJob, begun: float, guess: Guess | None) -> None:
        if guess is not None:
            heappush(self.events, (begun + guess.seconds[self.which], next(self.number), entry))

    def run(self, waiting: list[int], now):
        """Yield each job that starts, with the second at which it does."""
        second = 0.0
        while waiting:
            order = Turns([self.entries[pk].queued for pk in waiting], self.admitted, self.served)
            for entry, refusal in admit(order, self.entries, self.room):
                if refusal is None:
                    waiting.remove(entry.pk)
                    self.admitted[entry.user_id] = self.admitted.get(entry.user_id, 0) + 1
                    self.served[entry.user_id] = now + timedelta(seconds=second)
                    self._ends(entry, second, self.lasts.get(entry.pk))
                    yield entry.pk, second
            if not self.events or self.events[0][0] > HORIZON_S:
                return
            second, _number, ended = heappop(self.events)
            self.room.give_back(ended)
            self.admitted[ended.user_id] = max(0, self.admitted.get(ended.user_id, 0) - 1)
