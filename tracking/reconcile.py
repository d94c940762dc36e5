"""Deletes traces that are old, as MLP_TRACE_DAYS says. Called by `manage.py reconcile`."""

from __future__ import annotations

from django.db.models import QuerySet
from django.utils import timezone

from kernel import healing

from .traces import retention


def run() -> None:
    """Run one round."""
    healing.attempt(retention.run, timezone.now())


def pending() -> list[QuerySet]:
    """Return what a round is needed for: nothing, since what is old has time until the next whole one."""
    return []
