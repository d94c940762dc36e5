"""Numbers beyond the contract's four: any name, with step and time; stored by metrics.record, read by api and pages.

A series is what one job reported under one name. Accuracy and loss come as series too, read from JobMetrics, so that
whoever draws or exports needs to know one shape only.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import NamedTuple

from django.db.models import Count, F, Max, Min, Window
from django.db.models.functions import RowNumber

from .models import Job, Metrics, Value

MOST_POINTS = 2000
MOST_NAMES = 500  # different names in one job; a name made from a counter would fill the table
CONTRACT = ("accuracy", "loss")


class Series(NamedTuple):
    """`points` are [step, value, attempt], in the order of their reports, thinned out to what was asked for."""

    name: str
    count: int
    last: float
    min: float
    max: float
    points: list[list[float]]


def store(job: Job, rows: list[tuple[str, datetime, dict]]) -> int:
    """Adds (message id, sent, values) to a locked job; what was stored before is left as it is. Returns the number
    of values given. New names beyond MOST_NAMES are dropped.
    """
    known = set(Value.objects.filter(job=job).values_list("name", flat=True).distinct())
    fresh = []
    for message_id, sent, row in rows:
        at = datetime.fromtimestamp(row["time"], UTC) if "time" in row else sent
        for name, value in row["values"].items():
            if name not in known and len(known) >= MOST_NAMES:
                continue
            known.add(name)
            fresh.append(
                Value(job=job, name=name, step=row["step"], value=value, at=at, attempt=job.attempt, msg_id=message_id)
            )
    Value.objects.bulk_create(fresh, ignore_conflicts=True)
    return len(fresh)


def of_job(job: Job, points: int = 0) -> list[Series]:
    """All series of a job: accuracy and loss first, the others by name, each with at most about `points` points."""
    return [*_contract(job, points), *_values(job, points)]


def _values(job: Job, points: int) -> list[Series]:
    rows = Value.objects.filter(job=job)
    drawn: dict[str, list[list[float]]] = defaultdict(list)
    by_name = rows.values("name").annotate(n=Count("pk"), low=Min("value"), high=Max("value"), newest=Max("pk"))
    summary = {row["name"]: row for row in by_name}
    last = dict(rows.filter(pk__in=[row["newest"] for row in summary.values()]).values_list("name", "value"))
    if points:
        ranked = rows.annotate(
            rank=Window(RowNumber(), partition_by=F("name"), order_by=F("pk").asc()),
            whole=Window(Count("pk"), partition_by=F("name")),
        )
        # Every n-th, and the newest: enough for a line, and the same ones each time.
        stride = (F("whole") + (points - 1)) / points
        chosen = ranked.annotate(left=(F("rank") - 1) % stride).filter(left=0) if _many(summary, points) else ranked
        for name, step, value, attempt in chosen.order_by("pk").values_list("name", "step", "value", "attempt"):
            drawn[name].append([step, value, attempt])
    return [
        Series(name, row["n"], last[name], row["low"], row["high"], drawn[name])
        for name, row in sorted(summary.items())
    ]


def _many(summary: dict, points: int) -> bool:
    return any(row["n"] > points for row in summary.values())


def _contract(job: Job, points: int) -> list[Series]:
    rows = list(Metrics.objects.filter(job=job).values_list("epoch", "accuracy", "loss", "attempt"))
    if not rows:
        return []
    stride = -(-len(rows) // points) if points else 1
    found = []
    for place, name in enumerate(CONTRACT, start=1):
        values = [row[place] for row in rows]
        drawn = [[row[0], row[place], row[3]] for row in rows[::stride]] if points else []
        found.append(Series(name, len(rows), values[-1], min(values), max(values), drawn))
    return found
