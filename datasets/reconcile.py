"""Heals datasets: uploads without activity, deletions whose message was lost. Called by `manage.py reconcile`."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from kernel import after_commit, clock, healing
from kernel.messages import Message
from kernel.models import StateChange

from . import lifecycle, trash, versions
from .buckets import caching, listing
from .exports.lifecycle import LIVE
from .models import Dataset, Export, State
from .webdav import lock_store, spool

AGAIN_AFTER = timedelta(seconds=10)
SPOOL_KEPT_S = 24 * 3600


def run() -> None:
    """Run one round."""
    now = timezone.now()
    since = clock.settled(now) - timedelta(seconds=settings.DATASET_SILENCE_S)
    kept_s = SPOOL_KEPT_S + clock.ahead_s()
    reason = Message("no heartbeat and no bytes for %(seconds)s s", seconds=settings.DATASET_SILENCE_S)
    for pk in Dataset.objects.filter(state=State.CREATING, src="", touched__lt=since).values_list("pk", flat=True)[
        :200
    ]:
        healing.attempt(lifecycle.fail_silent, pk, since, reason)
    unsent = Dataset.objects.filter(state=State.CREATING).exclude(src="").filter(touched__lt=now - AGAIN_AFTER)
    for pk in unsent.values_list("pk", flat=True)[:200]:
        Dataset.objects.filter(pk=pk).update(touched=now)  # so that what waits is not sent in each round
        after_commit.enqueue("datasets.copy", pk, False, queue="files")
    for pk in Dataset.objects.filter(state=State.DELETING).values_list("pk", flat=True)[:200]:
        deletion = StateChange.objects.filter(kind="dataset", object_id=pk, target=State.DELETING).first()
        if deletion is None or not now - AGAIN_AFTER <= deletion.at <= now:  # later: the clock was set back
            after_commit.enqueue("datasets.erase", pk, queue="files")
    unsent = Export.objects.filter(state__in=LIVE, touched__lt=now - AGAIN_AFTER)
    for pk in unsent.values_list("pk", flat=True)[:200]:
        Export.objects.filter(pk=pk).update(touched=now)
        after_commit.enqueue("datasets.export", pk, False, queue="files")
    healing.attempt(versions.heal)
    healing.attempt(listing.heal)
    healing.attempt(caching.sweep)
    healing.attempt(trash.purge, now)
    healing.attempt(lock_store.sweep)
    healing.attempt(spool.sweep, kept_s)
    healing.attempt(spool.sweep_parts, kept_s)


def pending() -> list[QuerySet]:
    """Return what a round is needed for: datasets that are uploaded, deleted or listed, and exports."""
    return [
        Dataset.objects.filter(state__in=[State.CREATING, State.DELETING]),
        Dataset.objects.filter(refresh_asked__isnull=False),
        Export.objects.filter(state__in=LIVE),
    ]
