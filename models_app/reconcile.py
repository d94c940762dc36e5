"""The reconciliation of models, which repeats what a lost message should have done.

Called by `manage.py reconcile` each round.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from kernel import after_commit, healing

from . import launching, trash
from .models import Model, RegistryDelivery, State
from .registry import webhooks

COPY_AGAIN_AFTER = timedelta(seconds=30)


def run() -> None:
    """Do one round."""
    now = timezone.now()
    just = now - COPY_AGAIN_AFTER, now  # later times are those of a clock that was set back since
    rows = Model.objects.filter(state=State.CREATING)
    for pk in rows.filter(copied=False).exclude(created__range=just).values_list("pk", flat=True)[:50]:
        after_commit.enqueue("models.copy", pk, False, queue="files")
    for pk in rows.filter(copied=True).values_list("pk", flat=True):
        healing.attempt(launching.check, pk, False)
    healing.attempt(launching.sweep)
    for pk in webhooks.due():
        after_commit.enqueue("models.webhook", pk)
    for pk in _unclean().values_list("pk", flat=True)[:200]:
        after_commit.enqueue("models.clean", pk, False, queue="files")
    healing.attempt(trash.purge, now)
    for pk in Model.objects.filter(state=State.DELETING).values_list("pk", flat=True)[:200]:
        after_commit.enqueue("models.erase", pk, False, queue="files")


def pending() -> list[QuerySet]:
    """Return what a round is needed for: models that are created or deleted, those that hold a run though they are
    complete, since the message that ends it may be lost, and deliveries of webhooks that are due, by the time of the
    database.
    """
    states = Model.objects.filter(state__in=[State.CREATING, State.DELETING])
    return [states, _unclean(), RegistryDelivery.objects.filter(open=True, not_before__lte=Now())]


def _unclean() -> QuerySet:
    return Model.objects.filter(state__in=[State.READY, State.ERROR]).exclude(run_name="")
