"""Models in the trash: nothing serves them, and they keep their disk space until they are deleted."""

from __future__ import annotations

from datetime import datetime

from kernel import healing
from kernel import trash as bin
from kernel.locking import locked
from resources import retention

from . import lifecycle
from .models import Model


def trash(*, user, name: str, by: str) -> Model:
    """Move a model in ready or error to the trash; one that is there is not changed.

    Raises WrongState, also while an application serves it or it is the version of a registered model.
    """
    with locked(Model, user=user, name=name) as row:
        require_free(row)
        lifecycle.require_not_scoring(row)
        bin.put(row, by)
    return row


def require_free(row: Model) -> None:
    """Raise WrongState while the model may not be moved to the trash: it is a version, or an application serves it."""
    lifecycle.require_no_version(row)
    lifecycle.require_unserved(row, kept=True)


def restore(*, user, name: str, by: str) -> Model:
    """Restore a model from the trash. Raises WrongState for one that is not there."""
    with locked(Model, user=user, name=name) as row:
        bin.restore(row, by)
    return row


def delete(row: Model, by: str) -> None:
    """Delete a model from the trash. Raises WrongState if it has been restored since the row was read, or while an
    application that is in the trash, too, would serve it.
    """
    lifecycle.delete_model(user=row.user, name=row.name, by=by, trashed=row.trashed)


def purge(now: datetime) -> None:
    """Delete what has been in the trash for long enough; called by reconcile in each round.

    One that an application in the trash would serve waits for that to be deleted.
    """
    rows = Model.objects.filter(retention.trash_due(now), state__in=lifecycle.STEADY, served_by=None)
    healing.each(lambda row: delete(row, "reconcile"), rows.select_related("user").order_by("trashed")[: bin.PURGED])
