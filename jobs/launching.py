"""Between a job's row and its run: order it, look at it, clean it away. Called by actors and reconcile.

A runner is never called while a lock is held: each verb locks, decides, commits, then acts, then locks again to write
down what came of it. Every step may be repeated: the runner's calls are idempotent by the run's name. An actor
`follow`s: it looks again soon; what reconcile enqueues does not, for reconcile comes back by itself, and each of its
messages would begin one more chain of them.
"""

from __future__ import annotations

import contextlib

from django.conf import settings
from django.utils import timezone

import runners
from kernel import after_commit, healing, storage
from kernel.errors import Refused
from kernel.locking import Missing, locked
from kernel.messages import Message, with_lines
from runners import tail

from . import environment, lifecycle
from .models import Job, State

REPORT_GRACE_S = 30  # how long a script that has reported its end may take to exit
LOG_LINES_IN_REASON = 5
LAUNCH_PATIENCE_S = 300
GONE = Message("the run no longer exists: the machine or its runner was restarted")


def launch(pk: int) -> None:
    """Orders the run of a job whose resources are reserved and whose time has come; else does nothing.

    What cannot be ordered for a reason of its own ends in error at once; a fault of the runner is tried again, by the
    task queue and by reconcile, for LAUNCH_PATIENCE_S.
    """
    try:
        with locked(Job, pk=pk) as job:
            waiting = job.state == State.CREATING and job.reserved
            retrying = job.state == State.RUNNING and not job.run_started
            if not (waiting or retrying) or (job.not_before and job.not_before > timezone.now()):
                return
            if not job.run_name:
                job.attempt = max(1, job.attempt)
                job.run_name = lifecycle.run_name_of(job)
                job.not_before = timezone.now()
                job.save(update_fields=["attempt", "run_name", "not_before"])
            user = job.user
    except Missing:
        return
    try:
        runners.get().start(environment.run_spec(job, user))
    except (Refused, ValueError) as problem:
        lifecycle.fail(pk, Message("could not be started: %(problem)s", problem=problem), by="runner")
        return
    except (runners.RunnerError, OSError) as problem:
        if (timezone.now() - job.not_before).total_seconds() < LAUNCH_PATIENCE_S:
            raise
        lifecycle.fail(pk, Message("could not be started: %(problem)s", problem=problem), by="runner")
        return
    _note_start(pk, job.run_name)


def _note_start(pk: int, run_name: str) -> None:
    """Writes down that the run has begun. A run whose job has moved on meanwhile is left to `sweep` and `clean`."""
    with contextlib.suppress(Missing), locked(Job, pk=pk) as job:
        if job.run_name != run_name:
            return
        job.run_started = True
        job.save(update_fields=["run_started"])
        if job.is_live:
            lifecycle.begin(job, by="runner")
        else:
            after_commit.enqueue("jobs.clean", pk)


def sweep() -> None:
    """Ends and forgets runs that belong to no job any more: earlier attempts, or one begun just as it was cancelled.

    A run's name is committed to its job before it is ordered, so a name that no job carries is nobody's.
    """
    runner = runners.get()
    names = [name for name in runner.names() if name.startswith("job-")]
    owned = set(Job.objects.filter(run_name__in=names).values_list("run_name", flat=True))
    healing.each(runner.let_go, sorted(set(names) - owned))


def look(job: Job) -> None:
    """Asks the runner how a live job's run is, and writes down its end."""
    status = runners.get().poll(job.run_name)
    if status.state == "running":
        return
    if status.state == "unknown":
        if not job.run_started:
            return after_commit.enqueue("jobs.launch", job.pk)
        reason = GONE
    else:
        reason = status.reason
    if status.state == "exited" and status.exit_code == 0:
        lifecycle.finish(job.pk, job.run_name, by="runner")
    else:
        lifecycle.end_attempt(job.pk, job.run_name, _with_log(job, reason), by="runner")


def clean(pk: int, follow: bool = True) -> None:
    """Ends and forgets the run of a job that has ended, gives its resources back and lets the next job in."""
    job = Job.objects.filter(pk=pk).first()
    if job is None or not job.has_ended:
        return
    if job.run_name:
        runner = runners.get()
        reported = job.state == State.FINISHED or job.reason == lifecycle.REPORTED
        patience = REPORT_GRACE_S if reported and job.ended else 0
        if runner.poll(job.run_name).state == "running":
            if (timezone.now() - job.ended).total_seconds() >= patience:
                runner.stop(job.run_name, settings.JOB_CANCEL_GRACE_S)
            if follow:
                after_commit.enqueue("jobs.clean", pk, delay_ms=500)
            return
        runner.forget(job.run_name)
    with locked(Job, pk=pk) as row:
        if row.run_name == job.run_name:
            row.run_name, row.run_started = "", False
            row.save(update_fields=["run_name", "run_started"])
            lifecycle.give_back(row)
            after_commit.enqueue("jobs.admit")


def erase(pk: int, follow: bool = True) -> None:
    """Removes a deleted job's files, then its row. Any number of times."""
    job = Job.objects.select_related("user").filter(pk=pk, state=State.DELETING).first()
    if job is None:
        return
    if job.run_name or job.reserved:
        clean(pk, follow=False)
        if follow:
            after_commit.enqueue("jobs.erase", pk, queue="files", delay_ms=1000)
        return
    storage.remove_tree(storage.job_dir(job.user.username, job.name))
    try:
        with locked(Job, pk=pk) as row:
            row.delete()
            after_commit.wake("job", pk)
            after_commit.changed(job.user.username, "job", job.name)
    except Missing:
        return


def _with_log(job: Job, reason: str) -> str:
    return with_lines(reason, tail(environment.log_path(job), LOG_LINES_IN_REASON).splitlines())
