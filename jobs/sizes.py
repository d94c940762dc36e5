"""Counts what the jobs' files take on the disk, so that no page has to walk the disk, and ends jobs that write on when
their users hold too much (jobs.artifacts.outputs). Called by reconcile.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from kernel import disk_usage, healing, storage
from kernel.locking import Missing, WrongState, locked
from kernel.messages import Message

from . import idle, lifecycle
from .artifacts import outputs
from .models import ENDED, Job, Origin, State
from .queue import turns

AGAIN_AFTER = timedelta(minutes=10)  # of a running job
ROUND_S = 0.3  # of one round of reconcile
MAX = 200
LOOK_S = 4.0  # between two looks at what running jobs add
GROWN = 1 << 20  # bytes that a job adds beyond its user's limit before it is ended

_looked: list[float] = []
_within: dict[int, int] = {}  # of running jobs: their bytes when their users were last within the limit


def measure(now: datetime) -> None:
    """Count the files of jobs that have ended since they were counted, then of running ones; within ROUND_S seconds."""
    end = time.monotonic() + ROUND_S
    old = Q(output_measured=None) | Q(output_measured__lt=now - AGAIN_AFTER) | Q(output_measured__gt=now)
    ended = Job.objects.filter(state__in=ENDED, output_measured=None)
    for rows in (ended, Job.objects.filter(old, state=State.RUNNING)):
        for job in rows.select_related("user").order_by("pk")[:MAX]:
            count(job, now)
            if time.monotonic() > end:
                return


def count(job: Job, now: datetime) -> None:
    """Count the files of one job. A job that has ended meanwhile is counted again."""
    size = disk_usage.of_folder(storage.job_dir(job.user.username, job.name))
    Job.objects.filter(pk=job.pk, state=job.state).update(output_bytes=size, output_measured=now)


def apply_limits(now: datetime, *, often: bool = False) -> None:
    """End the running jobs that grow while the folders of their users' jobs take more than they may. `often`: however
    soon after the last time.
    """
    moment = time.monotonic()
    if not often and _looked and moment - _looked[0] < LOOK_S:
        return
    _looked[:] = [moment]
    running = Job.objects.filter(state=State.RUNNING, origin=Origin.JOB).exclude(run_name="")
    numbers = Counter(running.values_list("user_id", flat=True))
    most, stored = outputs.limits_of(numbers), outputs.usage_of(numbers)
    each = settings.JOB_DISK_MIB << 20  # which an attempt does not exceed: the others are far from their limit
    near = {user for user, number in numbers.items() if stored[user] + number * each >= most[user]}
    jobs = list(running.filter(user__in=near))
    sizes = {job.pk: _grown(job) for job in jobs}
    stored, before = outputs.usage_of(near), dict(_within)
    _within.clear()
    for job in jobs:
        size, total, limit = sizes[job.pk], stored.get(job.user_id, 0), most[job.user_id]
        is_new = job.started is not None and now - AGAIN_AFTER <= job.started <= now
        _within[job.pk] = size if total <= limit else before.get(job.pk, 0 if is_new else job.output_bytes or 0)
        if size >= _within[job.pk] + GROWN:
            why = outputs.says(total, limit)
            healing.attempt(_stop, job, Message("stopped since it wrote more: %(why)s", why=why))


def _grown(job: Job) -> int:
    """Return what a running job has written, and store it where that is more than was counted."""
    size = max(job.output_bytes or 0, idle.written(job.run_name))
    if size > (job.output_bytes or 0):
        Job.objects.filter(pk=job.pk, state=State.RUNNING, run_name=job.run_name).update(output_bytes=size)
    return size


def _stop(job: Job, reason: Message) -> None:
    with suppress(Missing, WrongState), locked(Job, pk=job.pk) as row:
        if row.run_name == job.run_name:
            lifecycle.fail(row.pk, reason, "reconcile")
            turns.reordered()
