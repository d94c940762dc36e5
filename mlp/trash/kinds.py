"""The kinds of objects in a trash: how they are listed, restored and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.db.models import BigIntegerField, Case, CharField, F, Model, Q, QuerySet, Sum, Value, When
from django.db.models.expressions import Combinable

from apps import trash as apps
from apps.models import Application
from datasets import trash as datasets
from datasets.models import Dataset
from jobs import trash as jobs
from jobs.models import Job
from kernel.errors import Refused
from kernel.locking import DELETING, Missing
from kernel.messages import sentences
from kernel.pages import why_not
from kernel.remembered import together
from kernel.trash import purged_at
from models_app import trash as models
from models_app.lifecycle import checked, require_unserved
from models_app.models import Model as TrainedModel
from workspaces import trash as workspaces
from workspaces.models import Workspace


@dataclass(frozen=True)
class Kind:
    """A kind of object: its model, what has its bytes on the disk, its verbs, checks that raise what those would
    refuse, and the states in which it can be moved to the trash.
    """

    model: type[Model]
    size: Combinable | None
    trash: Callable[..., object]
    restore: Callable[..., object]
    delete: Callable[..., object]
    related: Callable[[], Iterable] = tuple  # what the checks look at, besides RELATED
    refusals: Callable[[Iterable[Model]], dict[int, Refused]] = lambda rows: {}  # of all rows at once, by primary key
    check: Callable[[Model], object] = lambda row: None
    check_restore: Callable[[Model], object] = lambda row: None
    check_delete: Callable[[Model], object] = lambda row: None
    movable: tuple[str, ...] = ("ready", "error", "finished")


def _trash_job(*, user, name: str, by: str) -> None:
    job = Job.objects.filter(user=user, name=name).select_related("user").first()
    if job is None:
        raise Missing("job")
    jobs.trash_one(job, by)


# The files of external ones are in a bucket.
HERE = Case(When(external=False, then=F("size")), default=0, output_field=BigIntegerField())
KINDS = {
    "job": Kind(
        Job, F("output_bytes"), _trash_job, jobs.restore_one, jobs.delete_one, check_restore=jobs.require_project,
    ),
    "dataset": Kind(Dataset, F("stored"), datasets.trash, datasets.restore, datasets.delete, refusals=datasets.in_use),
    "model": Kind(
        TrainedModel, HERE, models.trash, models.restore, models.delete, related=checked, check=models.require_free,
        check_delete=require_unserved,
    ),
    "application": Kind(
        Application, None, apps.trash, apps.restore, apps.delete, check_restore=apps.require_restorable,
    ),
    "workspace": Kind(
        Workspace, F("size"), workspaces.trash, workspaces.restore, workspaces.delete, movable=workspaces.AT_REST,
    ),
}  # fmt: skip
RELATED = ("user", "tenant", "project", "model")  # that the checks look at


@dataclass
class TrashItem:
    """An object in the trash. `size` is in bytes; None where nothing of it is counted or it is not measured yet.

    The last two say on pages why it cannot be restored or deleted now.
    """

    kind: str
    name: str
    title: str
    size: int | None
    trashed: datetime
    purged: datetime
    state: str
    unrestorable: str = ""
    undeletable: str = ""

    @property
    def shown_name(self) -> str:
        return self.title or self.name

    @property
    def shown_kind(self) -> str:
        return str(KINDS[self.kind].model._meta.verbose_name)


def rows(user) -> QuerySet:
    """Return what is in the user's trash as (kind, pk, name, title, size, trashed, state, days), the newest first."""
    parts = [_part(name, kind, Q(user=user)) for name, kind in KINDS.items()]
    return parts[0].union(*parts[1:], all=True).order_by("-trashed", "kind", "-pk")


def _part(name: str, kind: Kind, condition: Q) -> QuerySet:
    there = kind.model.objects.filter(condition, trashed__isnull=False).exclude(state=DELETING)
    size = Value(None, output_field=BigIntegerField()) if kind.size is None else kind.size
    shown = there.annotate(kind=Value(name, output_field=CharField()), bytes=size).order_by()
    return shown.values_list("kind", "pk", "name", "title", "bytes", "trashed", "state", "tenant__trash_days")


def entries(records: list[tuple]) -> list[TrashItem]:
    """Return rows as entries."""
    return [
        TrashItem(kind, name, title, size, trashed, purged_at(trashed, days), state)
        for kind, _pk, name, title, size, trashed, state, days in records
    ]


def explain(items: Iterable, user) -> None:
    """Set of each item in the user's trash why it cannot be restored or deleted now, and of others why it cannot be
    moved there.
    """
    items = list(items)
    for name, kind in KINDS.items():
        named = {item.name: item for item in items if item.kind == name}
        related = [field.name for field in kind.model._meta.fields if field.name in RELATED]
        rows = kind.model.objects.filter(user=user, name__in=named).select_related(*related)
        rows = rows.prefetch_related(*kind.related())
        refused = kind.refusals(rows)
        with together():
            for row in rows:
                _explain(named[row.name], kind, row, refused.get(row.pk))


def _explain(item, kind: Kind, row: Model, refused: Refused | None) -> None:
    if row.trashed is None:
        item.unmovable = sentences(refused.problem) if refused else why_not(partial(kind.check, row))
    else:
        item.unrestorable = why_not(partial(kind.check_restore, row))
        item.undeletable = why_not(partial(kind.check_delete, row))


def total(user) -> int:
    """Return the bytes of all that is in the user's trash."""
    sizes = [
        _part(name, kind, Q(user=user)).aggregate(sum=Sum("bytes"))["sum"]
        for name, kind in KINDS.items()
        if kind.size is not None
    ]
    return sum(size or 0 for size in sizes)


def trash(user, kind: str, name: str, by: str) -> None:
    """Move an object of the user to the trash. Raises Refused."""
    KINDS[kind].trash(user=user, name=name, by=by)


def restore(user, kind: str, name: str, by: str) -> None:
    """Restore an object from the user's trash. Raises Refused."""
    KINDS[kind].restore(user=user, name=name, by=by)


def delete(user, kind: str, name: str, by: str) -> None:
    """Delete an object in the user's trash. Raises Refused."""
    trashed_rows = KINDS[kind].model.objects.filter(user=user, name=name, trashed__isnull=False).select_related("user")
    row = trashed_rows.first()
    if row is None:
        raise Missing(kind)
    KINDS[kind].delete(row, by)
