"""Values beyond the contract's four: any name, with step and time; stored by metrics.recording, read by api and pages.

A series is what one job reported under one name. Accuracy and loss are series, too, read from JobMetrics, so that
charts and exports deal with one shape only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from django.db import connection
from django.db.models import Case, Prefetch, QuerySet, When
from django.utils.translation import gettext_lazy as _

from jobs.models import Job, RunMetric
from jobs.summaries import metrics as summaries

MAX_POINTS = 2000
MAX_NAMES = 500  # different names in one job: a name with a counter in it would fill the table
MEASURED = ("accuracy", "loss")  # what a line of JobMetrics has besides its epoch and progress
ACCURACY_AND_LOSS = "accuracy_and_loss"  # the attribute of a job that has the summaries of both
MAX_FOLLOWED = 1000  # names of one run that a live page follows
TITLES = {"accuracy": _("Accuracy"), "loss": _("Loss")}  # of the series that every job has

# By columns, many times faster than row by row: values come by the thousand.
# One statement stores the new ones and adds those to the summaries of the run.
INSERT = f"""
WITH fresh AS (
    INSERT INTO metric_value (job_id, attempt, name, step, value, at, msg_id)
    SELECT %s, * FROM unnest(%s::smallint[], %s::text[], %s::bigint[], %s::float8[], %s::timestamptz[], %s::text[])
    ON CONFLICT DO NOTHING
    RETURNING id, name, step, value, at
), summed AS (
    INSERT INTO run_metric (job_id, user_id, name, last, min, max, count, step, at)
    SELECT %s, %s, name, {summaries.COLUMNS} FROM fresh GROUP BY name ORDER BY name
    {summaries.ADDED}
)
SELECT count(*) FROM fresh
"""
# Jumps from name to name by the index: a plain DISTINCT would read every row of the job.
NAMES = """
WITH RECURSIVE names AS (
    SELECT min(name) AS name FROM metric_value WHERE job_id = %s
    UNION ALL
    SELECT (SELECT min(name) FROM metric_value WHERE job_id = %s AND name > names.name) FROM names
    WHERE names.name IS NOT NULL
)
SELECT name FROM names LIMIT %s
"""

# The last row of a job's values, name by name, as the index has them: see blocks.FIRST_VALUES.
NEWEST = """
SELECT max(last) FROM unnest(%(names)s::text[]) AS names(name), LATERAL (
    SELECT id AS last FROM metric_value WHERE job_id = %(job)s AND metric_value.name <= names.name
    ORDER BY metric_value.name DESC, id DESC LIMIT 1
) AS newest
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

    Returns the number of new values. New names beyond MAX_NAMES are dropped.
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
                    if len(known) >= MAX_NAMES:
                        continue
                    known.add(name)
                columns.append((attempt, name, row["step"], float(value), at, row_id))
    columns = columns[: max(0, most)]
    if not columns:
        return 0
    with connection.cursor() as cursor:
        arrays = (list(column) for column in zip(*columns, strict=True))
        cursor.execute(INSERT, [job.pk, *arrays, job.pk, job.user_id])
        return cursor.fetchone()[0]


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
    return names_of(job_pk)


def names_of(job_pk: int, most: int | None = None) -> set[str]:
    """Return the names of a job's series, at most so many, the first by name."""
    with connection.cursor() as cursor:
        cursor.execute(NAMES, [job_pk, job_pk, most])
        return {name for (name,) in cursor.fetchall() if name is not None}


def summarised(jobs: Iterable[Job], part: str = "") -> QuerySet:
    """Return the summaries of jobs, those of names with this part only: accuracy and loss first, the others by name."""
    rows = RunMetric.objects.filter(job__in=jobs)
    if part:
        rows = rows.filter(name__icontains=part)
    return rows.order_by(Case(When(name__in=MEASURED, then=0), default=1), "name", "job")


def accuracy_and_loss() -> Prefetch:
    """Return what fetches all that compact boards of several jobs need."""
    return Prefetch("summaries", RunMetric.objects.filter(name__in=MEASURED).order_by("name"), ACCURACY_AND_LOSS)


def of_job(job: Job, begin: int, end: int) -> list[Series]:
    """Return these series of a job without points."""
    return [Series(row.name, row.count, row.last, row.min, row.max, []) for row in summarised([job])[begin:end]]
