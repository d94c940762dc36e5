"""Reconciles sweeps, pipelines and schedules: repeats what a lost message should have done.

Called by `manage.py reconcile` each round. What fails here does not affect the others.
"""

from __future__ import annotations

from django.db.models import QuerySet
from django.db.models.functions import Now

from kernel import after_commit, healing

from .pipelines import progress as pipelines
from .schedules import firing as schedules
from .sweeps import progress as sweeps


def run() -> None:
    """Run one round."""
    for step in STEPS:
        healing.attempt(step)


def pending() -> list[QuerySet]:
    """Return what a round is needed for: what is due, by the time of the database."""
    return [*schedules.due(Now()), *sweeps.unfinished(), *pipelines.unfinished()]


def _advance_sweeps() -> None:
    for pk in sweeps.open_sweeps():
        after_commit.enqueue("automation.sweep", pk)


def _advance_pipelines() -> None:
    for pk in pipelines.open_runs():
        after_commit.enqueue("automation.pipeline", pk)


STEPS = (schedules.run, _advance_sweeps, _advance_pipelines)
