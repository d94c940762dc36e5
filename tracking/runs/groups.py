"""A table of runs grouped by a column: the number of runs of each value, and the mean and best value of metrics."""

from __future__ import annotations

import json
from typing import NamedTuple

from django.db.models import Avg, Count, F, FilteredRelation, Max, Min, Q, QuerySet

from jobs.models import Job

from . import goals
from .table import Table

MAX = 200
MAX_METRICS = 4
AVERAGED = 10_000  # the newest runs, of which the metrics are: to read all of more would take longer than a page may
FIXED = {
    "script": "entry", "runtime": "runtime", "group": "group", "project": "project__name", "dataset": "datasets",
    "state": "display_state", "origin": "origin",
}  # fmt: skip


class Group(NamedTuple):
    """The runs with one value; `filter` finds them. `cells` are (mean, best) of each metric shown."""

    value: object
    filter: str
    count: int
    cells: list[tuple[float | None, float | None]]


class Groups(NamedTuple):
    """The groups of a table. `newest`: the metrics are those of so many of the newest runs; 0: of all."""

    metrics: list[str]
    rows: list[Group]
    newest: int


def groups_of(table: Table) -> Groups | None:
    """Return the groups of a table, the largest first; None for a column that cannot be grouped by."""
    column = table.by
    if column.kind != "param" and column.key not in FIXED:
        return None
    runs = table.runs.order_by()
    counts = list(_valued(table, runs).values_list("value").annotate(n=Count("pk")).order_by("-n")[:MAX])
    metrics = list(dict.fromkeys(shown.name for shown in table.columns if shown.is_metric))[:MAX_METRICS]
    newest = AVERAGED if table.count > AVERAGED else 0
    measured = Job.objects.filter(pk__in=runs.order_by("-pk").values("pk")[:newest]) if newest else runs
    cells = _cells(table, _valued(table, measured), [value for value, _count in counts], metrics)
    rows = [
        Group(
            value, _filter(column, value, table.filter), count,
            [cells.get((_hashed(value), name), (None, None)) for name in metrics],
        )
        for value, count in counts
    ]  # fmt: skip
    return Groups(metrics, rows, newest)


def _valued(table: Table, runs: QuerySet) -> QuerySet:
    """Return the runs, each with the `value` that they are grouped by."""
    column = table.by
    if column.kind != "param":
        return runs.annotate(value=F(FIXED[column.key]))
    own = FilteredRelation("params", condition=Q(params__user=table.user, params__name=column.name))
    return runs.annotate(own=own, value=F("own__text"))


def _cells(table: Table, runs: QuerySet, values: list, metrics: list[str]) -> dict[tuple, tuple[float, float]]:
    """Return the mean of the last values and the best one, by the value of the group and the name of the metric."""
    if not metrics:
        return {}
    shown = FilteredRelation("summaries", condition=Q(summaries__user=table.user, summaries__name__in=metrics))
    if len(values) == MAX:
        runs = runs.filter(Q(value__in=[value for value in values if value is not None]) | Q(value=None))
    rows = runs.annotate(shown=shown).values_list("value", "shown__name").annotate(
        mean=Avg("shown__last"), low=Min("shown__min"), high=Max("shown__max")
    )  # fmt: skip
    return {
        (_hashed(value), name): (mean, low if goals.best_of(name, table.goals) == "min" else high)
        for value, name, mean, low, high in rows
        if name is not None
    }


def _hashed(value) -> str:
    return json.dumps(value)


def _filter(column, value, others: str) -> str:
    """Return the filter that selects a group's runs among those of the other filter."""
    left = f"param.`{column.name}`" if column.kind == "param" else column.key
    if column.kind == "param" and "`" in column.name:
        left = f'param."{column.name}"'
    if value in (None, "", []):
        own = f"{left} is null"
    elif isinstance(value, list):
        own = " and ".join(f"{left} = {_quoted(name)}" for name in value)
    else:
        own = f"{left} = {_quoted(str(value))}"
    return f"({others}) and {own}" if others else own


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
