"""The events on which a schedule may fire, read from the rows that the events themselves have written.

Nothing is lost while the platform is away: each look reads on from the last row that was handled. Rows may be committed
in another order than their keys, so the last ones are looked at again; a firing's key keeps them from counting twice.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db.models import QuerySet

from aiops.models import Alert
from automation.models import Schedule
from kernel.models import StateChange
from models_app.models import ModelVersion

LOOK_BACK = 500  # keys
AT_ONCE = 100
EVENTS = ("dataset_ready", "job_finished", "model_registered", "alert_fired")
NEEDS_NAME = {"job_finished"}  # otherwise a schedule would be set off by its own jobs


class Event(NamedTuple):
    """Something that has happened: its key among all events, the row's own key, its time, and the object's name."""

    key: str
    row: int
    at: datetime
    name: str


def new(schedule: Schedule) -> list[Event]:
    """Return the events since the last look, and some before it, oldest first."""
    on, name = schedule.event["on"], schedule.event.get("name", "")
    rows, time, shown = SOURCES[on](schedule, name)
    rows = rows.filter(pk__gt=schedule.seen - LOOK_BACK, **{f"{time}__gte": schedule.since}).order_by("pk")
    return [Event(f"{on}:{row.pk}", row.pk, getattr(row, time), shown(row)) for row in rows[: AT_ONCE + LOOK_BACK]]


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
