"""The events on which a schedule may fire, read from the rows that the events themselves have written.

Nothing is lost while the platform is unavailable: each look reads on from the mark that the last one left. Rows may be
committed in another order than their keys, so those of the last hour before the mark are looked at again; a firing's
key keeps them from counting twice. The mark goes on also past what is none of the schedule's: a look stays short.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import CharField, Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Cast, Concat

from aiops.models import Alert
from automation.models import Firing, Schedule
from kernel.models import StateChange
from models_app.models import ModelVersion

LOOK_BACK = 20_000  # keys before the mark
RECENT = timedelta(hours=1)  # a transaction ends sooner; lifecycle keeps the firings of longer
AT_ONCE = 100
EVENTS = ("dataset_ready", "job_finished", "model_registered", "alert_fired")
NEEDS_NAME = {"job_finished"}  # otherwise a schedule would be set off by its own jobs


class Event(NamedTuple):
    """Something that has happened: its key among all events, its time, and the object's name."""

    key: str
    at: datetime
    name: str


def new(schedule: Schedule, now: datetime) -> tuple[list[Event], int]:
    """Return the events that were not handled yet, oldest first, and the mark for the next look."""
    on, name = schedule.event["on"], schedule.event.get("name", "")
    mark = newest(on)  # before the rows: what is written meanwhile is behind it
    rows, time, shown = SOURCES[on](schedule, name)
    rows = rows.filter(pk__gt=schedule.seen - LOOK_BACK, **{f"{time}__gte": schedule.since})
    unseen = Q(pk__gt=schedule.seen) | Q(**{f"{time}__gte": now - RECENT})
    key = Concat(Value(f"{on}:"), Cast(OuterRef("pk"), CharField()))
    handled = Firing.objects.filter(schedule=schedule, key=key)
    events = list(rows.filter(unseen, ~Exists(handled)).order_by("pk")[:AT_ONCE])
    if len(events) == AT_ONCE:
        mark = events[-1].pk
    return [Event(f"{on}:{row.pk}", getattr(row, time), shown(row)) for row in events], mark


def newest(on: str) -> int:
    """Return the key of the newest row of that kind of event, of any user."""
    model = {"model_registered": ModelVersion, "alert_fired": Alert}.get(on, StateChange)
    return model._default_manager.order_by("-pk").values_list("pk", flat=True).first() or 0


def _changes(schedule: Schedule, name: str, kind: str, transition: str) -> QuerySet:
    rows = StateChange.objects.filter(owner=schedule.user.username, kind=kind, transition=transition)
    return rows.filter(name=name) if name else rows


def _datasets(schedule: Schedule, name: str) -> tuple:
    return _changes(schedule, name, "dataset", "complete"), "at", lambda row: row.name


def _jobs(schedule: Schedule, name: str) -> tuple:
    return _changes(schedule, name, "job", "finish"), "at", lambda row: row.name


def _versions(schedule: Schedule, name: str) -> tuple:
    rows = ModelVersion.objects.filter(registered__user=schedule.user).select_related("registered")
    rows = rows.filter(registered__name=name) if name else rows
    return rows, "created", lambda row: f"{row.registered.name}/{row.number}"


def _alerts(schedule: Schedule, name: str) -> tuple:
    rows = Alert.objects.filter(rule__owner=schedule.user).select_related("rule")
    rows = rows.filter(rule__name=name) if name else rows
    return rows, "at", lambda row: row.rule.name


SOURCES = {
    "dataset_ready": _datasets,
    "job_finished": _jobs,
    "model_registered": _versions,
    "alert_fired": _alerts,
}
