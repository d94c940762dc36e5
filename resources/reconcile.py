"""Cancels tries that were never settled, follows the size of the cluster, records usage, and joins counts of rows.
Called by `manage.py reconcile` in each round.

The managers' own tries belong to the transaction of their object and end with it, so only tries over REST can be left
open by a client that crashed.
"""

from __future__ import annotations

from datetime import timedelta
from time import monotonic

from django.conf import settings
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from kernel import healing, stored
from kernel.errors import Refused

from . import inventory, tcc, usage
from .models import ResourceRequest, State

SAMPLE_EVERY_S = 60
_sampled = [-SAMPLE_EVERY_S]  # time of the last sample, by this process's monotonic clock


def run() -> None:
    """Run one round."""
    healing.attempt(sweep)
    healing.attempt(stored.collapse)
    if monotonic() - _sampled[0] >= SAMPLE_EVERY_S:
        _sampled[0] = monotonic()
        healing.attempt(inventory.follow_cluster)
        usage.record()


def pending() -> list[QuerySet]:
    """Return what a round is needed for: what is due, by the time of the database."""
    return [_stale(Now())]


def sweep() -> None:
    """Cancel what was tried over REST and not settled within TRY_TIMEOUT_S."""
    for pk, applier in _stale(timezone.now()).order_by("created").values_list("pk", "applier")[:200]:
        healing.attempt(_settle, pk, applier)


def _stale(now) -> QuerySet:
    limit = now - timedelta(seconds=settings.TRY_TIMEOUT_S)
    return ResourceRequest.objects.filter(state=State.TRIED, created__lt=limit, owner="")


def _settle(pk: str, applier: str) -> None:
    try:
        tcc.cancel(id=pk, applier=applier)
    except Refused:
        # what it holds was released already, so it counts as requested and released
        tcc.confirm(id=pk, applier=applier)
