"""The largest objects on the disk, of one user or of all: datasets, outputs of jobs, models, workspaces.

Sizes are those of the rows: no page walks the disk. jobs.sizes and workspaces.sizes count.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.db.models import CharField, Max, Model, Q, Value

from apps.models import Application
from kernel.locking import DELETING

from .kinds import KINDS

MAX = 100
COUNTED = tuple(name for name, kind in KINDS.items() if kind.size is not None)
# When a job was last submitted that reads each dataset: `name` of its user's own, or `owner/name`.
READ = """
SELECT job.user_id, reference, max(job.created)
FROM job CROSS JOIN LATERAL jsonb_array_elements_text(job.datasets) AS reference
WHERE reference = ANY(%s) GROUP BY 1, 2
"""


@dataclass
class Item:
    """One object. `used` is when something used it last, as far as is known: None for never."""

    kind: str
    pk: int
    owner: str
    owner_id: int
    name: str
    size: int
    created: datetime
    state: str
    trashed: datetime | None
    used: datetime | None = None
    unmovable: str = ""
    unrestorable: str = ""
    undeletable: str = ""

    @property
    def shown_kind(self) -> str:
        return str(self.model._meta.verbose_name)

    @property
    def model(self) -> type[Model]:
        return KINDS[self.kind].model

    @property
    def is_movable(self) -> bool:
        """Return whether it can be moved to the trash now, as far as its state says."""
        return self.trashed is None and self.state in KINDS[self.kind].movable


def items(user=None, kind: str = "", most: int = MAX) -> list[Item]:
    """Return the largest objects of the user, or of all, the largest first; only of that kind where one is given."""
    condition = Q() if user is None else Q(user=user)
    parts = [_part(name, condition) for name in COUNTED if kind in ("", name)]
    rows = parts[0].union(*parts[1:], all=True).order_by("-bytes", "kind", "pk")[:most]
    listed = [Item(*row) for row in rows]
    _note_use(listed)
    return listed


def _part(name: str, condition: Q):
    kind = KINDS[name]
    rows = kind.model.objects.filter(condition).exclude(state=DELETING)
    shown = rows.annotate(kind=Value(name, output_field=CharField()), bytes=kind.size).filter(bytes__gt=0).order_by()
    return shown.values_list(
        "kind", "pk", "user__username", "user_id", "name", "bytes", "created", "state", "trashed"
    )  # fmt: skip


def _note_use(listed: list[Item]) -> None:
    datasets = [item for item in listed if item.kind == "dataset"]
    names = [*(item.name for item in datasets), *(f"{item.owner}/{item.name}" for item in datasets)]
    if names:
        with connection.cursor() as cursor:
            cursor.execute(READ, [names])
            read = list(cursor.fetchall())
        for item in datasets:
            shared = f"{item.owner}/{item.name}"
            times = [at for by, name, at in read if name == shared or (name == item.name and by == item.owner_id)]
            item.used = max(times, default=None)
    models = [item.pk for item in listed if item.kind == "model"]
    served = Application.objects.filter(model__in=models).order_by().values_list("model").annotate(Max("created"))
    ended = dict(KINDS["job"].model.objects.filter(pk__in=_keys(listed, "job")).values_list("pk", "ended"))
    workspaces = KINDS["workspace"].model.objects.filter(pk__in=_keys(listed, "workspace"))
    last = {"model": dict(served), "job": ended, "workspace": dict(workspaces.values_list("pk", "active"))}
    for item in listed:
        if item.kind in last:
            item.used = last[item.kind].get(item.pk)


def _keys(listed: list[Item], kind: str) -> list[int]:
    return [item.pk for item in listed if item.kind == kind]
