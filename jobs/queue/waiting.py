"""Why a queued job waits, for its page, the list and REST. Other users' jobs have names for administrators only.

A reader of a shared job gets its place in the line, why it waits in general, and when it will probably start: neither
a name nor what the tenant has in use.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.core.cache import cache

from jobs.models import Job, State
from jobs.queue import turns
from kernel import after_commit
from kernel.messages import Message, joined
from resources.units import zero

from . import forecast as forecasts
from .holders import NAMED, RUN_KINDS, Holder, amounts_text, holders_of
from .line import Line, QueuedJob, Stop, entries_of, lines
from .line import mark as line_mark

log = logging.getLogger(__name__)

NOTIFIED = 200  # users at once
KEPT_S = 60
FRESH_S = 3
SHARE = 20


@dataclass
class Ahead:
    """The jobs ahead: the user's own by name, others by number."""

    own: list[str] = field(default_factory=list)
    others: int = 0
    named: list[str] = field(default_factory=list)  # others', for administrators: user/job


@dataclass
class Blocker:
    """The first job in the queue, if it is another one: no job behind it starts earlier."""

    needs: dict
    missing: dict
    own: bool
    name: str = ""  # empty for another user's job
    user: str = ""


@dataclass
class Starts:
    """The estimated start. `basis` is what it is estimated from, `sure` how reliable it is."""

    earliest: datetime | None = None
    likely: datetime | None = None
    latest: datetime | None = None
    sure: str = "unknown"  # good, rough or unknown
    basis: str = ""


@dataclass
class Waiting:
    """Why a queued job waits, for its page and for REST."""

    position: int
    length: int
    needs: dict
    free: dict
    missing: dict
    reason: str
    by_limit: bool
    ahead: Ahead
    blocker: Blocker | None
    holders: list[Holder]
    largest: dict | None
    starts: Starts

    @property
    def needs_text(self) -> str:
        return amounts_text(self.needs)

    @property
    def missing_text(self) -> str:
        return amounts_text(self.missing)

    @property
    def largest_text(self) -> str:
        return amounts_text(self.largest, every=True) if self.largest else ""


def is_queued(job: Job) -> bool:
    return job.state == State.CREATING and not job.reserved


def brief(jobs: list[Job]) -> dict[int, tuple[int, str]]:
    """Return the position and the reason of each queued job among the rows of a list, by its key."""
    queued = [job for job in jobs if is_queued(job)]
    if not queued:
        return {}
    line_of, entries = lines(), entries_of(Job.objects.filter(pk__in=[job.pk for job in queued]))
    said = {}
    for job in queued:
        line, entry = line_of.get(job.tenant_id), entries.get(job.pk)
        if line is not None and entry is not None:
            place = _place(line, entry)
            if place is not None:
                explain_one = _reason if job.reading is None else _reason_for_reader
                said[job.pk] = (place[0], explain_one(line, entry))
    return said


def give_reasons(jobs: list[Job]) -> None:
    """Set the reason of each queued job to why it waits, for an answer; nothing is saved."""
    said = brief(jobs)
    for job in jobs:
        if job.pk in said:
            job.reason = said[job.pk][1]


_announced: list = []


def announce() -> None:
    """Notify the pages of users with queued jobs when the queue or the resources in use have changed.

    Called by `reconcile` in each round, in its one process.
    """
    mark = line_mark()
    if mark == _announced:
        return
    _announced[:] = mark
    owners = turns.waiting().order_by().values_list("user__username", flat=True).distinct()
    for owner in owners[:NOTIFIED]:
        after_commit.changed(owner, "job", "", moving=True)


def attach(jobs: list[Job]) -> None:
    """Set `place`, a short reason for waiting, on each queued job of a list."""
    said = brief(jobs)
    for job in jobs:
        if job.pk in said:
            position, reason = said[job.pk]
            job.place = Message("Position %(position)s. %(reason)s", position=position, reason=reason)


