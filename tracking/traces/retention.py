"""Deletes traces: old ones, those of a project whose time in the trash is over, those that a user names."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from jobs.models import Assessment, Span, Trace
from kernel import clock

ROUND_S = 1.0  # of one round of reconcile
ROWS = 50  # traces that are deleted in one transaction
MANY = 2000  # spans, or assessments, that one statement deletes: each may have 2 MiB, and a statement has a time limit


def run(now: datetime) -> None:
    """Delete what is due, as much as ROUND_S allow."""
    end, settled = time.monotonic() + ROUND_S, clock.settled(now)
    due = [Trace.objects.filter(project__trashed__lt=settled - timedelta(days=settings.TRASH_DAYS))]
    if settings.TRACE_DAYS:
        old = Trace.objects.filter(created__lt=settled - timedelta(days=settings.TRACE_DAYS))
        due.append(old.order_by("created", "pk"))
    for rows in due:
        while delete(rows, ROWS):
            if time.monotonic() > end:
                return


def delete(rows: QuerySet, most: int) -> int:
    """Delete the first of these traces with their spans and assessments, as many as have MANY spans together; return
    how many, 0 when there are none. Spans that come meanwhile wait, and make a new trace.
    """
    keys = _first(rows, most)
    parts = [model.objects.filter(trace__in=keys) for model in (Assessment, Span)]
    for part in parts:
        while part.count() > MANY:
            model = part.model
            model.objects.filter(pk__in=list(part.order_by("-pk").values_list("pk", flat=True)[:MANY])).delete()
    with transaction.atomic():
        # In the order in which the intake locks them.
        list(Trace.objects.select_for_update().filter(pk__in=keys).order_by("user", "key").values_list("pk"))
        for part in parts:
            part.delete()
        return Trace.objects.filter(pk__in=keys).delete()[1].get(Trace._meta.label, 0)


def _first(rows: QuerySet, most: int) -> list[int]:
    """Return the keys of the first traces, as many as have MANY spans together, and at least one."""
    keys: list[int] = []
    room = MANY
    for key, spans in rows.values_list("pk", "spans_kept")[:most]:
        room -= spans
        if keys and room < 0:
            break
        keys.append(key)
    return keys
