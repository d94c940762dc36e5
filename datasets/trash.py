"""Datasets in the trash: nobody reads them, and they keep their disk space until they are deleted."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kernel import healing
from kernel import trash as bin
from kernel.locking import WrongState, locked
from resources import retention

from . import lifecycle, uses
from .models import Dataset, Lock, State

STEADY = (State.READY, State.ERROR)


def require_free(row: Dataset) -> None:
    """Raise WrongState while something uses the dataset, so that it may not be moved to the trash."""
    if (refusal := in_use([row]).get(row.pk)) is not None:
        raise refusal


def in_use(rows: Iterable[Dataset]) -> dict[int, WrongState]:
    """Return why datasets of one owner may not be moved to the trash, by primary key."""
    there = [row for row in rows if row.state == State.READY and row.trashed is None]
    return uses.refusals(there) if there else {}


def trash(*, user, name: str, by: str) -> Dataset:
    """Move a dataset in ready or error to the trash; one that is there is not changed.

    Raises WrongState, also while something uses it.
    """
    with locked(Dataset, user=user, name=name) as row:
        require_free(row)
        if bin.put(row, by):
            Lock.objects.filter(user=user, dataset=name).delete()
    return row


def restore(*, user, name: str, by: str) -> Dataset:
    """Restore a dataset from the trash. Raises WrongState for one that is not there."""
    with locked(Dataset, user=user, name=name) as row:
        bin.restore(row, by)
    return row


def delete(row: Dataset, by: str) -> None:
    """Delete a dataset from the trash. Raises WrongState if it has been restored since the row was read."""
    lifecycle.delete_dataset(user=row.user, name=row.name, by=by, trashed=row.trashed)


def purge(now: datetime) -> None:
    """Delete what has been in the trash for long enough; called by reconcile in each round."""
    rows = Dataset.objects.filter(retention.trash_due(now), state__in=STEADY).select_related("user").order_by("trashed")
    healing.each(lambda row: delete(row, "reconcile"), rows[: bin.PURGED])
