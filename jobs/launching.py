"""Between a job's row and its run: what is a job's own; runners.owned has the rest. Called by actors and reconcile."""

from __future__ import annotations

import contextlib

from django.conf import settings
from django.db import transaction

import runners
from datasets import sources
from datasets.buckets import caching
from kernel import after_commit, healing, storage, trash
from kernel.errors import Refused
from kernel.locking import Missing, lock_row, locked
from kernel.messages import Message
from kernel.outcomes import Outcome
from runners import owned
from runners.base import log_of_worker

from . import environment, idle, lifecycle, preemption, progress_bar, tracker
from .artifacts import inputs as job_inputs
from .artifacts import space
from .code import capture, sweeping
from .doctor import diagnose
from .models import Job, State
from .notebooks import place as notebooks
from .packages import building
from .packages.named import locating

REPORT_GRACE_S = 30  # how long a script that has reported its end may take to exit,
QUIET_S = 5  # and how long it may do nothing meanwhile
DATASET_GONE = "the dataset %(name)s is not there any more"
GONE = Message("the run no longer exists: the machine or its runner was restarted")


class JobRuns(owned.OwnedRuns[Job]):
    """One run for each attempt of a job."""

    model, prefix = Job, "job-"

    order = staticmethod(lifecycle.order_run)
    release = staticmethod(lifecycle.release_run)

    def prepare(self, job: Job) -> bool:
        """Fail a job one of whose inputs or datasets is gone, or was another user's and is no longer shared.

        Returns False, too, while a job whose output it reads has not exited.
        """
        if gone := sources.missing(job.user, job.datasets):
            shared = "/" in gone[0]
            text = "the dataset %(name)s is no longer shared with you" if shared else DATASET_GONE
            self.fail(job.pk, Message(text, name=gone[0]))
        elif gone := sources.without_files(job.user, job.datasets):
            self.fail(job.pk, Message("the files of the dataset %(name)s are not there any more", name=gone))
        elif gone := job_inputs.gone_input(job):
            self.fail(job.pk, Message("its input %(source)s is not there any more", source=gone))
        elif waits := job_inputs.unended_input(job):  # `clean` of that job sends it again
            reason = Message("the job %(job)s, whose output it reads, has not exited yet", job=waits)
            lifecycle.note_run(job.pk, job.run_name, reason)
            return False
        else:
            capture.pin_datasets(job)
        return not gone and self._has_files(job) and self._has_packages(job) and self._has_gpus(job)

    def _has_files(self, job: Job) -> bool:
        """Return whether the files of the job's external datasets are here, and those of the external model that it
        scores with; reconcile asks again while they are not.
        """
        try:
            given = [caching.waits_for(place, job.not_before) for place in capture.places_of(job)]
            given += environment.extra_waits(job)
        except Refused as problem:
            self.fail(job.pk, problem.msg)
            return False
        if waits := next(filter(None, given), None):
            lifecycle.note_run(job.pk, job.run_name, waits)
        return waits is None

    def _has_gpus(self, job: Job) -> bool:
        """Return whether GPUs of its type are there now: those of runs that named none are known only here."""
        if lacking := owned.lacking_gpus(job.gpu_type, job.gpu * job.workers):
            lifecycle.note_run(job.pk, job.run_name, lacking)
        return not lacking

    def _has_packages(self, job: Job) -> bool:
        """Return whether the job's packages are installed; reconcile asks again while they are not."""
        if not job.needs_packages:
            return True
        try:
            return locating.ensure_for_job(job) is not None
        except building.Failed as problem:
            self.fail(job.pk, problem.reason)
            return False

    def trace(self, job: Job) -> str | None:
        """Return the request that has submitted the job, also where another job's end has made room for it."""
        return job.traceparent or None

    def spec(self, job: Job) -> runners.RunSpec:
        return environment.run_spec(job, job.user)

    def fail(self, pk: int, reason: str) -> None:
        lifecycle.fail(pk, reason, by="runner")

    def is_worth_retrying(self, job: Job, fault: Exception) -> bool:
        waits = isinstance(fault, runners.NoGpus)  # taken since `prepare`
        return waits or owned.seconds_since(job.not_before) < owned.LAUNCH_PATIENCE_S

    def started(self, job: Job) -> None:
        lifecycle.note_start(job.pk, job.run_name, begins=runners.get().starts_at_once)
        healing.attempt(capture.keep_datasets, job)

    def discard(self, job: Job) -> None:
        storage.remove_tree(environment.token_dir(job))
        tracker.get().begin(job)

    def clean(self, job: Job, grace_s: float | None) -> bool:
        """Read what a run has reported that was stopped, by a cancel or by a limit: `ended` has read that of others."""
        if job.run_name and not owned.stop(job.run_name, grace_s):
            return False
        return tracker.get().collect(job, job.ended and job.ended.timestamp()) and super().clean(job, grace_s)

    def running(self, job: Job, status: runners.RunStatus, follow: bool) -> None:
        if job.state == State.CREATING:
            lifecycle.note_run(job.pk, job.run_name, status.reason if status.waits else None)
        if not status.waits:
            progress_bar.record(job)
        if status.displaced:
            preemption.displace(job.pk, job.run_name, status.displaced)

    def unknown(self, job: Job, status: runners.RunStatus, follow: bool) -> None:
        if preemption.requeue(job.pk, job.run_name, None):
            return
        if job.run_started:
            tracker.get().collect(job, None)
            _failed(job, GONE, outcome=Outcome.LOST)
        else:
            after_commit.enqueue("jobs.launch", job.pk, queue="launches")

    def ended(self, job: Job, status: runners.RunStatus) -> None:
        if not tracker.get().collect(job, status.ended):
            return
        healing.attempt(capture.keep_environment, job)
        if preemption.requeue(job.pk, job.run_name, status.ended):
            return
        if status.succeeded:
            lifecycle.finish(job.pk, job.run_name, by="runner")
        else:
            outcome = Outcome.LOST if status.state == "lost" else Outcome.FAILED
            _failed(job, status.reason, status.worker, outcome, status.exit_code)


