"""Workspaces in the trash: they do not run, and they keep their files until they are deleted. A restored one is
stopped, or failed, as it was.
"""

from __future__ import annotations

from datetime import datetime

from kernel import healing
from kernel import trash as bin
from kernel.locking import locked
from resources import retention

from . import lifecycle
from .models import State, Workspace

AT_REST = (State.STOPPED, State.ERROR)


def trash(*, user, name: str, by: str) -> Workspace:
    """Move a stopped or failed workspace to the trash; one that is there is not changed. Raises WrongState."""
    with locked(Workspace, user=user, name=name) as workspace:
        bin.put(workspace, by)
    return workspace


def restore(*, user, name: str, by: str) -> Workspace:
    """Restore a workspace from the trash. Raises WrongState for one that is not there."""
    with locked(Workspace, user=user, name=name) as workspace:
        bin.restore(workspace, by)
    return workspace


def delete(row: Workspace, by: str) -> None:
    """Delete a workspace from the trash. Raises WrongState if it has been restored since the row was read."""
    lifecycle.delete_workspace(user=row.user, name=row.name, by=by, trashed=row.trashed)


def purge(now: datetime) -> None:
    """Delete what has been in the trash for long enough; called by reconcile in each round."""
    rows = Workspace.objects.filter(retention.trash_due(now), state__in=AT_REST)
    healing.each(lambda row: delete(row, "reconcile"), rows.select_related("user").order_by("trashed")[: bin.PURGED])
