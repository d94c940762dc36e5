"""Every change of a job goes through here. Called by api, pages, admin, actors, reconcile and metrics.

The tenant's gpu, cpu and ram: tried when the job is admitted, confirmed when its run has started, released when the run
is cleaned up (cancelled when it never started). How a job's runs are started and stopped is in jobs.launching.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.sharing.access import Visitor
from accounts.tenancy import members
from datasets import sources
from kernel import after_commit, broker, disk, trash
from kernel.database import violated, with_related
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, lock_row, locked
from kernel.messages import Message, word
from kernel.models import record_created
from kernel.outcomes import Outcome
from kernel.telemetry import tracing
from resources import admission_hooks, tcc
from runners import owned

from . import checks
from .artifacts import inputs as job_inputs
from .artifacts import outputs
from .code import snapshot_code
from .models import Capture, Job, ProgressSource, Project, Snapshot, State
from .queue import gpus, turns
from .summaries import colours, params

APPLIER = "jm"
REPORTED = Message("reported by the job")
CANCELLED = Message("cancelled")
PROGRESS = ["progress", "progress_source", "expected_end"]  # fields that `advance` changes
LONGEST_S = 10 * 365 * 86400  # that a script may expect to need
BACKOFF_S = (2, 10, 30, 60, 120, 300)


def request_id(pk: int) -> str:
    return f"job:{pk}"


def create_job(
    *, user, name: str, entry: str, title: str = "", runtime: str = "python", gpu: int = 0, cpu: float = 1,
    ram: int = 512, tenant: str | None = None, datasets: tuple | list = (), inputs: dict | None = None,
    args: tuple | list = (), env: dict | None = None, retries: int = 0, timeout: int | None = None, priority: int = 0,
    preemptible: bool = False, workers: int = 1, network: str = "", project: str | None = None,
    tags: dict | None = None, notes: str = "", group: str = "", requirements: str = "",
    find_requirements: bool = False, registry: str = "versions", registry_models: tuple | list = (),
    code_from: str | None = None, script: str | None = None, snapshot: Snapshot | None = None, environment: str = "",
    image: str = "", gpu_type: str = "", output_uri: str = "", visitor: Visitor | None = None,
    within: Callable[[Job], object] | None = None, by: str,
) -> Job:  # fmt: skip
    """Create the row and queue the job; reserve its resources at once when no job waits and they are free.

    `timeout` is in seconds from the first start, `priority` among the user's own queued jobs. `project` is the name of
    one of the user's, made where there is none; None: the default one. The code is the script's folder in `.home`, or
    that of the job `code_from` (`owner/name` of one that `visitor`, the user by default, may clone), or the `snapshot`;
    `script` replaces the script's text. `within` is called with the new job in its transaction; it refuses by raising.

    `requirements` are lines of a requirements file, `-r FILE` a file of the code; `find_requirements`: see finding.py.
    `environment` is in place of both. `image` is one of the runner's, `gpu_type` one of its GPUs' (resources.products).
    `inputs` are outputs: {"DATA": "job/path"}.
    Raises Refused, for example above the tenant's capacity; Fault without the task queue; nothing is stored then.
    """
    earlier = snapshot or checks.code_of(user, entry, code_from, script, visitor)
    chosen = members.chosen(user, tenant)
    needs = {"gpu": gpu, "cpu": cpu, "ram": ram, "gpu_type": gpu_type}
    checks.need_possible(chosen, user.username, workers, network, preemptible, image, **needs)
    broker.require()
    disk.require()
    try:
        with snapshot_code.taken(user, entry, earlier, script) as code, transaction.atomic():
            checks.need_notebook(user, entry, args, workers, code)
            members.hold(user, chosen.name)
            packages = checks.packages_of(user, chosen, requirements, find_requirements, environment, entry, code)
            sources.hold(user, datasets)
            checks.need_data(user, datasets, output_uri)
            job_inputs.need_inputs(user, inputs or {})
            job = Job.objects.create(
                user=user, tenant=chosen, name=name, title=title, entry=entry, runtime=runtime, gpu=gpu, cpu=cpu,
                ram=ram, datasets=sources.numbered(user, datasets), args=list(args), env=dict(env or {}),
                retries=retries, job_inputs=dict(inputs or {}), timeout=timeout, priority=priority,
                preemptible=preemptible, workers=workers, network=network, registry=registry,
                registry_models=list(registry_models), project=Project.objects.named(user, project),
                tags=dict(tags or {}), notes=notes, group=group, image=image, gpu_type=gpu_type, **packages,
                snapshot=snapshot_code.record(user, code), colour=colours.following(user), output_uri=output_uri,
                traceparent=tracing.traceparent(),
            )  # fmt: skip
            _enter(job, code, by, within)
    except IntegrityError as problem:
        if violated(problem) == "job_name_once_per_user":
            raise Refused(checks.taken(user, name), field="name")
        raise
    return job


def _enter(job: Job, code: snapshot_code.Taken, by: str, within: Callable[[Job], object] | None) -> None:
    """Record what belongs to a new job, and queue it."""
    if within is not None:
        within(job)
    params.keep_arguments(job)
    if code.git:
        Capture.objects.create(job=job, git=code.git)
    record_created(job, by=by)
    _queue(job)


def _queue(job: Job) -> None:
    """Reserve the resources of a new job when no other waits for its own."""
    if not turns.waiting().exclude(pk=job.pk).exists():
        _reserve(job)
    if job.reserved:
        after_commit.enqueue("jobs.launch", job.pk, queue="launches")
    else:
        after_commit.enqueue_once("jobs.admit")


def heartbeat(
    *, user, name: str, state: str, progress: int, by: str, remaining: float | None = None, media: int = 0,
    source: str = ProgressSource.SCRIPT,
) -> None:  # fmt: skip
    """Record the job's own report. Progress never goes backwards. Raises WrongState once the job has ended.

    `remaining` are the seconds that it expects to need. `media` is of no use but to be new: pages look again.
    """
    with locked(Job, user=user, name=name) as job:
        if not job.is_live:
            raise WrongState("the job is %(state)s; it accepts heartbeats only while it runs", state=word(job.state))
        begin(job, by=by)
        advance(job, progress, source, remaining)
        if state == State.FINISHED:
            _finish(job, by)
        elif state == State.ERROR and not job.stepping_back:  # else it fails because it is being stopped
            _fail(job, REPORTED, by)
        else:
            job.save(update_fields=PROGRESS)
            after_commit.wake("job", job.pk)
            after_commit.changed(user.username, "job", name, moving=True, progress=job.progress)


def advance(job: Job, progress: int, source: str, remaining: float | None = None) -> None:
    """Set on a locked job how far it is; the caller saves PROGRESS."""
    if remaining is not None:
        job.expected_end = timezone.now() + timedelta(seconds=min(remaining, LONGEST_S))
        job.progress_source = source
    elif progress > 0 and job.progress_source != ProgressSource.TRAINER:  # which knows more
        if progress > job.progress or source != job.progress_source:
            job.expected_end = None
        job.progress_source = source
    job.progress = max(job.progress, progress)


def note_bar(pk: int, run_name: str, progress: int, remaining: float | None) -> None:
    """Record what a progress bar in the log of that run shows, unless the script reports its progress itself."""
    with suppress(Missing), locked(Job, pk=pk) as job:
        if job.run_name == run_name and job.is_live and job.progress_source in ("", ProgressSource.LOG):
            advance(job, progress, ProgressSource.LOG, remaining)
            job.save(update_fields=PROGRESS)
            after_commit.wake("job", job.pk)
            after_commit.changed(job.user.username, "job", job.name, moving=True, progress=job.progress)


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
            if job.attempt == 1:
                tracing.waited("job.queued", job.created, job.traceparent, mlp__job=job.name)
        return with_related(job, "user", "tenant", "snapshot")


def note_start(pk: int, run_name: str, begins: bool = True) -> None:
    """Record that the run is on record; the job runs then, unless the run may wait for a node (without `begins`).

    One whose job has moved on meanwhile is left to be swept or cleaned away.
    """
    with suppress(Missing), locked(Job, pk=pk) as job:
        if job.run_name != run_name:
            return
        job.run_started = True
        if not job.is_live:
            after_commit.enqueue("jobs.clean", pk)
        elif begins and job.state == State.CREATING:
            return begin(with_related(job, "user"), by="runner")  # saves it
        job.save(update_fields=["run_started"])


def note_run(pk: int, run_name: str, waits_for: str | None) -> None:
    """Record that the run of a job that is still starting has a process (None), or what it waits for."""
    reason = Message("waiting to start: %(reason)s", reason=waits_for) if waits_for else ""
    with suppress(Missing), locked(Job, pk=pk) as job:
        if job.run_name != run_name or job.state != State.CREATING:
            return
        if waits_for is None:
            begin(job, by="runner")
        elif job.reason != reason:
            job.reason = reason
            job.save(update_fields=["reason"])
            after_commit.wake("job", pk)
            after_commit.changed(job.user.username, "job", job.name)


def release_run(job: Job) -> None:
    """Release the resources of a locked job whose run is gone, and let the next job in."""
    job.run_started = False
    job.save(update_fields=["run_name", "run_started"])
    give_back(job)
    after_commit.enqueue_once("jobs.admit")


def begin(job: Job, *, by: str) -> None:
    """Move a locked job from creating to running; called at the first evidence that its run has started."""
    if job.state != State.CREATING:
        return
    job.start(by=by)
    now = timezone.now()
    job.queued_s += (now - job.requeued).total_seconds() if job.requeued else 0
    job.started, job.requeued, job.reason = job.started or now, None, ""
    job.save()
    tcc.confirm(id=request_id(job.pk), applier=APPLIER)
    after_commit.wake("job", job.pk)


def finish(pk: int, run_name: str, by: str) -> None:
    """Move the job from running to finished, provided that run is still its current one."""
    with locked(Job, pk=pk) as job:
        if job.run_name == run_name and job.is_live:
            begin(with_related(job, "user"), by=by)
            _finish(job, by)


def end_attempt(
    pk: int, run_name: str, reason: str, by: str, outcome: str = Outcome.FAILED, exit_code: int | None = None
) -> Job | None:
    """Record a failed run: schedule the next attempt while retries are left, else fail the job and return it."""
    with locked(Job, pk=pk) as job:
        if job.run_name != run_name or not job.is_live:
            return None
        if job.attempt >= job.attempts_allowed:
            _fail(job, reason, by, outcome, exit_code)
            return job
        begin(job, by=by)
        pause = BACKOFF_S[min(job.attempt, len(BACKOFF_S)) - 1]
        job.reason = Message("attempt %(number)s: %(reason)s", number=job.attempt, reason=reason)
        job.not_before = timezone.now() + timedelta(seconds=pause)
        job.attempt += 1
        job.run_name, job.run_started, job.metrics_until = run_name_of(job), False, None
        job.progress_source, job.expected_end, job.idle_warned = "", None, None
        job.save()
        after_commit.enqueue("jobs.launch", job.pk, queue="launches", delay_ms=pause * 1000)
        after_commit.wake("job", job.pk)
        after_commit.changed(job.user.username, "job", job.name)
    return None


def stop_overdue(pk: int) -> None:
    """Move a job that has run for longer than its time limit to error; its run is stopped as by a cancel."""
    with suppress(Missing, WrongState), locked(Job, pk=pk) as job:
        if job.is_overdue:
            reason = Message("the time limit of %(seconds)s s is exceeded", seconds=job.timeout)
            _fail(job, reason, "reconcile", Outcome.TIMED_OUT)


def fail(pk: int, reason: str, by: str) -> None:
    """Move a job from creating or running to error. One that has ended or no longer exists is left alone."""
    with suppress(Missing, WrongState), locked(Job, pk=pk) as job:
        _fail(job, reason, by)


def cancel(*, user, name: str, by: str, reason: str = CANCELLED, outcome: str = Outcome.CANCELLED) -> Job:
    """Move a job to error, by default as cancelled; its run gets SIGTERM, then SIGKILL, in the background."""
    with locked(Job, user=user, name=name) as job:
        _fail(job, reason, by, outcome)
    return job


def cancel_all_of(user, by: str) -> None:
    """Cancel all queued and running jobs of a de-registered user; called inside that transaction."""
    live = Job.objects.filter(user=user, state__in=[State.CREATING, State.RUNNING]).order_by("pk")
    for job in list(live.select_for_update(no_key=True)):  # all of them before the tenant's row
        _fail(job, accounts.DEACTIVATED, by, Outcome.CANCELLED)


def delete_job(*, user, name: str, by: str, trashed: datetime | None = None) -> Job:
    """Move a job from finished or error to deleting; its files are removed in the background, then the row.

    `trashed`: only if it has been in the trash since then. Raises WrongState in any other state.
    """
    with locked(Job, user=user, name=name) as job:
        trash.require_since(job, trashed)
        job.erase(by=by)
        job.save()
        after_commit.enqueue("jobs.erase", job.pk, queue="files")
        after_commit.wake("job", job.pk)
    return job


def reserve_next() -> list[int]:
    """Admit queued jobs in the order of jobs.queue.turns, as far as they fit; return their ids."""
    admission_hooks.serve()
    order, admitted = turns.turns(), []
    while entry := order.take():
        with transaction.atomic():
            job = lock_row(Job, pk=entry.pk)
            if job is None or job.state != State.CREATING or job.reserved:
                continue
            if (refusal := _reserve(job, order.stopped, order.ahead)) is not None:
                order.refused(entry, refusal)
                continue
            after_commit.enqueue("jobs.launch", entry.pk, queue="launches")
        order.admitted(entry)
        admitted.append(entry.pk)
    return admitted


def run_name_of(job: Job) -> str:
    return f"job-{job.pk}-{job.attempt}"


def _reserve(job: Job, stopped: Collection[int] | None = None, ahead: Counter | None = None) -> Refused | None:
    """Reserve the job's resources in the caller's transaction. Return the refusal, None when they are reserved. Jobs
    of a user who has stored too much wait.

    A preemptible job may borrow from other tenants than those `stopped`; from none without these. `ahead` are the GPUs
    by type that are left to jobs ahead of it.
    """
    borrows = job.preemptible and stopped is not None
    try:
        outputs.require(job.user_id)
        gpus.require(job, ahead)
        tcc.try_(
            id=request_id(job.pk), applier=APPLIER, request_type="request", tenant=job.tenant.name,
            owner=job.user.username, borrows=borrows, closed=stopped or (), **job.needs,
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


def _fail(job: Job, reason: str, by: str, outcome: str = Outcome.FAILED, exit_code: int | None = None) -> None:
    job.fail(by=by, reason=reason, outcome=outcome, exit_code=exit_code)
    job.diagnosed = job.is_client or job.was_stopped  # there is nothing to find out
    _close(job)
    if not job.diagnosed:
        after_commit.enqueue("jobs.diagnose", job.pk)


def _close(job: Job) -> None:
    """Close a job, however it ended: later metrics are rejected; the run, and with it the resources, is cleaned up in
    the background.
    """
    job.ended, job.idle_warned, job.output_measured = timezone.now(), None, None
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


def adopt() -> None:
    """Move jobs without a project, which an older version of the platform has created, to their default project."""
    for job in Job.objects.filter(project=None).select_related("user")[:200]:
        Job.objects.filter(pk=job.pk, project=None).update(project=Project.objects.default_of(job.user))
