"""The columns that a table of runs can have: attributes of a run, its arguments and its metrics.

A column's key is used in addresses: `state`, `param:lr`, `last:loss`, `min:loss`, `best:loss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.utils.translation import gettext_lazy as _

from tracking.runs import goals

STATISTICS = {"last": _("last"), "min": _("minimum"), "max": _("maximum"), "best": _("best")}
FIXED = {
    "name": _("Name"), "state": _("State"), "progress": _("Progress"), "created": _("Created"),
    "started": _("Started"), "ended": _("Ended"), "duration": _("Duration"), "waiting": _("Waiting time"),
    "script": _("Script"), "dataset": _("Datasets"), "project": _("Project"), "group": _("Group"), "tags": _("Tags"),
    "notes": _("Notes"), "runtime": _("Runtime"), "cpu": _("CPU"), "gpu": _("GPU"), "ram": _("Memory (MiB)"),
    "workers": _("Workers"), "attempt": _("Attempt"), "reason": _("Reason"), "origin": _("Origin"),
    "image": _("Image"), "gpu_type": _("GPU type"),
}  # fmt: skip
NUMBERS = {"duration", "waiting", "cpu", "gpu", "ram", "workers", "attempt"}
DEFAULT = ("name", "state", "progress", "duration", "script", "tags", "created")
MAX = 60  # columns of one table
MAX_NAME = 250


@dataclass(frozen=True)
class Column:
    """One column. `kind` is "fixed", "param" or a statistic of a metric; `field` is the column of run_metric."""

    key: str
    kind: str
    name: str
    field: str = ""

    @property
    def title(self) -> str:
        return str(FIXED[self.name]) if self.kind == "fixed" else self.name

    @property
    def is_metric(self) -> bool:
        return self.kind in STATISTICS

    @property
    def hint(self) -> str:
        """Return the part of the column that is not in its title: the statistic of a metric."""
        return str(STATISTICS[self.kind]) if self.is_metric and self.kind != "last" else ""

    @property
    def is_number(self) -> bool:
        return self.is_metric or self.key in NUMBERS


def column(key: str, directions: Mapping[str, str]) -> Column | None:
    """Return the column of that key; None if there is none."""
    if key in FIXED:
        return Column(key, "fixed", key)
    kind, colon, name = key.partition(":")
    if not colon or not name or len(name) > MAX_NAME or "\x00" in name:
        return None
    if kind == "param":
        return Column(key, kind, name)
    if kind in STATISTICS:
        return Column(key, kind, name, goals.best_of(name, directions) if kind == "best" else kind)
    return None


def chosen(keys: list[str], directions: Mapping[str, str]) -> list[Column]:
    """Return the columns of these keys without duplicates; unknown keys are ignored. The name is always the first
    column.
    """
    wanted = dict.fromkeys(["name", *keys])
    return [shown for key in list(wanted)[:MAX] if (shown := column(key, directions)) is not None]