def _failed(job: Job, end: str, worker: int = 0, outcome: str = Outcome.FAILED, exit_code: int | None = None) -> None:
    """Record a failed run with the end of its log, which is that of the worker that has failed, and with its diagnosis
    where it was the last attempt.
    """
    if job.is_notebook and exit_code == notebooks.FAILED:
        end = notebooks.failure(storage.job_dir(job.user.username, job.name)) or end
    diagnosis = diagnose.examine(job, end)
    with transaction.atomic():
        log = log_of_worker(environment.log_path(job), worker)
        reason = owned.with_log(end, log)
        failed = lifecycle.end_attempt(job.pk, job.run_name, reason, "runner", outcome, exit_code)
        if failed is not None:
            diagnose.keep(failed, diagnosis)


RUNS = JobRuns()
launch, sweep = RUNS.launch, RUNS.sweep


def poll(job: Job) -> None:
    """Poll the run of a live job and record its end."""
    RUNS.poll(job)


def step_back(pk: int, follow: bool = True) -> None:
    """Stop the run of a job that steps back for another one, and put it into the queue again once that has ended."""
    job = preemption.step(pk)
    if job is None:
        return
    RUNS.poll(job)
    if follow:
        after_commit.enqueue("jobs.step_back", pk, delay_ms=500)


def clean(pk: int, follow: bool = True) -> None:
    """Stop and forget the run of a job that has ended, release its resources and admit the next job."""
    job = Job.objects.filter(pk=pk).first()
    if job is None or not job.has_ended:
        return
    tracker.get().end(job)
    reported = job.state == State.FINISHED or job.reason == lifecycle.REPORTED
    # An end that is far ahead was before the clock was set back.
    exiting = reported and job.ended and abs(owned.seconds_since(job.ended)) < REPORT_GRACE_S
    exiting = exiting and not idle.is_quiet(job, job.ended, QUIET_S)
    if RUNS.clean(job, None if exiting else settings.JOB_CANCEL_GRACE_S):
        for reader in job_inputs.waiting_for(job) if reported else ():
            after_commit.enqueue("jobs.launch", reader, queue="launches")
    elif follow:
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
    space.close(pk)
    storage.remove_tree(storage.job_dir(job.user.username, job.name))
    for worker in range(job.workers):
        environment.log_file(job, worker).forget()
    trash.forget_log("jobs", job.user.username, job.name)
    with contextlib.suppress(Missing), transaction.atomic():
        lock_row(type(job.user), pk=job.user_id)
        with locked(Job, pk=pk) as row:
            row.delete()
        sweeping.release(row.snapshot_id)
        after_commit.wake("job", pk)
        after_commit.changed(job.user.username, "job", job.name)
