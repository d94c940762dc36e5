"""Counts what the files of workspaces take on the disk, so that no page has to walk it, and stops workspaces that write
on when their users hold too much (jobs.artifacts.outputs). Called by reconcile.

A workspace's own folder counts: its home, output and log. What its home has links to, datasets and a model, does not.
"""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q, Sum

from jobs import idle
from jobs.artifacts import outputs
from kernel import disk_usage, healing
from kernel.messages import Message

from . import lifecycle, place
from .models import State, Workspace
from .trash import AT_REST

AGAIN_AFTER = timedelta(minutes=10)  # of a running workspace
ROUND_S = 0.3  # of one round of reconcile
MAX = 200
LOOK_S = 4.0  # between two looks at what running workspaces add
GROWN = 8 << 20  # bytes that one adds beyond its user's limit before it is stopped: Jupyter itself writes some

_looked: list[float] = []
_counted: dict[str, int] = {}  # of runs: the bytes that they had written when their files were counted
_within: dict[int, int] = {}  # of running workspaces: their bytes when their users were last within the limit


def usage_of(users: set[int]) -> dict[int, int]:
    """Return how many bytes the workspaces of each user take, as of their last count; those in the trash included."""
    rows = Workspace.objects.filter(user__in=users, size__gt=0).order_by().values("user").annotate(sum=Sum("size"))
    return {row["user"]: int(row["sum"]) for row in rows}


def measure(now: datetime) -> None:
    """Count the files of workspaces that came to rest since they were counted, then of running ones, until ROUND_S
    seconds have passed.
    """
    end = time.monotonic() + ROUND_S
    old = Q(measured=None) | Q(measured__lt=now - AGAIN_AFTER) | Q(measured__gt=now)
    resting = Workspace.objects.filter(state__in=AT_REST, measured=None)
    for rows in (resting, Workspace.objects.filter(old, state=State.READY)):
        for workspace in rows.select_related("user").order_by("pk")[:MAX]:
            healing.attempt(count, workspace, now)
            if time.monotonic() > end:
                return


def count(workspace: Workspace, now: datetime) -> None:
    """Count the files of one workspace. One that was started or stopped meanwhile is counted again."""
    size = disk_usage.of_folder(place.folder(workspace))
    same = Workspace.objects.filter(pk=workspace.pk, state=workspace.state, attempt=workspace.attempt)
    same.update(size=size, measured=now)
    workspace.size = size


def apply_limits(now: datetime, *, often: bool = False) -> None:
    """Stop the running workspaces that grow while the files of their users take more than they may. `often`: however
    soon after the last time. One that is started to remove files goes on as long as it does not grow.
    """
    moment = time.monotonic()
    if not often and _looked and moment - _looked[0] < LOOK_S:
        return
    _looked[:] = [moment]
    running = Workspace.objects.filter(state=State.READY).exclude(run_name="")
    numbers = Counter(running.values_list("user_id", flat=True))
    most, stored = outputs.limits_of(numbers), outputs.usage_of(numbers)
    each = settings.WORKSPACE_DISK_MIB << 20  # which a run does not exceed: the others are far from their limit
    near = {user for user, number in numbers.items() if stored.get(user, 0) + number * each >= most[user]}
    rows = list(running.filter(user__in=near).select_related("user"))
    _forget({row.run_name for row in rows}, {row.pk for row in rows})
    for row in rows:
        healing.attempt(_count_again, row, now)
    stored = outputs.usage_of(near)
    for row in rows:
        total, limit, size = stored.get(row.user_id, 0), most[row.user_id], row.size or 0
        if total <= limit or row.pk not in _within:
            _within[row.pk] = size
        elif size >= _within[row.pk] + GROWN:
            why = Message("stopped since it wrote more: %(why)s", why=outputs.says(total, limit))
            healing.attempt(lifecycle.stop_over_limit, row.pk, row.run_name, why)


def _count_again(workspace: Workspace, now: datetime) -> None:
    """Count the files of a workspace that has written since they were counted, as its samples say."""
    written = idle.written(workspace.run_name)
    if workspace.size is None or written != _counted.get(workspace.run_name, 0):
        count(workspace, now)
        _counted[workspace.run_name] = written


def _forget(runs: set[str], workspaces: set[int]) -> None:
    """Forget what has ended, and whose users are far from their limits."""
    for run in _counted.keys() - runs:
        del _counted[run]
    for pk in _within.keys() - workspaces:
        del _within[pk]