def explain(job: Job, *, all_names: bool = False) -> Waiting | None:
    """Return why the job waits, with what the visitor of `job.reading` may see; None if it does not wait."""
    if not is_queued(job):
        return None
    line = lines().get(job.tenant_id)
    entry = entries_of(Job.objects.filter(pk=job.pk)).get(job.pk)
    place = line and entry and _place(line, entry)
    if not place:
        return None
    position, length, ahead = place
    stop = _stop(line, entry)
    limited = stop is not None and stop.by_limit
    is_first = stop is not None and stop.first.pk == entry.pk
    missing = _missing(stop) if stop else {}
    seen = _forecast(job.tenant_id, line)
    if job.reading is not None and not all_names:
        return _for_reader(line, entry, position, length, len(ahead), seen)
    return Waiting(
        position=position,
        length=length,
        needs=_run_kinds(entry.needs),
        free=_run_kinds(stop.left) if stop else {},
        missing=missing,
        reason=_being_freed(entry)
        or (_reason(line, entry) if job.reading is None else _reason_for_reader(line, entry)),
        by_limit=limited,
        ahead=_ahead(entry, ahead, all_names),
        blocker=None if stop is None or is_first else _blocker(stop, entry, missing, all_names),
        holders=holders_of(entry.tenant_id, entry.user, missing, limited, _ends(seen), all_names),
        largest=_run_kinds(stop.left) if is_first and any(_run_kinds(stop.left).values()) else None,
        starts=_starts(entry, line, position, seen),
    )


def _for_reader(
    line: Line, entry: QueuedJob, position: int, length: int, ahead: int, seen: forecasts.Forecast
) -> Waiting:
    """Return what a reader may know."""
    return Waiting(
        position=position, length=length, needs=_run_kinds(entry.needs), free={}, missing={},
        reason=_reason_for_reader(line, entry), by_limit=False, ahead=Ahead(others=ahead), blocker=None, holders=[],
        largest=None, starts=_starts(entry, line, position, seen),
    )  # fmt: skip


def _reason_for_reader(line: Line, entry: QueuedJob) -> Message:
    """Return in one sentence why another user's job does not start now."""
    if entry.pk in line.lacking:
        return Message("Not enough is free.")
    stop = _stop(line, entry)
    if stop is None:
        return Message("It is about to start.")
    if stop.first.pk != entry.pk:
        return Message("Queued behind another job, which is first in the queue.")
    return Message("Its owner's limit leaves too little.") if stop.by_limit else Message("Not enough is free.")


def _place(line: Line, entry: QueuedJob) -> tuple[int, int, list[int]] | None:
    """Return (position from 1, length of the queue, the jobs ahead); None if the job has just left the queue.

    A user at the own limit has a separate queue, since other users' jobs pass.
    """
    order = line.limited_order.get(entry.user_id, [])
    if entry.pk not in order:
        order = line.order
    try:
        index = order.index(entry.pk)
    except ValueError:
        return None
    return index + 1, len(order), list(order[:index])


def _stop(line: Line, entry: QueuedJob) -> Stop | None:
    if entry.pk in line.fits or entry.pk in line.lacking:
        return None
    return line.limited.get(entry.user_id) or line.stop


def _reason(line: Line, entry: QueuedJob) -> Message:
    """Return in one sentence why the job does not start now."""
    if entry.pk in line.lacking:
        return Message("Not enough free resources: %(short)s.", short=line.lacking[entry.pk])
    stop = _stop(line, entry)
    if stop is None:
        return Message("It is about to start.")
    if stop.full is not None:
        return stop.full
    short = joined((_short(kind, stop) for kind in _missing(stop)), "; ")
    if stop.first.pk == entry.pk:
        return (
            Message("Exceeds what is left of your limit: %(short)s.", short=short)
            if stop.by_limit
            else Message("Not enough free resources: %(short)s.", short=short)
        )
    if stop.first.user_id == entry.user_id:
        return Message("Queued behind your job %(name)s: %(short)s.", name=stop.first.name, short=short)
    return Message("Queued behind another user's job, which is first in the queue: %(short)s.", short=short)


def _being_freed(entry: QueuedJob) -> Message | None:
    """Return that other jobs are giving their resources to this one; None if none are."""
    if not entry.has_preempted:  # the queue, which has been read, knows that none do
        return None
    stepping = Job.objects.filter(preempted_for=entry.pk, state=State.RUNNING, stepping_back__isnull=False)
    return Message("Preemptible jobs are being stopped for it.") if stepping.exists() else None


def _short(kind: str, stop: Stop) -> Message:
    needs, left = stop.first.needs[kind], stop.left[kind]
    if kind in stop.limits and left == max(stop.limits[kind][1] - stop.limits[kind][0], zero(kind)):
        used, most = (amounts_text({kind: value}, every=True) for value in stop.limits[kind])
        return Message(
            "needs %(needs)s, %(used)s of a limit of %(limit)s in use",
            needs=amounts_text({kind: needs}), used=used, limit=most,
        )  # fmt: skip
    return Message(
        "needs %(needs)s, %(left)s free", needs=amounts_text({kind: needs}), left=amounts_text({kind: left}, every=True)
    )


