"""Between a job's row and its run: what is a job's own; runners.owned has the rest. Called by actors and reconcile."""

from __future__ import annotations

import contextlib

from django.conf import settings

import runners
from kernel import after_commit, storage
from kernel.locking import Missing, locked
from kernel.messages import Message
from runners import owned

from . import environment, lifecycle
from .models import Job, State

REPORT_GRACE_S = 30  # how long a script that has reported its end may take to exit
GONE = Message("the run no longer exists: the machine or its runner was restarted")


class JobRuns(owned.OwnedRuns[Job]):
    """One run for each attempt of a job."""

    model, prefix = Job, "job-"

    order = staticmethod(lifecycle.order_run)
    release = staticmethod(lifecycle.release_run)

    def spec(self, job: Job) -> runners.RunSpec:
        return environment.run_spec(job, job.user)

    def fail(self, pk: int, reason: str) -> None:
        lifecycle.fail(pk, reason, by="runner")

    def is_worth_retrying(self, job: Job, fault: Exception) -> bool:
        return owned.seconds_since(job.not_before) < owned.LAUNCH_PATIENCE_S

    def started(self, job: Job) -> None:
        lifecycle.note_start(job.pk, job.run_name)

    def unknown(self, job: Job, status: runners.RunStatus, follow: bool) -> None:
        if job.run_started:
            lifecycle.end_attempt(job.pk, job.run_name, owned.with_log(GONE, environment.log_path(job)), by="runner")
        else:
            after_commit.enqueue("jobs.launch", job.pk)

    def ended(self, job: Job, status: runners.RunStatus) -> None:
        if status.succeeded:
            lifecycle.finish(job.pk, job.run_name, by="runner")
        else:
            reason = owned.with_log(status.reason, environment.log_path(job))
            lifecycle.end_attempt(job.pk, job.run_name, reason, by="runner")


RUNS = JobRuns()
launch, sweep = RUNS.launch, RUNS.sweep


def look(job: Job) -> None:
    """Poll the run of a live job and record its end."""
    RUNS.look(job)


def clean(pk: int, follow: bool = True) -> None:
    """Stop and forget the run of a job that has ended, release its resources and admit the next job."""
    job = Job.objects.filter(pk=pk).first()
    if job is None or not job.has_ended:
        return
    reported = job.state == State.FINISHED or job.reason == lifecycle.REPORTED
    exiting = reported and job.ended and owned.seconds_since(job.ended) < REPORT_GRACE_S
    if not RUNS.clean(job, None if exiting else settings.JOB_CANCEL_GRACE_S) and follow:
        after_commit.enqueue("jobs.clean", pk, delay_ms=500)


def erase(pk: int, follow: bool = True) -> None:
    """Remove a deleted job's files, then its row. May be repeated."""
    job = Job.objects.select_related("user").filter(pk=pk, state=State.DELETING).first()
    if job is None:
        return
    if job.run_name or job.reserved:
        clean(pk, follow=False)
        if follow:
            after_commit.enqueue("jobs.erase", pk, queue="files", delay_ms=1000)
        return
    storage.remove_tree(storage.job_dir(job.user.username, job.name))
    with contextlib.suppress(Missing), locked(Job, pk=pk) as row:
        row.delete()
        after_commit.wake("job", pk)
        after_commit.changed(job.user.username, "job", job.name)
