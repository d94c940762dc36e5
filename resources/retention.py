"""How long things are kept by the policies of tenants: the trash, and logs, metrics and outputs of ended jobs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.conf import settings
from django.db.models import Q

from kernel import clock

from .models import Tenant

PARTS = ("log", "metrics", "output")  # of an ended job, each with a policy `…_days` and a column `…_removed`


class Removal(NamedTuple):
    """That a part of a job has been removed, or will be."""

    part: str
    at: datetime
    done: bool


def trash_due(now: datetime) -> Q:
    """Return the condition of what has been in the trash for long enough, by its tenant's policy and a clock that can
    be believed.
    """
    now = clock.settled(now)
    due = Q(tenant__trash_days=None, trashed__lt=now - timedelta(days=settings.TRASH_DAYS))
    own = Tenant.objects.exclude(trash_days=None).values_list("trash_days", flat=True)
    for days in sorted(set(own)):
        due |= Q(tenant__trash_days=days, trashed__lt=now - timedelta(days=days))
    return due


def removals(job) -> list[Removal]:
    """Return what has been removed of an ended job, and what will be by the present policy of its tenant."""
    removed_parts = []
    for part in PARTS:
        removed, days = getattr(job, f"{part}_removed"), getattr(job.tenant, f"{part}_days")
        if removed is not None:
            removed_parts.append(Removal(part, removed, True))
        elif days is not None and job.ended is not None and job.has_ended:
            removed_parts.append(Removal(part, job.ended + timedelta(days=days), False))
    return removed_parts