def _missing(stop: Stop) -> dict:
    """Return by how much the first job's request exceeds the free amounts, for each kind that is short."""
    needs, left = _run_kinds(stop.first.needs), _run_kinds(stop.left)
    return {kind: value - left[kind] for kind, value in needs.items() if value > left[kind]}


def _ahead(entry: QueuedJob, pks: list[int], all_names: bool) -> Ahead:
    own = Job.objects.filter(user_id=entry.user_id, state=State.CREATING, reserved=False).values_list("pk", "name")
    names = dict(own)
    mine = [names[pk] for pk in pks if pk in names]
    others = [pk for pk in pks if pk not in names]
    ahead = Ahead(own=mine[:NAMED], others=len(others))
    if all_names:
        rows = entries_of(Job.objects.filter(pk__in=others[-NAMED:]))
        ahead.named = [f"{rows[pk].user}/{rows[pk].name}" for pk in others[-NAMED:] if pk in rows]
    return ahead


def _blocker(stop: Stop, entry: QueuedJob, missing: dict, all_names: bool) -> Blocker:
    first, own = stop.first, stop.first.user_id == entry.user_id
    shown = own or all_names
    return Blocker(
        needs=_run_kinds(first.needs), missing=missing, own=own,
        name=first.name if shown else "", user=first.user if shown else "",
    )  # fmt: skip


def _ends(seen: forecasts.Forecast) -> dict[int, datetime]:
    """Return when the running jobs will probably end, by their keys."""
    return {pk: seen.at + timedelta(seconds=guess.seconds[1]) for pk, guess in seen.ends.items() if guess}


def _forecast(tenant_id: int, line: Line) -> forecasts.Forecast:
    """Return the tenant's forecast, cached for some seconds: it costs as much for one job as for all."""
    key, mark = f"queue-forecast-{tenant_id}", [line.order[: forecasts.PLAYED].tolist(), sorted(line.fits)]
    try:
        kept = cache.get(key)
    except Exception as problem:  # only a cache
        log.warning("the cache does not respond; forecasting again: %s", problem)
        kept = None
    if kept and kept["mark"] == mark and 0 <= time.time() - kept["at"] < max(FRESH_S, kept["took"] * SHARE):
        return kept["forecast"]
    begun = time.monotonic()
    prediction = forecasts.forecast(tenant_id, line)
    took = time.monotonic() - begun
    try:
        cache.set(key, {"mark": mark, "at": time.time(), "took": took, "forecast": prediction}, KEPT_S)
    except Exception as problem:  # only a cache
        log.warning("the forecast could not be cached: %s", problem)
    return prediction


def _starts(entry: QueuedJob, line: Line, position: int, seen: forecasts.Forecast) -> Starts:
    """Return the estimated start. Beyond the simulated jobs it is extrapolated from their pace."""
    seconds = seen.starts.get(entry.pk)
    paced = seconds is None
    if paced:
        last = seen.starts.get(line.order[forecasts.PLAYED - 1]) if len(line.order) >= forecasts.PLAYED else None
        seconds = [second and second * position / forecasts.PLAYED for second in last or [None] * 3]
    known = sorted(second for second in seconds if second is not None)
    if seconds[1] is None or not known:
        return Starts(basis=_unknown(seen))
    earliest, likely = known[0], sorted((known[0], seconds[1], known[-1]))[1]
    latest = known[-1] if seconds[2] is not None else None
    sure = "good" if latest is not None and not paced and _is_narrow(earliest, latest) else "rough"
    moments = [
        second if second is None else seen.at + timedelta(seconds=second) for second in (earliest, likely, latest)
    ]
    return Starts(*moments, sure=sure, basis=_basis(seen, paced))


def _is_narrow(earliest: float, latest: float) -> bool:
    return latest - earliest <= max(60.0, latest)


def _basis(seen: forecasts.Forecast, paced: bool) -> Message:
    if paced:
        return Message("extrapolated from the jobs ahead of it")
    kinds = {guess.basis for guess in seen.ends.values() if guess}
    if kinds == {"progress"}:
        return Message("from the progress of the current runs")
    return Message("from the duration of earlier runs and the progress of the current ones")


def _unknown(seen: forecasts.Forecast) -> Message:
    if any(guess is None for guess in seen.ends.values()):
        return Message("the runs that hold the resources report no progress, and no run like them has finished before")
    return Message("the resources are used by something without an end time, such as an application")


def _run_kinds(amounts: dict) -> dict:
    """Return the kinds that a job requests, as numbers of JSON."""
    return {kind: float(amounts[kind]) if kind == "cpu" else amounts[kind] for kind in RUN_KINDS}
