"""Preemption: running jobs that said that they may be interrupted step back for a job that waits too long.

    choose   (reconcile) picks the victims of the first jobs in the queue that do not fit, and commits it to their rows
    step     SIGTERM to the run, SIGKILL after the grace period; repeated by reconcile until the run has ended
    requeue  in one transaction: back to the queue, resources released, the next attempt's number

Whoever is preempted keeps its place, output and number of retries. The job that the resources are for is admitted
before all others (turns.favoured). A preemptible job never preempts another one, so there is no circle; and one that
has just been restarted, or was preempted often enough, is left alone.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from django.conf import settings
from django.utils import timezone

import runners
from kernel import after_commit
from kernel.locking import Missing, WrongState, locked
from kernel.messages import Message
from resources import tcc
from resources.limits import OverLimit

from . import lifecycle, turns
from .doctor.line import Entry, Room, entries_of
from .models import Job, State

SKEW_S = 5  # between the clocks of nodes; Kubernetes keeps the ends of containers in whole seconds
NO_VICTIM = LookupError("no job steps back for it")


def run(now: datetime | None = None) -> list[int]:
    """Ask jobs to step back for those that have waited long enough; return the keys of those that were asked."""
    asked = []
    for victim, waiting in choose(now or timezone.now()):
        if ask(victim, waiting):
            asked.append(victim)
    return asked


def choose(now: datetime) -> list[tuple[int, int]]:
    """Return pairs of a running job and the queued job that it has to step back for.

    The queue is played in its order with what is free, and what is being given back. It ends for a tenant at the first
    job that fits neither way, as admission does: a smaller job behind it gets nothing that was taken from others.
    """
    running = list(Job.objects.filter(state=State.RUNNING, preemptible=True, reserved=True, run_started=True))
    if not running:
        return []
    entries = entries_of(Job.objects.filter(pk__in=[job.pk for job in running]))
    tenants = {job.tenant_id for job in running}
    room = Room(tenants)
    for job in running:
        if job.stepping_back:
            room.take(entries[job.pk], -1)
    candidates = {job.pk: job for job in running if _may_be_asked(job, now)}
    order, pairs = turns.turns(), []
    while turn := order.take():
        if turn.preemptible or turn.tenant_id not in tenants:
            order.refused(turn, NO_VICTIM)
            continue
        waiting = Job.objects.select_related("user").get(pk=turn.pk)
        entry = entries_of(Job.objects.filter(pk=turn.pk))[turn.pk]
        refusal = room.refusal(entry)
        if refusal is not None:
            patient = (now - waiting.created).total_seconds() < settings.PREEMPT_WAIT_S
            victims = [] if patient else _victims(waiting, entry, room, candidates, entries)
            if not victims:
                order.refused(turn, refusal)
                continue
            for pk in victims:
                room.take(entries[pk], -1)
                del candidates[pk]
                pairs.append((pk, turn.pk))
        room.take(entry)
        order.admitted(turn)
    return pairs


def _may_be_asked(job: Job, now: datetime) -> bool:
    """Return whether the job may be interrupted now: not too often, and not right after its last restart."""
    if job.stepping_back or job.preemptions >= settings.PREEMPT_MOST:
        return False
    restarted = job.not_before if job.preemptions else None
    return restarted is None or (now - restarted).total_seconds() >= settings.PREEMPT_EXEMPT_S


def _victims(
    waiting: Job, entry: Entry, room: Room, candidates: dict[int, Job], entries: dict[int, Entry]
) -> list[int]:
    """Return the fewest jobs whose resources are enough, the youngest where several are as good; none if all are not.

    Each step takes the job that gives most of what is missing; those that turn out to be needless are left out.
    """
    trial, chosen = room.fresh(), []
    pool = [job for job in candidates.values() if _yields(job, waiting)]
    while (refusal := trial.refusal(entry)) is not None:
        only_own = isinstance(refusal, OverLimit)  # what others give back does not help
        useful = [job for job in pool if job.user_id == waiting.user_id or not only_own]
        left = trial.left(entry)
        short = {kind: value - left[kind] for kind, value in entry.needs.items() if value > left[kind]}
        gain = lambda job, short=short: sum(  # noqa: E731
            min(entries[job.pk].needs[kind], missing) / missing for kind, missing in short.items()
        )
        best = max(useful, key=lambda job: (gain(job), job.not_before or job.started), default=None)
        if best is None or not gain(best):
            return []
        trial.take(entries[best.pk], -1)
        pool.remove(best)
        chosen.append(best.pk)
    for pk in chosen[:-1]:
        trial.take(entries[pk])
        if trial.refusal(entry) is None:
            chosen.remove(pk)
        else:
            trial.take(entries[pk], -1)
    return chosen


def _yields(job: Job, waiting: Job) -> bool:
    """Return whether a job of that tenant steps back for the other. Priorities order the jobs of one user only."""
    if job.tenant_id != waiting.tenant_id:
        return False
    return job.user_id != waiting.user_id or job.priority <= waiting.priority


def ask(pk: int, waiting: int) -> bool:
    """Record that a running job has to step back for a queued one, unless either has moved on; return whether it
    has to.
    """
    with suppress(Missing), locked(Job, pk=pk) as job:
        still = Job.objects.filter(pk=waiting, state=State.CREATING, reserved=False, tenant=job.tenant_id).exists()
        if not (still and job.preemptible and job.run_started and job.state == State.RUNNING) or job.stepping_back:
            return False
        job.stepping_back, job.preempted_for_id = timezone.now(), waiting
        job.save(update_fields=["stepping_back", "preempted_for"])
        after_commit.enqueue("jobs.step_back", job.pk)
        after_commit.changed(job.user.username, "job", job.name)
        return True
    return False


def requeue(pk: int, run_name: str, ended: float | None) -> bool:
    """Put a job whose run has ended back into the queue, if it was asked to step back; return whether it was.

    Not if its run had ended by itself before that: `ended` is a Unix time.
    """
    with suppress(Missing, WrongState), locked(Job, pk=pk) as job:
        if job.state != State.RUNNING or job.run_name != run_name or job.stepping_back is None:
            return False
        if ended is not None and ended < job.stepping_back.timestamp() - SKEW_S:
            return False
        now = timezone.now()
        job.preempt(by="reconcile", reason=_reason(job))
        job.requeued = job.not_before = now
        job.stepping_back = job.metrics_until = job.idle_warned = job.expected_end = None
        job.progress_source, job.reason = "", ""
        job.preemptions += 1
        job.attempt += 1
        job.run_name, job.run_started, job.reserved = "", False, False
        job.save()
        tcc.withdraw(id=lifecycle.request_id(job.pk), applier=lifecycle.APPLIER)
        after_commit.enqueue("jobs.admit")
        after_commit.wake("job", job.pk)
        return True
    return False


def _reason(job: Job) -> Message:
    """Return for whom the job steps back; only the owner's own jobs have names for the owner."""
    other = job.preempted_for
    if other is not None and other.user_id == job.user_id:
        return Message("preempted for the job %(name)s", name=other.name)
    return Message("preempted for a job of another user") if other else Message("preempted for another job")


def step(pk: int) -> Job | None:
    """Ask the run of a job that steps back to stop; return the job while that has not ended."""
    job = Job.objects.select_related("user").filter(pk=pk, state=State.RUNNING, stepping_back__isnull=False).first()
    if job is not None and job.run_name:
        runners.get().stop(job.run_name, settings.PREEMPT_GRACE_S)
    return job
