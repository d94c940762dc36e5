"""What heals the books: tries that nobody settled; and what records them. Called by `manage.py reconcile` each round.

The managers' own tries live in the transaction of their object and end with it, so only tries that came over REST can
be left open by a crash of whoever sent them.
"""

from __future__ import annotations

from datetime import timedelta
from time import monotonic

from django.conf import settings
from django.utils import timezone

from kernel import healing
from kernel.errors import Refused

from . import tcc, usage
from .models import ResourceRequest, State

SAMPLE_EVERY_S = 60
_sampled = [-SAMPLE_EVERY_S]  # when, by this process's clock


def run() -> None:
    healing.attempt(sweep)
    if monotonic() - _sampled[0] >= SAMPLE_EVERY_S:
        _sampled[0] = monotonic()
        usage.record()


def sweep() -> None:
    """Cancels what has been tried over REST and not been settled for TRY_TIMEOUT_S."""
    limit = timezone.now() - timedelta(seconds=settings.TRY_TIMEOUT_S)
    stale = ResourceRequest.objects.filter(state=State.TRIED, created__lt=limit, owner="").order_by("created")
    for pk, applier in stale.values_list("pk", "applier")[:200]:
        healing.attempt(_settle, pk, applier)


def _settle(pk: str, applier: str) -> None:
    try:
        tcc.cancel(id=pk, applier=applier)
    except Refused:
        # somebody has released already what it holds: it is to be counted as taken and given back
        tcc.confirm(id=pk, applier=applier)
