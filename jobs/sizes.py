"""Counts what the jobs' files take on the disk, so that no page has to walk the disk. Called by reconcile."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from django.db.models import Q

from kernel import storage

from .models import ENDED, Job, State

AGAIN_AFTER = timedelta(minutes=10)  # of a running job
ROUND_S = 0.3  # of one round of reconcile
MOST = 200


def measure(now: datetime) -> None:
    """Count the files of jobs that have ended since they were counted, then of running ones; within ROUND_S seconds."""
    end = time.monotonic() + ROUND_S
    old = Q(output_measured=None) | Q(output_measured__lt=now - AGAIN_AFTER) | Q(output_measured__gt=now)
    ended = Job.objects.filter(state__in=ENDED, output_measured=None)
    for rows in (ended, Job.objects.filter(old, state=State.RUNNING)):
        for job in rows.select_related("user").order_by("pk")[:MOST]:
            count(job, now)
            if time.monotonic() > end:
                return


def count(job: Job, now: datetime) -> None:
    """Count the files of one job. A job that has ended meanwhile is counted again."""
    size = storage.tree_size(storage.job_dir(job.user.username, job.name), on_disk=True)
    Job.objects.filter(pk=job.pk, state=job.state).update(output_bytes=size, output_measured=now)
