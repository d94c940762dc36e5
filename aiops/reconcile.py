"""Healing of trainings: follows every run, sends every end message that is missing. Called by `manage.py reconcile`.

It also makes the files of the model's versions follow the rows, and applies users' feedback to the stored lines.
"""

from __future__ import annotations

from django.db.models import Q, QuerySet

from kernel import healing

from .judging import feedback
from .models import ENDED, Feedback, State, TrainingRun
from .training import erasing, launching, versions


def run() -> None:
    healing.each(launching.poll, _training())
    for pk in _unsettled().values_list("pk", flat=True):
        healing.attempt(launching.settle, pk, False)
    healing.attempt(launching.free_lease)
    healing.attempt(erasing.erase)
    healing.attempt(versions.prune)
    healing.attempt(feedback.heal)
    healing.attempt(launching.sweep)


def pending() -> list[QuerySet]:
    """Return what a round is needed for: trainings that are not announced as ended, feedback that is not applied."""
    return [_training(), _unsettled(), Feedback.objects.filter(settled=False)]


def _training() -> QuerySet:
    return TrainingRun.objects.filter(state=State.TRAINING)


def _unsettled() -> QuerySet:
    left = Q(announced=False) | Q(job_end_sent=False) | ~Q(run_name="")
    return TrainingRun.objects.filter(left, state__in=ENDED)
