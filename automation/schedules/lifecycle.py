"""Every change of a schedule goes through here. Called by api, pages, admin, and automation.schedules.firing.

Locks: the user's row, then the schedule's.
"""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts import notices
from accounts.sharing.access import Visitor
from automation import spec
from automation.models import Firing, FiringState, Pipeline, Schedule, ScheduleState
from automation.pipelines import graph
from automation.pipelines import lifecycle as pipelines
from automation.sweeps import lifecycle as sweeps
from jobs.code import sweeping
from kernel import after_commit
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import Missing, lock_row, locked
from kernel.messages import Message
from kernel.models import record_change, record_created

from . import events, times

KINDS = ("job", "sweep", "pipeline")
BY = "schedule"  # in the history of what a schedule does by itself
MAX_FAILURES = 5  # in a row, after which it pauses itself
KEPT = 500  # firings of a schedule


def require_room(user) -> None:
    """Raise Refused for a user who has as many schedules as are allowed."""
    if Schedule.objects.filter(user=user).count() >= settings.SCHEDULES_PER_USER:
        raise Refused("you have %(most)s schedules, which is the limit", most=settings.SCHEDULES_PER_USER)


def create_schedule(
    *, user, by: str, name: str, job: dict | None = None, sweep: dict | None = None, pipeline: dict | None = None,
    code: str = "latest", visitor: Visitor | None = None, **fields,
) -> Schedule:  # fmt: skip
    """Store an active schedule. `fields` are those of ScheduleIn, complete; one of `job`, `sweep` and `pipeline` is
    submitted.

    Raises Refused: as for what cannot be submitted; a name taken; too many schedules.
    """
    kind, body = next(
        (kind, body) for kind, body in zip(KINDS, (job, sweep, pipeline), strict=True) if body is not None
    )
    if kind == "pipeline":
        spec.at("pipeline", lambda: graph.with_params(_pipeline(user, body).params, body.get("params", {})))
    else:
        submitted = body if kind == "job" else body["job"]
        place = "job" if kind == "job" else "sweep.job"
        spec.at(place, lambda: spec.need_possible(user, submitted, visitor=visitor))
    kept = code == "kept" and kind != "pipeline"
    keeping = spec.kept_code(user, submitted, visitor=visitor) if kept else nullcontext(lambda: None)
    now = timezone.now()
    try:
        with keeping as snapshot, transaction.atomic():
            accounts.hold_active(user)
            require_room(user)
            schedule = Schedule(user=user, name=name, kind=kind, spec=stored(kind, body), snapshot=snapshot())
            _set(schedule, fields)
            _begin(schedule, now)
            schedule.save()
            record_created(schedule, by=by)
    except IntegrityError as problem:
        if violated(problem) == "schedule_name_once_per_user":
            raise Refused("you already have a schedule named %(name)s", field="name", name=name)
        raise
    return schedule


def require_possible(schedule: Schedule) -> None:
    """Raise Refused or Missing for what could not be submitted now: its script or dataset is gone, or its pipeline."""
    user, body = schedule.user, schedule.spec
    if schedule.kind == "pipeline":
        pipelines.require_runnable(_pipeline(user, body))
        return
    if schedule.kind == "sweep":
        sweeps.require_room(user)
    job = body if schedule.kind == "job" else body["job"]
    spec.need_possible(user, job, kept=schedule.snapshot_id is not None)


def _pipeline(user, body: dict) -> Pipeline:
    try:
        return pipelines.find(user, body["name"])
    except Missing as problem:
        raise Refused(problem.problem, field="name")


def entry_of(schedule: Schedule) -> str:
    """Return the script, or the pipeline, that the schedule submits."""
    if schedule.kind == "pipeline":
        return schedule.spec["name"]
    return (schedule.spec if schedule.kind == "job" else schedule.spec["job"]).get("entry", "")


def _set(schedule: Schedule, fields: dict) -> None:
    for name in ("cron", "time_zone", "event", "overlap", "catch_up", "notes", "title"):
        if name in fields:
            setattr(schedule, name, fields[name])


def _begin(schedule: Schedule, now: datetime) -> None:
    """Let it look at what comes from now on."""
    schedule.since, schedule.failures, schedule.reason = now, 0, ""
    schedule.next_at = next(times.after(schedule.cron, schedule.time_zone, now), None) if schedule.cron else None
    schedule.seen = events.newest(schedule.event["on"]) if schedule.event else 0


def stored(kind: str, body: dict) -> dict:
    """Return a body as it is stored: the database does not keep the order of a space's parameters."""
    return {**body, "space": list(body["space"].items())} if kind == "sweep" else body


def body_of(schedule: Schedule) -> dict:
    """Return what the schedule submits, as create_job or create_sweep takes it, without a name."""
    if schedule.kind == "sweep":
        return {**schedule.spec, "space": dict(schedule.spec["space"])}
    return dict(schedule.spec)


def change(*, user, name: str, by: str, **fields) -> Schedule:
    """Change when a schedule fires and what it does with overlaps and missed times; what is not given stays."""
    with locked(Schedule, user=user, name=name) as schedule:
        timing = {"cron", "time_zone", "event"} & set(fields)
        if fields.get("cron"):
            fields.setdefault("event", {})
        elif fields.get("event"):
            fields["cron"] = ""
        _set(schedule, fields)
        if timing:
            _begin(schedule, timezone.now())
        schedule.save()
        record_change(schedule, transition="change", source=schedule.state, target=schedule.state, by=by)
    return schedule


