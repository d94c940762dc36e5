"""The reconciliation of workspaces: polls each that should be up, and repeats what a lost message should have done.

Called by `manage.py reconcile` each round and at its start, so that a workspace whose run ended while the platform was
down is started again. An error with one does not affect the others.
"""

from __future__ import annotations

from django.db.models import QuerySet
from django.utils import timezone

from kernel import after_commit, healing

from . import launching, lifecycle, sizes, trash
from .models import LIVE, State, Workspace


def run() -> None:
    """Do one round."""
    healing.attempt(lifecycle.admit)
    rows = Workspace.objects.select_related("user", "tenant", "environment_version", "job", "model")
    for workspace in rows.filter(state__in=LIVE, reserved=True):
        healing.attempt(launching.poll, workspace)
    healing.attempt(launching.sweep)
    now = timezone.now()
    healing.attempt(sizes.apply_limits, now)
    healing.attempt(sizes.measure, now)
    healing.attempt(trash.purge, now)
    stopping = Workspace.objects.filter(state=State.STOPPING).exclude(run_name="")
    for pk, run_name in stopping.values_list("pk", "run_name"):
        healing.attempt(launching.stop, pk, run_name, False)
    for pk in Workspace.objects.filter(state=State.DELETING).values_list("pk", flat=True)[:200]:
        after_commit.enqueue("workspaces.erase", pk, False)


def pending() -> list[QuerySet]:
    """Return what a round is needed for: workspaces that should be up, stop or are deleted."""
    return [Workspace.objects.filter(state__in=[*LIVE, State.STOPPING, State.DELETING])]
