"""Preemption: running jobs that said that they may be interrupted step back for a job that waits too long.

    choose   (reconcile) picks the victims of the first jobs in the queue that do not fit, and commits it to their rows
    step     SIGTERM to the run, SIGKILL after the grace period; repeated by reconcile until the run has ended
    requeue  in one transaction: back to the queue, resources released, the next attempt's number

A preempted job keeps its place, output and number of retries. The job that the resources are for is admitted before all
others (turns.has_preempted). A preemptible job never preempts another one of its tenant, so there is no circle; and one
that has just been restarted, or was preempted often enough, is left alone.

A run whose processes the cluster has taken away (Kueue) steps back in the same way, preemptible or not.

Jobs of a tenant that borrows (resources.lending) step back at once, and however often, for any job of a lender that
does not fit without what is lent; also when an administrator ends the lending.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from django.conf import settings
from django.utils import timezone

import runners
from kernel import after_commit
from kernel.locking import Missing, WrongState, locked
from kernel.messages import Message
from resources import tcc
from resources.limits import OverLimit
from resources.models import LENDABLE, Loan, Tenant

from . import lifecycle
from .models import Job, State
from .queue import turns
from .queue.line import QueuedJob, Room, entries_of

SKEW_S = 5  # between the clocks of nodes; Kubernetes keeps the ends of containers in whole seconds
NO_VICTIM = LookupError("no job steps back for it")


def run(now: datetime | None = None) -> list[int]:
    """Ask jobs to step back for those that have waited long enough; return the keys of those that were asked."""
    asked = []
    for victim, waiting in choose(now or timezone.now()):
        if ask(victim, waiting):
            asked.append(victim)
    return asked


def choose(now: datetime) -> list[tuple[int, int | None]]:
    """Return pairs of a running job and the queued job that it has to step back for; None for a loan that has to end.

    The queue is played in its order with what is free, and what is being given back. It ends for a tenant at the first
    job that fits neither way, as admission does: a smaller job behind it gets nothing that was taken from others.
    """
    running = list(Job.objects.filter(state=State.RUNNING, preemptible=True, reserved=True, run_started=True))
    if not running:
        return []
    entries = entries_of(Job.objects.filter(pk__in=[job.pk for job in running]))
    room = Room()
    for job in running:
        if job.stepping_back:
            room.give_back(entries[job.pk], _tenant_of(job.preempted_for_id))
    candidates = {job.pk: job for job in running if not job.stepping_back}
    pairs: list[tuple[int, int | None]] = [(pk, None) for pk in _recalled(room, candidates, entries)]
    tenants = {job.tenant_id for job in running}
    order = turns.turns()
    while turn := order.take():
        lends = any(lender == turn.tenant_id for lender, _borrower in room.ledger.loans)
        if not lends and (turn.preemptible or turn.tenant_id not in tenants):
            order.refused(turn, NO_VICTIM)
            continue
        waiting = Job.objects.select_related("user").get(pk=turn.pk)
        entry = entries_of(Job.objects.filter(pk=turn.pk))[turn.pk]
        refusal = room.refusal(entry, order.stopped, order.ahead)
        if refusal is not None:
            pool = [job for job in candidates.values() if _may_be_asked(job, waiting, room, now)]
            victims = _victims(waiting, entry, room, pool, entries)
            if not victims:
                order.refused(turn, refusal)
                continue
            for pk in victims:
                room.give_back(entries[pk], waiting.tenant_id)
                del candidates[pk]
                pairs.append((pk, turn.pk))
        room.take(entry, order.stopped)
        order.admitted(turn)
    return pairs


def _tenant_of(pk: int | None) -> int | None:
    return Job.objects.filter(pk=pk).values_list("tenant_id", flat=True).first() if pk else None


def _recalled(room: Room, candidates: dict[int, Job], entries: dict[int, QueuedJob]) -> list[int]:
    """Return the jobs that step back because their tenant borrows more than it may: the youngest, until it is enough.

    Removes them from the candidates, and gives back in `room` what they use.
    """
    chosen = []
    for tenant in room.ledger.tenants.values():
        for kind in LENDABLE:
            mine = [job for job in candidates.values() if job.tenant_id == tenant.pk and entries[job.pk].needs[kind]]
            for job in sorted(mine, key=_since, reverse=True):
                if not _too_much(room, tenant, kind):
                    break
                room.give_back(entries[job.pk])
                del candidates[job.pk]
                chosen.append(job.pk)
    return chosen


def _too_much(room: Room, tenant: Tenant, kind: str) -> bool:
    """Return whether the tenant borrows more of the kind than it may, or from a tenant that does not lend any more."""
    if tenant.borrowed(kind) > tenant.borrow_limit(kind):
        return True
    lenders = [lender for (lender, borrower), lent in room.ledger.loans.items() if borrower == tenant.pk and lent[kind]]
    return not all(room.ledger.tenants[lender].lends_now for lender in lenders)


def _since(job: Job) -> datetime:
    return job.not_before or job.started


def _may_be_asked(job: Job, waiting: Job, room: Room, now: datetime) -> bool:
    """Return whether the job may be interrupted for the other now.

    In its own tenant not too often, and not right after its last restart. One of a tenant that has borrowed from that
    of the other may be at any time: what is lent is given back at once.
    """
    if job.tenant_id != waiting.tenant_id:
        return any(room.ledger.lent_to(waiting.tenant_id, job.tenant_id).values())
    if waiting.preemptible or (now - waiting.created).total_seconds() < settings.PREEMPT_WAIT_S:
        return False
    if job.preemptions >= settings.PREEMPT_MAX or not _yields(job, waiting):
        return False
    restarted = job.not_before if job.preemptions else None
    return restarted is None or (now - restarted).total_seconds() >= settings.PREEMPT_EXEMPT_S


def _victims(waiting: Job, entry: QueuedJob, room: Room, pool: list[Job], entries: dict[int, QueuedJob]) -> list[int]:
    """Return the fewest jobs whose resources are enough, the youngest where several are as good; none if all are not.

    Each step takes the job that gives most of what is missing, those on borrowed resources first; those that turn out
    to be needless are left out.
    """
    trial, chosen, pool = room.fresh(), [], list(pool)
    while (refusal := trial.refusal(entry)) is not None:
        only_own = isinstance(refusal, OverLimit)  # what others give back does not help
        useful = [job for job in pool if job.user_id == waiting.user_id or not only_own]
        gains = {job.pk: _gain(job, entry, trial, entries) for job in useful}
        useful = [job for job in useful if gains[job.pk]]
        best = max(
            useful, key=lambda job: (job.tenant_id != waiting.tenant_id, gains[job.pk], _since(job)), default=None
        )
        if best is None:
            return []
        trial.give_back(entries[best.pk], waiting.tenant_id)
        pool.remove(best)
        chosen.append(best.pk)
    for pk in chosen[:-1]:
        trial, others = room.fresh(), [other for other in chosen if other != pk]
        for other in others:
            trial.give_back(entries[other], waiting.tenant_id)
        if trial.refusal(entry) is None:
            chosen = others
    return chosen


def _gain(job: Job, entry: QueuedJob, trial: Room, entries: dict[int, QueuedJob]) -> float:
    """Return how much of what the entry lacks the job would give, as the sum of the kinds' shares."""
    tenant, left, gain = trial.ledger.tenants[entry.tenant_id], trial.left(entry), 0.0
    for kind, value in entry.needs.items():
        missing = value - left[kind] + tenant.borrowed(kind)  # what is borrowed is returned before anything is free
        if value and missing > 0:
            gives = entries[job.pk].needs[kind]
            if job.tenant_id != entry.tenant_id:
                gives = min(gives, trial.ledger.lent_to(entry.tenant_id, job.tenant_id).get(kind, 0))
            gain += float(min(gives, missing) / missing)
    gives = entries[job.pk]
    if (lacking := trial.lacks(entry)) and trial.stock.of(gives.gpu_type) <= trial.stock.of(entry.gpu_type):
        gain += min(gives.gpus, lacking) / lacking
    return gain


