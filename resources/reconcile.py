"""What heals the books: tries that nobody settled. Called by `manage.py reconcile` each round.

The managers' own tries live in the transaction of their object and end with it, so only tries that came over REST can
be left open by a crash of whoever sent them.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from . import tcc
from .models import ResourceRequest, State

OWNED = ("job:", "dataset:", "model:", "app:", "aiops:")


def run() -> None:
    limit = timezone.now() - timedelta(seconds=settings.TRY_TIMEOUT_S)
    owned = Q()
    for prefix in OWNED:
        owned |= Q(pk__startswith=prefix)
    stale = ResourceRequest.objects.filter(state=State.TRIED, created__lt=limit).exclude(owned)
    for pk, applier in stale.values_list("pk", "applier")[:200]:
        tcc.cancel(id=pk, applier=applier)
