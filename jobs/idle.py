"""Idle jobs: warned, then stopped, by the policy of their tenant. Called by reconcile and by the admin.

A job is idle when every sample of its usage in the last minutes of the policy is below the threshold: of its GPUs where
it has one, else of its CPU. What is not known is never idle: a run without samples, a GPU that is not measured, a file
that is no longer written. The warning is a column of the job, so it holds over restarts; a sample above the threshold
withdraws it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.translation import gettext_noop as _

import runners
from accounts import notices
from kernel import after_commit, healing, sanitize
from kernel.locking import Missing, WrongState, locked
from kernel.messages import Message
from kernel.models import record_change
from resources.models import Tenant

from . import lifecycle
from .models import Job, Origin, State

EVERY_S = 20  # between two looks at all jobs: a policy counts in minutes
FEWEST = 5  # samples: those of an old run are minutes apart, and the load of a GPU is measured for a moment only
NOTHING = 0.02  # cores
READ = 256 << 10  # bytes of the file's end, thousands of samples
STALE_S = 60  # without a new sample, beyond the usual interval
EVENT = _("idle")

_looked: list[datetime] = []


def apply(now: datetime | None = None, *, often: bool = False) -> None:
    """Judge the running jobs of tenants with a policy: warn, withdraw a warning, stop. `often`: however soon after the
    last time.
    """
    now = now or timezone.now()
    if not often and _looked and timedelta() <= now - _looked[0] < timedelta(seconds=EVERY_S):
        return
    _looked[:] = [now]
    running = Job.objects.filter(state=State.RUNNING, origin=Origin.JOB).select_related("user", "tenant")
    strict = Tenant.objects.exclude(idle_gpu_minutes=None, idle_cpu_minutes=None)
    jobs = running.filter(tenant__in=strict) | running.filter(idle_warned__isnull=False)
    healing.each(lambda job: _judge(job, now), jobs)


def _judge(job: Job, now: datetime) -> None:
    kind, percent, minutes = _policy(job)
    lasted = idle_for(job, kind, percent, now) if minutes and not job.idle_exempt and job.run_started else None
    if lasted is None or lasted < minutes * 60:
        if job.idle_warned:
            withdraw(job.pk)
    elif job.idle_warned is None or job.idle_kind != kind:
        warn(job.pk, job.run_name, kind, now)
    elif now >= job.idle_stop:
        stop(job.pk, job.run_name, now)


def _policy(job: Job) -> tuple[str, int, int | None]:
    """Return what must not be idle, below which percentage, and for how many minutes; None for any."""
    tenant = job.tenant
    if job.gpu:
        return "gpu", tenant.idle_gpu_percent, tenant.idle_gpu_minutes
    return "cpu", tenant.idle_cpu_percent, tenant.idle_cpu_minutes


def idle_for(job: Job, kind: str, percent: int, now: datetime) -> float | None:
    """Return for how many seconds the job's run has been idle; None where it is not known."""
    samples, written = _samples(job.run_name)
    if len(samples) < FEWEST:
        return None
    last = samples[-1]["after"]
    if now.timestamp() - written > STALE_S + 3 * (last - samples[-2]["after"]):
        return None
    limit = percent if kind == "gpu" else percent / 100 * float(job.needs["cpu"])
    begun, count = last, 0
    for row in reversed(samples):
        value = row.get(kind)
        if row["after"] > begun or not isinstance(value, int | float) or value >= limit:
            break  # of an earlier attempt, not measured, or busy
        begun, count = row["after"], count + 1
    return last - begun if count >= FEWEST else 0.0


def is_quiet(job: Job, since: datetime, seconds: float) -> bool:
    """Return whether every sample of the job's run since that moment shows that it does nothing: no CPU, no GPU, no
    byte written; False where there are none for so many seconds.
    """
    samples, written = _samples(job.run_name)
    if not samples:
        return False
    begun = samples[-1]["after"] - (written - since.timestamp())  # of the run, on the clock of the samples
    rows = [row for row in samples if row["after"] > begun + 1]  # the first one measures the time before, too
    if not rows or rows[-1]["after"] - begun < seconds:
        return False
    busy = any(row.get("cpu", 1) > NOTHING or row.get("gpu", 0) for row in rows)
    return not busy and len({row.get("disk") for row in rows}) == 1


