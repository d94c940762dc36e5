"""Who uses the resources that a queued job or application is missing. Other users' objects are one sum, except for
administrators.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from kernel.units import memory
from resources import usage
from resources.models import HELD, ResourceRequest
from resources.units import zero

NAMED = 20  # holders, and jobs ahead, that are named
RUN_KINDS = ("gpu", "cpu", "ram")


@dataclass
class Holder:
    """An object that uses what is missing. `name` is empty for the sum of other users' objects."""

    gpu: int
    cpu: float
    ram: int
    kind: str = ""
    name: str = ""
    user: str = ""
    count: int = 1
    ends: datetime | None = None  # when it will probably be given back

    @property
    def amounts(self) -> str:
        return amounts_text({"gpu": self.gpu, "cpu": self.cpu, "ram": self.ram})


def holders_of(
    tenant_id: int, user: str, missing: Collection[str], limited: bool, ends: Mapping[int, datetime], all_names: bool
) -> list[Holder]:
    """Return who holds the kinds that are missing, the largest first, of equal ones the oldest; other users' in one.

    With `limited` only the user's own objects count; `ends` says when jobs will probably end, by their keys.
    """
    if not missing:
        return []
    rows = ResourceRequest.objects.filter(HELD, tenant_id=tenant_id).order_by("created", "pk")
    if limited:
        rows = rows.filter(owner=user)
    holding = [row for row in rows if any(getattr(row, kind) for kind in missing)]
    shown = [row for row in holding if all_names or row.owner == user]
    shown.sort(key=lambda row: tuple(-getattr(row, kind) for kind in missing))
    holders = []
    for row, kind, name in usage.with_objects(shown[:NAMED]):
        until = ends.get(int(row.pk.partition(":")[2])) if kind == "job" else None
        amounts = {"gpu": row.gpu, "cpu": float(row.cpu), "ram": row.ram}
        holders.append(Holder(**amounts, kind=kind, name=name, user=row.owner, ends=until))
    named = {row.pk for row in shown[:NAMED]}
    rest = [row for row in holding if row.pk not in named]
    if rest:
        sums = {kind: sum((getattr(row, kind) for row in rest), zero(kind)) for kind in RUN_KINDS}
        holders.append(Holder(gpu=sums["gpu"], cpu=float(sums["cpu"]), ram=sums["ram"], count=len(rest)))
    return holders


def amounts_text(amounts: dict, every: bool = False) -> str:
    """Return amounts for display: `1 CPU, 2 GPU, 512 MiB`; zeros only with `every`."""
    words = {"gpu": "{:g} GPU", "cpu": "{:g} CPU"}
    parts = [
        memory(amounts[kind]) if kind == "ram" else words[kind].format(float(amounts[kind]))
        for kind in ("cpu", "gpu", "ram")
        if kind in amounts and (every or amounts[kind])
    ]
    return ", ".join(parts)
