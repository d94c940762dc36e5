"""Writes RunMetric rows, in the transaction that stores the values themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from django.db import connection

from jobs.models import Job, RunMetric
from kernel.database import execute_prepared

MAX_AT_ONCE = 200_000  # summaries of one answer about several runs
# How the summary of new values is joined to what is there. For PostgreSQL NaN is greater than any number, so only the
# maximum needs care: it leaves NaN out while there is a number.
ADDED = """
ON CONFLICT (job_id, name) DO UPDATE SET
    last = EXCLUDED.last,
    step = EXCLUDED.step,
    at = EXCLUDED.at,
    count = run_metric.count + EXCLUDED.count,
    min = LEAST(run_metric.min, EXCLUDED.min),
    max = COALESCE(GREATEST(NULLIF(run_metric.max, 'NaN'), NULLIF(EXCLUDED.max, 'NaN')), 'NaN')
"""
# What is selected of values that are grouped by name: the columns of run_metric after the job, the user and the name.
COLUMNS = """
(array_agg(value ORDER BY id DESC))[1], min(value), COALESCE(max(value) FILTER (WHERE value <> 'NaN'), 'NaN'),
count(*), (array_agg(step ORDER BY id DESC))[1], (array_agg(at ORDER BY id DESC))[1]
"""
ADD = f"""
INSERT INTO run_metric (job_id, user_id, name, last, min, max, count, step, at)
SELECT %s, %s, *
FROM unnest(%s::text[], %s::float8[], %s::float8[], %s::float8[], %s::bigint[], %s::bigint[], %s::timestamptz[])
ORDER BY 3
{ADDED}
"""
COUNTS = """
SELECT job_id, count(*) FROM run_metric WHERE job_id = ANY (%(jobs)s::bigint[]) GROUP BY job_id
"""


class Summary(NamedTuple):
    """The summary of the new values of one series, as a row of run_metric."""

    name: str
    last: float
    min: float
    max: float
    count: int
    step: int
    at: datetime


def summary_of(name: str, values: list[float], step: int, at: datetime) -> Summary:
    """Return the summary of a series' new values, in the order of their reports; `step` and `at` are the last one's."""
    numbers = [float(value) for value in values if value == value] or [math.nan]
    return Summary(name, float(values[-1]), min(numbers), max(numbers), len(values), step, at)


def add(job: Job, summaries: Iterable[Summary]) -> None:
    """Add new values to the summaries of a locked job."""
    columns = [list(column) for column in zip(*summaries, strict=True)]
    if columns:
        with connection.cursor() as cursor:
            cursor.execute(ADD, [job.pk, job.user_id, *columns])


def fitting(jobs: Iterable[int], most: int) -> int:
    """Return how many of the first of these jobs have so many summaries at most together; at least one.

    What shows all metrics of many runs reads no more at once: a run may have 100,000 of them.
    """
    jobs = list(jobs)
    counts = dict(execute_prepared(COUNTS, {"jobs": jobs}))
    total = 0
    for place, job in enumerate(jobs):
        total += counts.get(job, 0)
        if place and total > most:
            return place
    return len(jobs)


def forget(job: Job) -> None:
    """Delete the summaries of a locked job whose values are deleted."""
    RunMetric.objects.filter(job=job).delete()
