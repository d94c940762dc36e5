"""Every change of a job goes through here. Called by api, pages, admin, actors, reconcile and metrics.

The tenant's gpu, cpu and ram: tried when the job is admitted, confirmed when its run has started, released when the run
is cleaned up (cancelled when it never started). How a job's runs are started and stopped is in jobs.launching.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

import runners
from accounts import lifecycle as accounts
from datasets.models import Dataset
from datasets.models import State as DatasetState
from kernel import after_commit, broker, names, storage
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, lock_row, locked
from kernel.messages import Message, word
from kernel.models import record_created
from resources import tcc
from resources.limits import OverLimit
from runners import owned

from .models import Job, State

APPLIER = "jm"
REPORTED = Message("reported by the job")
CANCELLED = Message("cancelled")
LONG_AGO = datetime.min.replace(tzinfo=UTC)
BACKOFF_S = (2, 10, 30, 60, 120, 300)


def request_id(pk: int) -> str:
    return f"job:{pk}"


def create_job(
    *,
    user,
    name: str,
    entry: str,
    runtime: str = "python",
    gpu: int = 0,
    cpu: float = 1,
    ram: int = 512,
    tenant: str | None = None,
    datasets: tuple | list = (),
    args: tuple | list = (),
    env: dict | None = None,
    retries: int = 0,
    workers: int = 1,
    network: str = "",
    by: str,
) -> Job:
    """Create the row and queue the job; reserve its resources at once when no job waits and they are free.

    Raises Refused: a missing script or dataset, a name taken, more than the tenant's capacity or the user's limit.
    Raises Fault, with nothing stored, when the task queue is away.
    """
    script = storage.safe_join(storage.home_dir(user.username), names.entry(entry))
    if not script.is_file():
        raise Refused("the script %(entry)s does not exist; upload it to .home first", field="entry", entry=entry)
    own = user.tenant
    if tenant not in (None, own.name):
        raise Missing("tenant")  # somebody else's, or none at all: the two answer alike
    if workers > 1 and not runners.get().many_workers:
        raise Refused("must be 1: this platform does not run jobs with more than one worker", field="workers")
    if network and runners.narrowest(network, own.network_policy) != network:
        raise Refused("at most %(policy)s is allowed in your tenant", field="network", policy=own.network_policy)
    tcc.never_fits(own, user.username, gpu=gpu * workers, cpu=cpu * workers, ram=ram * workers)
    broker.require()
    try:
        with transaction.atomic():
            accounts.hold_active(user)
            _need_datasets(user, datasets)
            job = Job.objects.create(
                user=user, tenant=own, name=name, entry=entry, runtime=runtime, gpu=gpu, cpu=cpu, ram=ram,
                datasets=list(dict.fromkeys(datasets)), args=list(args), env=dict(env or {}), retries=retries,
                workers=workers, network=network,
            )  # fmt: skip
            record_created(job, by=by)
            if not _waiting().exclude(pk=job.pk).exists():
                _reserve(job)
            if job.reserved:
                after_commit.enqueue("jobs.launch", job.pk)
            else:
                after_commit.enqueue("jobs.admit")
    except IntegrityError as problem:
        if violated(problem) == "job_name_once_per_user":
            raise Refused("you already have a job named %(name)s", field="name", name=name)
        raise
    return job


def heartbeat(*, user, name: str, state: str, progress: int, by: str) -> None:
    """Record the job's own report. Progress never goes backwards. Raises WrongState once the job has ended."""
    with locked(Job, user=user, name=name) as job:
        if not job.is_live:
            raise WrongState("the job is %(state)s; it accepts heartbeats only while it runs", state=word(job.state))
        begin(job, by=by)
        job.progress = max(job.progress, progress)
        if state == State.FINISHED:
            _finish(job, by)
        elif state == State.ERROR:
            _fail(job, REPORTED, by)
        else:
            job.save(update_fields=["progress"])
            after_commit.wake("job", job.pk)
            after_commit.changed(user.username, "job", name, moving=True)


def order_run(pk: int) -> Job | None:
    """Name the run of a job that has its resources and whose time has come; return the job, None for any other.

    Raises Missing.
    """
    with locked(Job, pk=pk) as job:
        waiting = job.state == State.CREATING and job.reserved
        retrying = job.state == State.RUNNING and not job.run_started
        if not (waiting or retrying) or not owned.has_come(job.not_before):
            return None
        if not job.run_name:
            job.attempt = max(1, job.attempt)
            job.run_name = run_name_of(job)
            job.not_before = timezone.now()
            job.save(update_fields=["attempt", "run_name", "not_before"])
        return job


def note_start(pk: int, run_name: str) -> None:
    """Record that the run has started. One whose job has moved on meanwhile is left to be swept or cleaned away."""
    with suppress(Missing), locked(Job, pk=pk) as job:
        if job.run_name != run_name:
            return
        job.run_started = True
        job.save(update_fields=["run_started"])
        if job.is_live:
            begin(job, by="runner")
        else:
            after_commit.enqueue("jobs.clean", pk)


def release_run(job: Job) -> None:
    """Release the resources of a locked job whose run is gone, and let the next job in."""
    job.run_started = False
    job.save(update_fields=["run_name", "run_started"])
    give_back(job)
    after_commit.enqueue("jobs.admit")


def begin(job: Job, *, by: str) -> None:
    """Move a locked job from creating to running; called at the first evidence that its run has started."""
    if job.state != State.CREATING:
        return
    job.start(by=by)
    job.started = timezone.now()
    job.save()
    tcc.confirm(id=request_id(job.pk), applier=APPLIER)
    after_commit.wake("job", job.pk)


