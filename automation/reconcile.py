"""Reconciles sweeps, pipelines and schedules: repeats what a lost message should have done.

Called by `manage.py reconcile` each round. What fails here does not affect the others.
"""

from __future__ import annotations

from kernel import healing

STEPS = ()  # what each round does, of each room


def run() -> None:
    """Run one round."""
    for step in STEPS:
        healing.attempt(step)
