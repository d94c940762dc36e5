"""Keeps the reports of jobs, for the app of jobs (jobs.tracker)."""

from __future__ import annotations

from jobs.models import Job
from tracking import client_runs
from tracking.metrics import blocks, journal


class Reports:
    """The tracker of jobs: journals and blocks of metrics, and the runs that MLflow's clients begin within a job."""

    def begin(self, job: Job) -> None:
        journal.forget(job)

    def collect(self, job: Job, ended: float | None) -> bool:
        return journal.collect(job, ended)

    def end(self, job: Job) -> None:
        client_runs.end_nested(job)

    def forget_points(self, pk: int) -> None:
        blocks.forget(pk)