def pause(*, user, name: str, by: str) -> Schedule:
    """Pause a schedule. What it has submitted goes on."""
    with locked(Schedule, user=user, name=name) as schedule:
        schedule.pause(by=by)
        schedule.next_at = None
        schedule.save()
    return schedule


def resume(*, user, name: str, by: str) -> Schedule:
    """Let a paused schedule go on with what comes from now on."""
    with locked(Schedule, user=user, name=name) as schedule:
        schedule.resume(by=by)
        _begin(schedule, timezone.now())
        schedule.save()
    return schedule


def delete_schedule(*, user, name: str, by: str) -> Schedule:
    """Delete a schedule with its history. What it has submitted goes on."""
    with locked(Schedule, user=user, name=name) as schedule:
        schedule.erase(by=by)
        schedule.save()
        snapshot, key = schedule.snapshot_id, schedule.pk
        schedule.delete()
        schedule.pk = key  # for the answer
        if snapshot is not None:
            sweeping.release(snapshot)
    return schedule


def pause_all_of(user, by: str) -> None:
    """Pause all schedules of a de-registered user; called inside that transaction."""
    rows = Schedule.objects.filter(user=user, state=ScheduleState.ACTIVE).order_by("pk")
    for schedule in list(rows.select_for_update(no_key=True)):
        schedule.pause(by=by, reason=accounts.DEACTIVATED)
        schedule.next_at, schedule.reason = None, accounts.DEACTIVATED
        schedule.save()


# --- firings ----------------------------------------------------------------------------------------------------------
class Fired(Exception):
    """This time has been acted on, or the schedule may not fire any more: raised inside the transaction."""


def note_submitted(pk: int, key: str, planned: datetime, now: datetime, **created) -> Firing:
    """Record what was submitted; called inside the transaction that creates it. Return the row. Raises Fired."""
    schedule = lock_row(Schedule, pk=pk)
    if schedule is None or (schedule.state != ScheduleState.ACTIVE and not key.startswith("hand:")):
        raise Fired
    waiting = Firing.objects.filter(schedule=schedule, key=key).first()
    if waiting is not None and waiting.state != FiringState.WAITING:
        raise Fired
    row = waiting or Firing(schedule=schedule, key=key, planned=planned)
    row.state, row.at, row.reason = FiringState.SUBMITTED, now, ""
    for name, value in created.items():
        setattr(row, name, value)
    row.made = next(iter(created.values())).name
    row.save()
    schedule.submitted += 1
    schedule.failures = 0
    schedule.save(update_fields=["submitted", "failures"])
    after_commit.changed(schedule.user.username, "schedule", schedule.name)
    return row


def note(pk: int, key: str, planned: datetime, now: datetime, state: str, reason: str = "") -> None:
    """Record a time at which nothing was submitted. After several failures in a row the schedule pauses itself."""
    with transaction.atomic():
        schedule = lock_row(Schedule, pk=pk)
        if schedule is None:
            return
        row = Firing.objects.filter(schedule=schedule, key=key).first()
        if row is not None and row.state != FiringState.WAITING:
            return
        row = row or Firing(schedule=schedule, key=key, planned=planned)
        row.state, row.at, row.reason = state, now, reason
        row.save()
        if state == FiringState.MISSED:
            notices.notify(user=schedule.user, kind="schedule", name=schedule.name, event="missed", reason=reason,
                           title=schedule.title)  # fmt: skip
        if state == FiringState.FAILED:
            _count_failure(schedule, reason)
        after_commit.changed(schedule.user.username, "schedule", schedule.name)


def _count_failure(schedule: Schedule, reason: str) -> None:
    schedule.failures += 1
    if schedule.failures >= MAX_FAILURES and schedule.state == ScheduleState.ACTIVE:
        schedule.reason = Message(
            "paused after %(count)s failures, the last of them: %(reason)s", count=schedule.failures, reason=reason
        )
        schedule.pause(by=BY, reason=schedule.reason)
        schedule.next_at = None
        reason = schedule.reason
    schedule.save()
    if schedule.failures in (1, MAX_FAILURES):
        notices.notify(user=schedule.user, kind="schedule", name=schedule.name, event="error", reason=reason,
                         title=schedule.title)  # fmt: skip


def move_on(pk: int, was: datetime, next_at: datetime | None) -> None:
    """Set the next time of a schedule, unless somebody has changed it meanwhile; old firings are forgotten."""
    Schedule.objects.filter(pk=pk, next_at=was, state=ScheduleState.ACTIVE).update(next_at=next_at)
    forget_old(pk)


def saw(pk: int, seen: int) -> None:
    """Store up to which key the events were handled."""
    Schedule.objects.filter(pk=pk, seen__lt=seen).update(seen=seen)
    forget_old(pk)


def forget_old(pk: int) -> None:
    """Delete the oldest firings, except for those whose events may be looked at again."""
    old = Firing.objects.filter(schedule=pk).order_by("-pk").values_list("pk", flat=True)[KEPT : KEPT + 1].first()
    if old is not None:
        rows = Firing.objects.filter(schedule=pk, pk__lte=old, at__lt=timezone.now() - 2 * events.RECENT)
        rows.exclude(state=FiringState.WAITING).delete()
