"""The interface to what keeps the reports of jobs: tracking.reports, which registers itself (tracking/apps.py).

Tracking is an app above this one. It stores what a job's script sends; this app says when a run begins and ends.
"""

from __future__ import annotations

from typing import Protocol

from .models import Job


class Tracker(Protocol):
    """Keeps the reports of jobs. Each call may be repeated."""

    def begin(self, job: Job) -> None:
        """Forget what an earlier attempt has left in the job's folder."""

    def collect(self, job: Job, ended: float | None) -> bool:
        """Store what the job's run has left in its folder; the run ended at that Unix time, if that is known.
        Return whether to go on: not while earlier reports wait to be stored.
        """

    def end(self, job: Job) -> None:
        """End what the job has begun within itself, and has not ended."""

    def forget_points(self, pk: int) -> None:
        """Delete the points of a job's metrics that are not rows of this app."""


_trackers: list[Tracker] = []


def register(tracker: Tracker) -> None:
    """Let this one keep the reports, instead of any other."""
    _trackers[:] = [tracker]


def get() -> Tracker:
    """Return what keeps the reports."""
    return _trackers[0]
