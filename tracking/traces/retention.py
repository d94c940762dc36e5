"""Deletes traces: old ones, those of a project whose time in the trash is over, those that a user names."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import QuerySet

from jobs.models import Assessment, Span, Trace
from kernel import clock

ROUND_S = 1.0  # of one round of reconcile
ROWS = 200  # traces that are deleted in one transaction, each with up to 10,000 spans


def run(now: datetime) -> None:
    """Delete what is due, as much as ROUND_S allow."""
    end, settled = time.monotonic() + ROUND_S, clock.settled(now)
    due = [Trace.objects.filter(project__trashed__lt=settled - timedelta(days=settings.TRASH_DAYS))]
    if settings.TRACE_DAYS:
        due.append(Trace.objects.filter(created__lt=settled - timedelta(days=settings.TRACE_DAYS)).order_by("created"))
    for rows in due:
        while delete(rows, ROWS) == ROWS:
            if time.monotonic() > end:
                return


def delete(rows: QuerySet, most: int) -> int:
    """Delete the first of these traces with their spans and assessments; return how many."""
    keys = list(rows.values_list("pk", flat=True)[:most])
    Assessment.objects.filter(trace__in=keys).delete()
    Span.objects.filter(trace__in=keys).delete()
    return Trace.objects.filter(pk__in=keys).delete()[1].get(Trace._meta.label, 0)
