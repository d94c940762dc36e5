"""Values beyond the contract's four: any name, with step and time; stored by metrics.record, read by api and pages.

A series is what one job reported under one name. Accuracy and loss are series, too, read from JobMetrics, so that
charts and exports deal with one shape only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from django.db import connection
from django.db.models import Count, F, Max, Min, Window
from django.db.models.functions import RowNumber
from django.utils.translation import gettext_lazy as _

from jobs.models import Job, Metrics, Value

MOST_POINTS = 2000
MOST_NAMES = 500  # different names in one job: a name with a counter in it would fill the table
CONTRACT = ("accuracy", "loss")
TITLES = {"accuracy": _("Accuracy"), "loss": _("Loss")}  # of the series that every job has

# By columns, many times faster than row by row: values come by the thousand.
INSERT = """
INSERT INTO metric_value (job_id, attempt, name, step, value, at, msg_id)
SELECT %s, * FROM unnest(%s::smallint[], %s::text[], %s::bigint[], %s::float8[], %s::timestamptz[], %s::text[])
ON CONFLICT DO NOTHING
"""
# Jumps from name to name by the index: a plain DISTINCT would read every row of the job.
NAMES = """
WITH RECURSIVE names AS (
    SELECT min(name) AS name FROM metric_value WHERE job_id = %s
    UNION ALL
    SELECT (SELECT min(name) FROM metric_value WHERE job_id = %s AND name > names.name) FROM names
    WHERE names.name IS NOT NULL
)
SELECT name FROM names
"""


class Series(NamedTuple):
    """One series. `points` are [step, value, attempt], in the order of their reports, thinned out to the number asked
    for.
    """

    name: str
    count: int
    last: float
    min: float
    max: float
    points: list[list[float]]


def store(job: Job, packs: list[tuple[str, datetime, list[dict]]], most: int) -> int:
    """Add (message id, sent, rows) to a locked job that ran then, at most so many values; rows stored before stay as
    they are.

    Returns the number of new values. New names beyond MOST_NAMES are dropped.
    """
    known = _names(job.pk)
    columns: list[tuple] = []
    for message_id, sent, rows in packs:
        ids, attempt = row_ids(message_id), job.attempt_at(sent)
        for row in rows:
            row_id = next(ids)
            at = datetime.fromtimestamp(row["time"], UTC) if "time" in row else sent
            for name, value in row["values"].items():
                if name not in known:
                    if len(known) >= MOST_NAMES:
                        continue
                    known.add(name)
                columns.append((attempt, name, row["step"], float(value), at, row_id))
    columns = columns[: max(0, most)]
    if not columns:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(INSERT, [job.pk, *(list(column) for column in zip(*columns, strict=True))])
        return cursor.rowcount


def row_ids(message_id: str) -> Iterator[str]:
    """Return the rows' own ids: `run:7/3` is a message of 3 rows, the first of which is `run:7`.

    So a report that is sent again in other batches counts once. Any other id is that of one message, always the same.
    """
    counted = re.fullmatch(r"(.*?)(\d{1,15})/\d+", message_id, re.DOTALL)
    if counted is None:
        return (f"{message_id}#{index}" for index in count())
    stem, first = counted.groups()
    return (f"{stem}{number}" for number in count(int(first)))


@lru_cache(maxsize=1000)
def _names(job_pk: int) -> set[str]:
    """Return the names of a job's series. `store` keeps them up to date, and no other process adds any."""
    with connection.cursor() as cursor:
        cursor.execute(NAMES, [job_pk, job_pk])
        return {name for (name,) in cursor.fetchall() if name is not None}


def of_job(job: Job, points: int = 0) -> list[Series]:
    """Return all series of a job: accuracy and loss first, the others by name, each with at most
    about `points` points.
    """
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
    result = []
    for place, name in enumerate(CONTRACT, start=1):
        values = [row[place] for row in rows]
        drawn = [[row[0], row[place], row[3]] for row in rows[::stride]] if points else []
        result.append(Series(name, len(rows), values[-1], min(values), max(values), drawn))
    return result
