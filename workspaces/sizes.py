"""Counts what the files of workspaces take on the disk, so that no page has to walk it. Called by reconcile.

A workspace's own folder counts: its home, output and log. What its home has links to, datasets and a model, does not.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from django.db.models import Q

from kernel import disk_usage, healing

from . import place
from .models import State, Workspace
from .trash import AT_REST

AGAIN_AFTER = timedelta(minutes=10)  # of a running workspace
ROUND_S = 0.3  # of one round of reconcile
MAX = 200


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