def written(run_name: str) -> int:
    """Return the bytes that a run has written as of its last sample; 0 where that is not known."""
    samples, _written = _samples(run_name)
    mib = samples[-1].get("disk") if samples else None
    return mib << 20 if isinstance(mib, int) and 0 < mib < 1 << 40 else 0


def last_sample(job: Job) -> dict:
    """Return the last sample of the usage of the job's run, empty where there is none."""
    samples, _written = _samples(job.run_name)
    return samples[-1] if samples else {}


def _samples(run_name: str) -> tuple[list[dict], float]:
    """Return the last samples of a run's usage, and when the last one was written."""
    if not run_name:
        return [], 0.0
    try:  # not what the job's folder has, which its script can write
        file = runners.get().usage_of(run_name).open("rb")
    except OSError:
        return [], 0.0
    with file:
        known = os.fstat(file.fileno())
        file.seek(max(0, known.st_size - READ))
        lines = file.read(READ).splitlines()
    rows = []
    for line in lines:
        with suppress(ValueError):  # cut at the beginning, or being written now
            row = sanitize.read_strict(line)
            if isinstance(row, dict) and isinstance(row.get("after"), int | float):
                rows.append(row)
    return rows, known.st_mtime


def _reason(job: Job, kind: str) -> Message:
    _kind, percent, minutes = _policy(job)
    return Message(
        "idle: less than %(percent)s %% of its %(kind)s used for %(minutes)s min",
        percent=percent, kind=kind.upper(), minutes=minutes,
    )  # fmt: skip


def warn(pk: int, run_name: str, kind: str, now: datetime) -> None:
    """Tell the owner of a running job that it is idle, unless it has another run by now."""
    with suppress(Missing), locked(Job, pk=pk) as job:
        if job.state != State.RUNNING or job.run_name != run_name or job.idle_exempt:
            return
        job.idle_warned, job.idle_kind = now, kind
        job.save(update_fields=["idle_warned", "idle_kind"])
        reason = Message(
            "%(reason)s; unless it is used again, the job is stopped in %(minutes)s min",
            reason=_reason(job, kind), minutes=job.tenant.idle_grace_minutes,
        )  # fmt: skip
        record_change(job, transition="warn", source=job.state, target=job.state, by="reconcile", reason=reason)
        notices.notify(user=job.user, kind="job", name=job.name, event=EVENT, reason=reason, title=job.title)
        after_commit.wake("job", job.pk)


def withdraw(pk: int) -> None:
    """Drop the warning: the job is used again, or the policy has changed."""
    with suppress(Missing), locked(Job, pk=pk) as job:
        if job.idle_warned is None:
            return
        job.idle_warned = None
        job.save(update_fields=["idle_warned"])
        if job.state == State.RUNNING:
            reason = Message("no longer idle")
            record_change(job, transition="warn", source=job.state, target=job.state, by="reconcile", reason=reason)


def stop(pk: int, run_name: str, now: datetime) -> None:
    """Move a job whose warning has expired to error; its run is stopped as by a cancel, and not retried."""
    with suppress(Missing, WrongState), locked(Job, pk=pk) as job:
        if job.run_name == run_name and job.idle_stop and now >= job.idle_stop and not job.idle_exempt:
            lifecycle.fail(pk, _reason(job, job.idle_kind), "reconcile")


def exempt(job: Job, *, by: str, exempt: bool = True) -> None:
    """Set whether a job is exempt from its tenant's policy."""
    with locked(Job, pk=job.pk) as row:
        if row.has_ended:
            raise WrongState("the job has already ended")
        row.idle_exempt = exempt
        row.save(update_fields=["idle_exempt"])
        reason = Message("exempt from the idle policy") if exempt else Message("no longer exempt from the idle policy")
        record_change(row, transition="exempt", source=row.state, target=row.state, by=by, reason=reason)
    if exempt:
        withdraw(job.pk)
