"""What heals trainings: looks at every run, tells every end that was not told. Called by `manage.py reconcile`.

And people's words on lines: each gets to the stored lines in the end.
"""

from __future__ import annotations

import logging

from django.db.models import Q

from mlp.kernel.errors import Fault
from mlp.runners import RunnerError

from . import feedback, training
from .models import ENDED, State, TrainingRun

log = logging.getLogger(__name__)


def run() -> None:
    for row in TrainingRun.objects.filter(state=State.TRAINING):
        _tolerant(training.look, row)
    untold = Q(announced=False) | Q(job_end_sent=False) | ~Q(run_name="")
    for pk in TrainingRun.objects.filter(untold, state__in=ENDED).values_list("pk", flat=True):
        _tolerant(training.settle, pk)
    _tolerant(training.free_lease)
    _tolerant(feedback.heal)
    training.sweep()


def _tolerant(work, *what) -> None:
    """One training's trouble (a server away) does not keep the others from their turn."""
    try:
        work(*what)
    except (Fault, RunnerError) as problem:
        log.warning("%s %s: %s; trying again", work.__name__, *what or ("",), problem)
