"""How the drift of an application is looked for: what its owner sets, and what ends it."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from datasets import sources
from kernel import after_commit, stored
from kernel.errors import Refused
from kernel.locking import locked
from kernel.messages import Message
from kernel.models import record_change

from ..models import Application, DriftCheck, DriftWindow
from ..records import plan as recording
from ..records import rows
from . import columns

SET = ("dataset", "target", "since", "until", "window", "least", "alpha", "distance", "share", "kinds")
REFERENCE = ("dataset", "target", "since", "until", "kinds")  # what is changed with them is compared anew
MAX_LEAST, MAX_KINDS = 100_000, 200
LATER = timedelta(minutes=2)  # after a window's end: until then its last records are stored
BACK = timedelta(days=7)  # windows of the past that are compared when it is turned on
FURTHEST = timedelta(hours=25)  # to which one is put off
LEASE = timedelta(minutes=10)  # of a task: another one is sent if it has not ended


def of(app: Application) -> DriftCheck:
    """Return how the drift of an application is looked for; a row that is not stored where that was never set."""
    return DriftCheck.objects.filter(app=app).defer("profile").first() or DriftCheck(app=app, user=app.user)


def set_check(*, user, name: str, by: str, on: bool = True, **given) -> DriftCheck:
    """Set whether and how the drift of an application is looked for; what is not given stays as it was.

    `since` and `until` are texts. A dataset takes the place of a time range, and a time range that of a dataset.

    Raises Missing; Refused, which names the field, also while its requests are not recorded.
    """
    with locked(Application, user=user, name=name) as app:
        stored.require(user.pk)
        row = DriftCheck.objects.select_for_update().filter(app=app).first() or DriftCheck(app=app, user=user)
        before = {field: getattr(row, field) for field in (*REFERENCE, "window")}
        _take(row, given)
        if on:
            _require(app, row)
        changed = {field for field in before if before[field] != getattr(row, field)}
        if changed & set(REFERENCE):
            row.profile, row.profiled, row.problem = None, None, ""
        if changed and row.pk:
            row.changes += 1
            row.drifting_since, row.compared_to, row.alerted = None, None, False
            DriftWindow.objects.filter(app=app).delete()
        if on and not row.on and row.compared_to is None:
            row.problem = ""
        row.on, row.next_look = on, timezone.now() if on else None
        row.save()
        if on:
            look(row)
        reason = Message("drift is looked for") if on else Message("drift is no longer looked for")
        record_change(app, transition="drift", source=app.state, target=app.state, by=by, reason=reason)
        after_commit.changed(app.user.username, "application", app.name)
    return row


def look(row: DriftCheck) -> None:
    """Send a task that looks now; one that is killed is sent again after LEASE."""
    DriftCheck.objects.filter(pk=row.pk).update(next_look=timezone.now() + LEASE)
    after_commit.enqueue("apps.drift", row.pk)


def look_all(now: datetime) -> None:
    """Send a task for each that is due. Called by reconcile."""
    for row in due(now).only("pk"):
        look(row)


def due(now: datetime):
    """Return the checks for which a task is to be sent, also those that a clock put off which was ahead."""
    late = Q(next_look__lte=now) | Q(next_look__gt=now + FURTHEST)
    return DriftCheck.objects.filter(late, on=True, app__trashed=None)


def _take(row: DriftCheck, given: dict) -> None:
    for field in SET:
        if field in given:
            value = given[field]
            if field in ("since", "until"):
                value = rows.moment(value, field) if value.strip() else None
            setattr(row, field, value)
    if given.get("dataset"):
        row.since = row.until = None
        if given.get("since") or given.get("until"):
            raise Refused("give either a dataset or a time range", field="since")
    elif given.get("since"):
        row.dataset, row.target = "", given.get("target", "")
    if len(row.kinds) > MAX_KINDS:
        raise Refused("at most %(limit)s features can have a kind of their own", field="kinds", limit=MAX_KINDS)
    for name, kind in row.kinds.items():
        if kind not in columns.CHOICES or len(name) > 2 * 100:
            raise Refused("the kind of a feature is one of %(kinds)s", field="kinds", kinds=", ".join(columns.CHOICES))


def _require(app: Application, row: DriftCheck) -> None:
    """Raise Refused where there is nothing to compare, or nothing to compare it with."""
    if not recording.header(app) and not app.records.exists():
        raise Refused("requests of this application are not recorded; record them first", field="on")
    if not row.has_reference:
        raise Refused("give a dataset, or a time range of the application's records", field="dataset")
    if row.dataset and sources.missing(app.user, [row.dataset]):
        raise Refused("you have no ready dataset %(name)s", field="dataset", name=row.dataset)
    if row.target and not row.dataset:
        raise Refused("names a column of a dataset; a time range has the answers", field="target")
    if row.since and (row.until is None or row.until <= row.since):
        raise Refused("must be after the begin", field="until")