def _yields(job: Job, waiting: Job) -> bool:
    """Return whether a job of the same tenant steps back for the other. Priorities order the jobs of one user only."""
    return job.user_id != waiting.user_id or job.priority <= waiting.priority


def ask(pk: int, waiting: int | None) -> bool:
    """Record that a running job has to step back for a queued one, or for a loan to end, unless either has moved on;
    return whether it has to.
    """
    with suppress(Missing), locked(Job, pk=pk) as job:
        lenders = set(Loan.objects.filter(borrower=job.tenant_id).values_list("lender", flat=True))
        queued = Job.objects.filter(pk=waiting, state=State.CREATING, reserved=False)
        still = queued.filter(tenant__in={job.tenant_id, *lenders}).exists() if waiting else bool(lenders)
        if not (still and job.preemptible and job.run_started and job.state == State.RUNNING) or job.stepping_back:
            return False
        job.stepping_back, job.preempted_for_id = timezone.now(), waiting
        job.save(update_fields=["stepping_back", "preempted_for"])
        after_commit.enqueue("jobs.step_back", job.pk)
        after_commit.changed(job.user.username, "job", job.name)
        return True
    return False


def displace(pk: int, run_name: str, since: float) -> None:
    """Record that the cluster has taken the processes of a running job's run away, at a Unix time: it steps back."""
    with suppress(Missing), locked(Job, pk=pk) as job:
        if job.state == State.RUNNING and job.run_name == run_name and job.stepping_back is None:
            job.stepping_back, job.preempted_for = datetime.fromtimestamp(since, tz=UTC), None
            job.save(update_fields=["stepping_back", "preempted_for"])
            after_commit.enqueue("jobs.step_back", job.pk)
            after_commit.changed(job.user.username, "job", job.name)


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
        to = job.preempted_for.tenant_id if job.preempted_for else None
        tcc.withdraw(id=lifecycle.request_id(job.pk), applier=lifecycle.APPLIER, to=to)
        after_commit.enqueue_once("jobs.admit")
        after_commit.wake("job", job.pk)
        return True
    return False


def _reason(job: Job) -> Message:
    """Return for whom the job steps back; only the owner's own jobs have names for the owner."""
    other = job.preempted_for
    if not job.preemptible:  # other jobs ask only those that are
        return Message("preempted by the cluster")
    if other is not None and other.user_id == job.user_id:
        return Message("preempted for the job %(name)s", name=other.name)
    if other is not None and other.tenant_id == job.tenant_id:
        return Message("preempted for a job of another user")
    if other is not None or Loan.objects.filter(borrower=job.tenant_id).exists():
        return Message("preempted to return borrowed resources")
    return Message("preempted for another job")


def step(pk: int) -> Job | None:
    """Ask the run of a job that steps back to stop; return the job while that has not ended."""
    job = Job.objects.select_related("user").filter(pk=pk, state=State.RUNNING, stepping_back__isnull=False).first()
    if job is not None and job.run_name:
        runners.get().stop(job.run_name, settings.PREEMPT_GRACE_S)
    return job
