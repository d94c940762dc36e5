"""Deletes records: old ones, the oldest of an application that has too many, all where its owner wants that."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Greatest

from kernel import after_commit, clock
from kernel.errors import Fault
from kernel.messages import Message

from ..models import Application, DriftCheck, DriftWindow, Feedback, Record, Recording
from . import plan

ROUND_S = 1.0  # of one round of reconcile
REQUEST_S = 60.0  # of a request that deletes all; nginx waits for 130 s
MANY = 1000  # rows that one statement deletes: each may have some 100 KiB, and a statement has a time limit
MIB = 1 << 20
UNFINISHED = Message("not all records are deleted yet; delete them again")
GONE = Message("the records of the reference have been deleted; choose another one")


class Unfinished(Fault):
    """A request has deleted as many records as it may."""

    is_logged = False


def run(now: datetime) -> None:
    """Delete what is due, as much as ROUND_S allow. Called by reconcile."""
    end, settled = time.monotonic() + ROUND_S, clock.settled(now)
    by_days: dict[int, list[int]] = defaultdict(list)
    for row in Recording.objects.select_related("app__tenant"):
        by_days[plan.kept_days(row)].append(row.app_id)
    for days, apps in sorted(by_days.items()):
        until = settled - timedelta(days=days)
        old = Record.objects.filter(app__in=apps, at__lt=until).order_by("at")
        while delete(old):
            if time.monotonic() > end:
                return
        while delete_feedback(Feedback.objects.filter(app__in=apps, at__lt=until)):
            if time.monotonic() > end:
                return
    for app_id in Recording.objects.filter(stored__gt=F("most_mib") * MIB).values_list("app", flat=True):
        while _is_full(app_id) and delete(Record.objects.filter(app=app_id).order_by("at", "pk")):
            if time.monotonic() > end:
                return


def _is_full(app_id: int) -> bool:
    return Recording.objects.filter(app=app_id, stored__gt=F("most_mib") * MIB).exists()


@transaction.atomic
def delete(rows: QuerySet[Record], most: int = 0) -> int:
    """Delete the first of these records, MANY unless `most` says fewer; return how many, 0 when there are none."""
    locked = rows.select_for_update(of=("self",), skip_locked=True)
    found = list(locked.values_list("pk", "app", "size")[: most or MANY])
    if not found:
        return 0
    sizes: Counter[int] = Counter()
    for _pk, app_id, size in found:
        sizes[app_id] += size
    Record.objects.filter(pk__in=[pk for pk, _app, _size in found]).delete()
    for app_id in sorted(sizes):
        Recording.objects.filter(app=app_id).update(stored=Greatest(F("stored") - sizes[app_id], 0))
    return len(found)


def delete_feedback(rows: QuerySet[Feedback]) -> int:
    """Delete the first MANY of this feedback; return how many, 0 when there is none."""
    found = list(rows.order_by("pk").values_list("pk", flat=True)[:MANY])
    Feedback.objects.filter(pk__in=found).delete()
    return len(found)


def clear(app_id: int, limit_s: float = ROUND_S) -> bool:
    """Delete all records of an application and their feedback, as many as the time allows; return whether all are."""
    return _clear(Record.objects.filter(app=app_id), Feedback.objects.filter(app=app_id), limit_s)


def _clear(records: QuerySet[Record], feedback: QuerySet[Feedback], limit_s: float) -> bool:
    """Delete records and feedback in pieces, so that nobody waits for a lock, until the time is over; return whether
    all are deleted.
    """
    end, records = time.monotonic() + limit_s, records.order_by("pk")
    while delete(records) or delete_feedback(feedback):
        if time.monotonic() > end:
            return False
    return True


def delete_all(app: Application) -> None:
    """Delete the records of an application that are stored now, with their feedback and what drift has kept of them.
    Raises Fault where that takes too long for one request: the next one goes on.
    """
    rows = Record.objects.filter(app=app), Feedback.objects.filter(app=app)
    last, last_said = (found.order_by("-pk").values_list("pk", flat=True).first() or 0 for found in rows)
    if not _clear(rows[0].filter(pk__lte=last), rows[1].filter(pk__lte=last_said), REQUEST_S):
        raise Unfinished(UNFINISHED)
    Recording.objects.filter(app=app).update(dropped=0, problem="")
    DriftWindow.objects.filter(app=app).delete()
    DriftCheck.objects.filter(app=app).exclude(since=None).update(profile=None, profiled=None, problem=GONE)
    after_commit.changed(app.user.username, "application", app.name)
