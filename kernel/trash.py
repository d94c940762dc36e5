"""The trash of objects with a life cycle: until they are purged they can be restored.

`trashed` says since when an object is there. Its state does not change by that and its name stays taken; lists, other
objects and visitors do not see it. What an app does with its own objects is in its `trash.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django_fsm import TransitionNotAllowed, can_proceed

from .locking import DELETING, WrongState
from .messages import word
from .models import record_change

TRASH, RESTORE = "trash", "restore"  # in the history
PURGED = 200  # of one kind in one round


class Kept(models.Manager):
    """The objects that are not in the trash: what lists show."""

    def get_queryset(self):
        return super().get_queryset().filter(trashed=None)


class Trashable(models.Model):
    """An object that can be in the trash."""

    trashed = models.DateTimeField(_("in the trash since"), null=True, blank=True)

    objects = models.Manager()
    kept = Kept()  # without those in the trash

    class Meta:
        abstract = True


def put(row: Trashable, by: str) -> bool:
    """Move a locked object to the trash; return False for one that is there. Raises TransitionNotAllowed where it could
    not be deleted.
    """
    if row.trashed is not None and row.state != DELETING:
        return False
    if not can_proceed(row.erase):
        raise TransitionNotAllowed("cannot be deleted", object=row, method=row.erase)
    row.trashed = timezone.now()
    row.save(update_fields=["trashed"])
    record_change(row, transition=TRASH, source=row.state, target=row.state, by=by)
    return True


def restore(row: Trashable, by: str) -> None:
    """Restore a locked object from the trash. Raises WrongState for one that is not there."""
    kind = word(row._meta.model_name)
    if row.state == DELETING:
        raise WrongState("the %(kind)s is already being deleted", kind=kind)
    if row.trashed is None:
        raise WrongState("the %(kind)s is not in the trash", kind=kind)
    row.trashed = None
    row.save(update_fields=["trashed"])
    record_change(row, transition=RESTORE, source=row.state, target=row.state, by=by)


def require_since(row: Trashable, since: datetime | None) -> None:
    """Raise WrongState unless a locked object has been in the trash since then; None asks for nothing.

    For deletions from the trash: somebody may have restored the object after it was looked up.
    """
    if since is not None and row.trashed != since:
        raise WrongState("the %(kind)s is not in the trash", kind=word(row._meta.model_name))


def require_kept(row: Trashable) -> None:
    """Raise WrongState for an object in the trash: nothing else may use it."""
    if row.trashed is not None:
        raise WrongState("the %(kind)s %(name)s is in the trash; restore it first",
                         kind=word(row._meta.model_name), name=row.name)  # fmt: skip


def purged_at(trashed: datetime, days: int | None = None) -> datetime:
    """Return when an object is deleted that has been in the trash since then; `days` are those of its tenant."""
    return trashed + timedelta(days=settings.TRASH_DAYS if days is None else days)


# --- what other apps keep of a run's log ---------------------------------------------------------------------------
Forget = Callable[[str, str, str], object]
_log_keepers: list[Forget] = []


def keeps_logs(forget: Forget) -> None:
    """Register a function that gets `jobs` or `apps`, an owner and a name, and removes what is kept of the log of that
    job or application. It may be called again, and raises when it has to be.
    """
    if forget not in _log_keepers:
        _log_keepers.append(forget)


def forget_log(kind: str, owner: str, name: str) -> None:
    """Remove what other apps keep of the log of a job (`jobs`) or application (`apps`)."""
    for forget in _log_keepers:
        forget(kind, owner, name)
