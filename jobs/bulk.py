"""Changes of many jobs at once.

Rows are locked in the order of their ids, a few thousand in one transaction, so that two changes never deadlock. A job
that does not allow the change is left unchanged and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django.db import transaction
from django.db.models import QuerySet

from jobs.models import Job
from kernel import after_commit
from kernel.errors import Refused

CHUNK = 5000
TIME_S = 20.0  # of one call that changes job by job
ONCE = 500  # jobs that are read together


class Done(NamedTuple):
    """The numbers of runs that were changed and that were left unchanged."""

    changed: int
    left: int = 0


def chunks(runs: QuerySet) -> Iterator[list[int]]:
    """Return the ids of the runs in ascending order, a few thousand at a time."""
    keys = list(runs.order_by("pk").values_list("pk", flat=True))
    for first in range(0, len(keys), CHUNK):
        yield keys[first : first + CHUNK]


@contextmanager
def locked_jobs(keys: list[int]) -> Iterator[QuerySet]:
    """Open a transaction with these runs locked."""
    with transaction.atomic():
        rows = Job.objects.filter(pk__in=keys)
        list(rows.order_by("pk").select_for_update(of=("self",), no_key=True).values_list("pk", flat=True))
        yield rows


def each_chunk(runs: QuerySet, user, change: Callable[[QuerySet, list[int]], int]) -> Done:
    """Apply a change to locked runs, chunk by chunk; `change` returns how many it has changed."""
    changed = total = 0
    for keys in chunks(runs):
        total += len(keys)
        with locked_jobs(keys) as rows:
            changed += change(rows, keys)
            after_commit.changed(user.username, "job", "")
    return Done(changed, total - changed)


def one_by_one(runs: QuerySet, change: Callable[[Job], object]) -> Done:
    """Apply a change that is a transaction of its own, until TIME_S have passed; the rest is counted as left."""
    end, changed, left = time.monotonic() + TIME_S, 0, 0
    keys = list(runs.values_list("pk", flat=True))
    for first in range(0, len(keys), ONCE):
        jobs = runs.in_bulk(keys[first : first + ONCE])
        for pk in keys[first : first + ONCE]:
            if time.monotonic() > end:
                return Done(changed, len(keys) - changed)
            try:
                change(jobs[pk])
                changed += 1
            except (Refused, KeyError):  # its state has changed meanwhile, or it is gone
                left += 1
    return Done(changed, left)
