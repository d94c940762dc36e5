"""Fires schedules: at their times, on events, and by hand. Called by reconcile each round.

Each time or event is acted on once, whatever is killed: the row that says so is written in the transaction that creates
the job or the sweep. Only then the schedule moves on to its next time.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice, takewhile

from django.db import IntegrityError
from django.db.models import QuerySet
from django.utils import timezone

from automation import spec
from automation.models import OPEN, Firing, FiringState, PipelineRun, RunState, Schedule, ScheduleState, Sweep
from automation.pipelines import lifecycle as pipelines
from automation.sweeps import lifecycle as sweeps
from jobs import lifecycle as jobs
from jobs.models import Job, State
from kernel import healing
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import Missing, WrongState
from kernel.messages import Message

from . import events, lifecycle, times

log = logging.getLogger(__name__)
LATE = timedelta(seconds=60)  # a time that is longer ago was missed
MAX_MISSED = 1000  # times that are counted
MAX_MADE_UP = 24  # times that the policy `all` submits for: the newest
STRIDE = 1000  # keys of other events after which the mark is stored
LIVE_JOBS = (State.CREATING, State.RUNNING)


def run(now: datetime | None = None) -> None:
    """Fire all that is due. What fails for one schedule does not affect the others."""
    now = now or timezone.now()
    for step, rows in zip((_at_time, _on_events, _again), due(now), strict=True):
        healing.each(lambda pk, step=step: step(pk, now), list(rows.values_list("pk", flat=True)))


def due(now) -> tuple[QuerySet, QuerySet, QuerySet]:
    """Return the schedules whose time has come, those that fire on events, and the firings that wait."""
    active = Schedule.objects.filter(state=ScheduleState.ACTIVE)
    waiting = Firing.objects.filter(state=FiringState.WAITING, schedule__state=ScheduleState.ACTIVE)
    return active.filter(next_at__lte=now), active.exclude(event={}), waiting


def _schedule(pk: int) -> Schedule | None:
    return Schedule.objects.select_related("user", "user__tenant", "snapshot").filter(pk=pk).first()


# --- times ------------------------------------------------------------------------------------------------------------
def _at_time(pk: int, now: datetime) -> None:
    schedule = _schedule(pk)
    if schedule is None or schedule.next_at is None or schedule.next_at > now:
        return
    was = schedule.next_at
    due = _due(schedule, now)
    on_time = due.pop() if due[-1] >= now - LATE else None
    for planned in _made_up(schedule, due, on_time):
        _fire(schedule, _key(planned), planned, now)
    if on_time is not None:
        _fire(schedule, _key(on_time), on_time, now)
    next_at = next(times.after(schedule.cron, schedule.time_zone, on_time or now), None)
    lifecycle.move_on(schedule.pk, was, next_at)


def _due(schedule: Schedule, now: datetime) -> list[datetime]:
    """Return the times that have come: the one that was next, and those after it; of very many the newest ones."""
    due = list(islice(_until(schedule, schedule.next_at, now), MAX_MISSED))
    if len(due) < MAX_MISSED:
        return [schedule.next_at, *due]
    back = timedelta(hours=1)
    while len(moments := list(_until(schedule, now - back, now))) < MAX_MADE_UP:
        back *= 2
    return [schedule.next_at, *moments]


def _until(schedule: Schedule, moment: datetime, now: datetime) -> Iterator[datetime]:
    return takewhile(lambda time: time <= now, times.after(schedule.cron, schedule.time_zone, moment))


def _made_up(schedule: Schedule, missed: list[datetime], on_time: datetime | None) -> list[datetime]:
    """Return the missed times that are submitted for now; say of the others that they were missed."""
    if not missed:
        return []
    most = {"none": 0, "latest": 0 if on_time else 1, "all": MAX_MADE_UP}[schedule.catch_up]
    kept = missed[len(missed) - most :] if most else []
    left = missed[: len(missed) - len(kept)]
    if left:
        first, last = (moment.isoformat(" ", "minutes") for moment in (left[0], left[-1]))
        if len(left) == 1:
            reason = Message("the time %(first)s was missed: the platform was not running", first=first)
        else:
            reason = Message(
                "the times from %(first)s to %(last)s were missed: the platform was not running", first=first, last=last
            )
        lifecycle.note(schedule.pk, _key(left[-1]), left[-1], timezone.now(), FiringState.MISSED, reason)
    return kept


def _key(planned: datetime) -> str:
    return f"time:{planned:%Y-%m-%dT%H:%M}"


# --- events -----------------------------------------------------------------------------------------------------------
def _on_events(pk: int, now: datetime) -> None:
    schedule = _schedule(pk)
    if schedule is None or not schedule.event:
        return
    changes, mark = events.new(schedule, now)
    for event in changes:
        _fire(schedule, event.key, event.at, now)
    if mark > schedule.seen and (changes or mark - schedule.seen >= STRIDE):
        lifecycle.saw(schedule.pk, mark)


def _again(pk: int, now: datetime) -> None:
    """Submit what has waited for the end of the earlier run."""
    row = Firing.objects.filter(pk=pk, state=FiringState.WAITING).first()
    schedule = row and _schedule(row.schedule_id)
    if schedule is not None and not _running(schedule):
        _submit(schedule, row.key, row.planned, now)


def by_hand(schedule: Schedule, within: Callable[[Firing], object] | None = None) -> Firing:
    """Submit now, whatever else runs; `within` is called with the new firing in its transaction. Raises Refused."""
    now = timezone.now()
    key = f"hand:{uuid.uuid4().hex}"
    _create(schedule, key, now, now, within)
    return of(schedule).get(key=key)


def of(schedule: Schedule) -> QuerySet[Firing]:
    """Return its firings, with what they have submitted."""
    return schedule.firings.select_related("job", "sweep", "run__pipeline")


# --- what is submitted ------------------------------------------------------------------------------------------------
def _fire(schedule: Schedule, key: str, planned: datetime, now: datetime) -> None:
    """Submit for one time or event, as the policy for overlaps allows."""
    if Firing.objects.filter(schedule=schedule, key=key).exists():
        return
    before = _running(schedule) if schedule.overlap != "allow" else None
    if before is None:
        _submit(schedule, key, planned, now)
    elif schedule.overlap == "cancel":
        _cancel(schedule)
        _submit(schedule, key, planned, now)
    elif schedule.overlap == "queue" and not _waits(schedule):
        reason = Message("waits for the end of %(name)s", name=before)
        lifecycle.note(schedule.pk, key, planned, now, FiringState.WAITING, reason)
    else:
        reason = Message("%(name)s was still running", name=before)
        lifecycle.note(schedule.pk, key, planned, now, FiringState.SKIPPED, reason)


def _live(schedule: Schedule) -> tuple[list[Job], list[Sweep], list[PipelineRun]]:
    mine = {"firings__schedule": schedule}
    runs = PipelineRun.objects.filter(**mine, state=RunState.RUNNING).select_related("pipeline", "user")
    of_jobs = Job.objects.filter(**mine, state__in=LIVE_JOBS).select_related("user")
    return list(of_jobs), list(Sweep.objects.filter(**mine, state__in=OPEN)), list(runs)


def _running(schedule: Schedule) -> str | None:
    """Return the name of what was submitted earlier and still runs."""
    return next((row.name for rows in _live(schedule) for row in rows), None)


def _waits(schedule: Schedule) -> bool:
    return Firing.objects.filter(schedule=schedule, state=FiringState.WAITING).exists()


def _cancel(schedule: Schedule) -> None:
    of_jobs, of_sweeps, of_runs = _live(schedule)
    for row in (*of_jobs, *of_sweeps, *of_runs):
        with suppress(Missing, WrongState):  # it has ended meanwhile
            if isinstance(row, PipelineRun):
                pipelines.cancel_run(row, by=lifecycle.BY)
            else:
                verb = jobs.cancel if isinstance(row, Job) else sweeps.cancel
                verb(user=schedule.user, name=row.name, by=lifecycle.BY)


def _submit(schedule: Schedule, key: str, planned: datetime, now: datetime) -> None:
    try:
        _create(schedule, key, planned, now)
    except Refused as problem:
        lifecycle.note(schedule.pk, key, planned, now, FiringState.FAILED, problem.msg)


def _create(
    schedule: Schedule, key: str, planned: datetime, now: datetime, within: Callable[[Firing], object] | None = None
) -> None:
    """Create the job, sweep or run, and the firing's row with it. Raises Refused."""
    body = lifecycle.body_of(schedule)
    number = Schedule.objects.values_list("submitted", flat=True).get(pk=schedule.pk)
    if schedule.title and schedule.kind != "pipeline":
        body = {"title": f"{schedule.title} #{number}", **body}
    create = {"job": _job, "sweep": _sweep, "pipeline": _run}[schedule.kind]

    def noted(**created) -> None:
        row = lifecycle.note_submitted(schedule.pk, key, planned, now, **created)
        if within is not None:
            within(row)

    try:
        spec.with_free_name(schedule.name, number, lambda name: create(schedule, body, name, noted))
    except lifecycle.Fired:
        return
    except IntegrityError as problem:
        if violated(problem) != "firing_key_once":  # otherwise somebody was faster
            raise


def _job(schedule: Schedule, body: dict, name: str, noted) -> None:
    fields = {"group": schedule.name, **(spec.without_code(body) if schedule.snapshot else body)}
    jobs.create_job(
        user=schedule.user, name=name, by=lifecycle.BY, snapshot=schedule.snapshot, **fields,
        within=lambda job: noted(job=job),
    )  # fmt: skip


def _sweep(schedule: Schedule, body: dict, name: str, noted) -> None:
    sweeps.create_sweep(
        user=schedule.user, name=name, by=lifecycle.BY, snapshot=schedule.snapshot, **body,
        within=lambda sweep: noted(sweep=sweep),
    )  # fmt: skip


def _run(schedule: Schedule, body: dict, _name: str, noted) -> None:
    pipeline = pipelines.find(schedule.user, body["name"])
    given = {"params": body.get("params"), "fresh": body.get("fresh", False)}
    pipelines.begin_run(pipeline, by=lifecycle.BY, **given, within=lambda run: noted(run=run))