def finish(pk: int, run_name: str, by: str) -> None:
    """Move the job from running to finished, provided that run is still its current one."""
    with locked(Job, pk=pk) as job:
        if job.run_name == run_name and job.is_live:
            begin(job, by=by)
            _finish(job, by)


def end_attempt(pk: int, run_name: str, reason: str, by: str) -> None:
    """Record a failed run: schedule the next attempt while retries are left, else move the job to error."""
    with locked(Job, pk=pk) as job:
        if job.run_name != run_name or not job.is_live:
            return
        if job.attempt > job.retries:
            _fail(job, reason, by)
            return
        begin(job, by=by)
        pause = BACKOFF_S[min(job.attempt, len(BACKOFF_S)) - 1]
        job.reason = Message("attempt %(number)s: %(reason)s", number=job.attempt, reason=reason)
        job.not_before = timezone.now() + timedelta(seconds=pause)
        job.attempt += 1
        job.run_name, job.run_started, job.metrics_until = run_name_of(job), False, None
        job.save()
        after_commit.enqueue("jobs.launch", job.pk, delay_ms=pause * 1000)
        after_commit.wake("job", job.pk)
        after_commit.changed(job.user.username, "job", job.name)


def fail(pk: int, reason: str, by: str) -> None:
    """Move a job from creating or running to error. One that has ended or no longer exists is left alone."""
    with suppress(Missing, WrongState), locked(Job, pk=pk) as job:
        _fail(job, reason, by)


def cancel(*, user, name: str, by: str) -> Job:
    """Move a job to error with the reason "cancelled"; its run gets SIGTERM, then SIGKILL, in the background."""
    with locked(Job, user=user, name=name) as job:
        _fail(job, CANCELLED, by)
    return job


def cancel_all_of(user, by: str) -> None:
    """Cancel all queued and running jobs of a de-registered user; called inside that transaction."""
    live = Job.objects.filter(user=user, state__in=[State.CREATING, State.RUNNING]).order_by("pk")
    for job in list(live.select_for_update(no_key=True)):  # all of them before the tenant's row
        _fail(job, accounts.DEACTIVATED, by)


def delete_job(*, user, name: str, by: str) -> Job:
    """Move a job from finished or error to deleting; its files are removed in the background, then the row.

    Raises WrongState in any other state.
    """
    with locked(Job, user=user, name=name) as job:
        job.erase(by=by)
        job.save()
        after_commit.enqueue("jobs.erase", job.pk, queue="files")
        after_commit.wake("job", job.pk)
    return job


def reserve_next() -> list[int]:
    """Admit queued jobs; return their ids. The user with the fewest admitted jobs is first, then the longest wait.

    A tenant's queue stops at the first that does not fit, so that a large job is not starved by small ones that come
    later; when only its user's limit is in the way, just that user's jobs stop there.
    """
    held = Counter(Job.objects.filter(reserved=True).values_list("user_id", flat=True))
    waiting = list(_waiting().values_list("pk", "user_id", "tenant_id"))
    started = Job.objects.filter(user_id__in={user_id for _, user_id, _ in waiting}, started__isnull=False)
    served = dict(started.values_list("user_id").annotate(last=Max("started")))
    admitted = []
    while waiting:
        # Of equals `min` takes the first, which has waited longest.
        first = min(waiting, key=lambda entry: (held[entry[1]], served.get(entry[1], LONG_AGO)))
        waiting.remove(first)
        pk, user_id, tenant_id = first
        with transaction.atomic():
            job = lock_row(Job, pk=pk)
            if job is None or job.state != State.CREATING or job.reserved:
                continue
            refusal = _reserve(job)
            if refusal is not None:
                stopped = (user_id, tenant_id) if isinstance(refusal, OverLimit) else (tenant_id,)
                waiting = [entry for entry in waiting if entry[-len(stopped) :] != stopped]
                continue
            after_commit.enqueue("jobs.launch", pk)
        held[user_id] += 1
        admitted.append(pk)
    return admitted


def run_name_of(job: Job) -> str:
    return f"job-{job.pk}-{job.attempt}"


def _waiting():
    return Job.objects.filter(state=State.CREATING, reserved=False).order_by("pk")


def _reserve(job: Job) -> Refused | None:
    """Reserve the job's resources in the caller's transaction. Return the refusal, None when they are reserved."""
    try:
        tcc.try_(
            id=request_id(job.pk), applier=APPLIER, request_type="request", tenant=job.tenant.name,
            owner=job.user.username, **job.needs,
        )  # fmt: skip
    except Refused as refusal:
        return refusal
    job.reserved = True
    job.save(update_fields=["reserved"])
    after_commit.changed(job.user.username, "job", job.name)
    return None


def _finish(job: Job, by: str) -> None:
    job.finish(by=by)
    _close(job)


def _fail(job: Job, reason: str, by: str) -> None:
    job.fail(by=by, reason=reason)
    _close(job)


def _close(job: Job) -> None:
    """Close a job, however it ended: later metrics are rejected; the run, and with it the resources, is cleaned up in
    the background.
    """
    job.ended = timezone.now()
    job.save()
    if not job.run_name:
        give_back(job)
    after_commit.enqueue("jobs.clean", job.pk)
    after_commit.wake("job", job.pk)


def give_back(job: Job) -> None:
    """Release the resources of a locked job whose run is gone."""
    if job.reserved:
        job.reserved = False
        job.save(update_fields=["reserved"])
        tcc.release(id=request_id(job.pk), applier=APPLIER)


def _need_datasets(user, wanted: tuple | list) -> None:
    ready = set(
        Dataset.objects.filter(user=user, name__in=wanted, state=DatasetState.READY).values_list("name", flat=True)
    )
    for name in wanted:
        if name not in ready:
            raise Refused("you have no ready dataset named %(name)s", field="datasets", name=name)
