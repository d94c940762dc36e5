"""What heals trainings: looks at every run, tells every end that was not told. Called by `manage.py reconcile`.

And the files of the model's versions, which follow the rows; and people's words on lines: each gets to the stored lines
in the end.
"""

from __future__ import annotations

from django.db.models import Q

from kernel import healing

from .judging import feedback
from .models import ENDED, State, TrainingRun
from .training import launching, versions


def run() -> None:
    healing.each(launching.look, TrainingRun.objects.filter(state=State.TRAINING))
    untold = Q(announced=False) | Q(job_end_sent=False) | ~Q(run_name="")
    ended = TrainingRun.objects.filter(untold, state__in=ENDED)
    for pk in ended.values_list("pk", flat=True):
        healing.attempt(launching.settle, pk, False)
    healing.attempt(launching.free_lease)
    healing.attempt(versions.prune)
    healing.attempt(feedback.heal)
    healing.attempt(launching.sweep)
