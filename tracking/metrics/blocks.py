"""Blocks: long series aggregated in advance, so that a chart of a million points reads a few thousand numbers.

SIZE consecutive points of one series and one attempt make a block: its buckets of COARSE and of FINE points are packed
as columns of doubles. Blocks are derived data: `fill` creates missing ones, after every EVERY reports of a job
(recording) and when a reader finds more than SIZE points without a block (points). A reader therefore aggregates few
points, and a run of a few thousand reports has no blocks at all.
"""

from __future__ import annotations

import sys
from array import array

from django.db import connection, transaction

from jobs.models import Block, RunMetric

from . import series
from .buckets import COLUMNS, Buckets

SIZE, COARSE, FINE = 8192, 256, 16
BIG = 2**63 - 1
LOCK = 7301  # of the database's advisory locks; the other half is the job
EVERY = 65536  # reports of a job between two fills by the writer

VALUES = """
SELECT id, step, value, at, attempt FROM metric_value
WHERE job_id = %(job)s AND name = %(name)s AND id > %(after)s AND id <= %(last)s
"""
# The first so many of them. With `name = … ORDER BY id LIMIT …` PostgreSQL may read the table by its primary key, the
# values of all jobs, until it has found enough of this series. Only the right index has the order of name and id.
FIRST_VALUES = """
SELECT id, step, value, at, attempt FROM metric_value
WHERE job_id = %(job)s AND (name, id) > (%(name)s, %(after)s) AND name <= %(name)s ORDER BY name, id LIMIT %(most)s
"""
METRICS = """
SELECT seq AS id, epoch AS step, {name} AS value, at, attempt FROM metrics
WHERE job_id = %(job)s AND seq > %(after)s AND seq <= %(last)s AND {name} IS NOT NULL
"""

# The packed columns of the buckets, in the order of COLUMNS; `bad` is the step of the first value that is not finite.
_PACKED = " || ".join(
    f"string_agg(float8send({column}), ''::bytea ORDER BY bucket)"
    for column in (
        "step",
        "until",
        "at",
        "n",
        "nan",
        "inf",
        "ninf",
        "coalesce(low, 0)",
        "coalesce(high, 0)",
        "total",
        "bad",
    )
)
_BUCKETS = """
    SELECT place / {size} AS bucket, min(step)::float8 AS step, max(step)::float8 AS until,
        extract(epoch FROM min(at))::float8 AS at, count(*) FILTER (WHERE finite)::float8 AS n,
        count(*) FILTER (WHERE value = 'NaN')::float8 AS nan, count(*) FILTER (WHERE value = 'Infinity')::float8 AS inf,
        count(*) FILTER (WHERE value = '-Infinity')::float8 AS ninf, min(value) FILTER (WHERE finite) AS low,
        max(value) FILTER (WHERE finite) AS high,
        coalesce(sum(greatest(least(value, 1e300), -1e300)) FILTER (WHERE finite), 0) AS total,
        coalesce(min(step) FILTER (WHERE NOT finite), 0)::float8 AS bad
    FROM points GROUP BY 1
"""
_FILL = f"""
WITH taken AS MATERIALIZED (
    SELECT *, row_number() OVER (ORDER BY id) - 1 AS place FROM ({{rows}}) AS rows
), cut AS (
    SELECT min(place) AS place FROM taken WHERE attempt <> (SELECT attempt FROM taken WHERE place = 0)
), points AS MATERIALIZED (
    SELECT *, value > '-Infinity' AND value < 'Infinity' AS finite FROM taken
    WHERE place < coalesce((SELECT place FROM cut), {SIZE})
), coarse AS ({_BUCKETS.format(size=COARSE)}), fine AS ({_BUCKETS.format(size=FINE)})
INSERT INTO metric_block (job_id, source, name, attempt, first, last, count, low_step, high_step, low_at, high_at,
    low, high, bad, bad_row, coarse, fine)
SELECT %(job)s, %(source)s, %(name)s, min(attempt), min(id), max(id), count(*), min(step), max(step), min(at), max(at),
    min(value) FILTER (WHERE finite), max(value) FILTER (WHERE finite),
    count(*) FILTER (WHERE NOT finite), min(id) FILTER (WHERE NOT finite),
    (SELECT {_PACKED} FROM coarse), (SELECT {_PACKED} FROM fine)
FROM points
HAVING count(*) = {SIZE} OR (count(*) > 0 AND EXISTS (SELECT FROM cut WHERE place IS NOT NULL))
RETURNING last
"""


def rows_of(source: int, name: str) -> str:
    """Return the query of a series' points after `after` to `last`: id, step, value, at, attempt."""
    return METRICS.format(name=name) if source == Block.Source.METRICS else VALUES


def first_rows_of(source: int, name: str) -> str:
    """Return the query of the first `most` points of a series after `after`."""
    return (
        f"{METRICS.format(name=name)} ORDER BY seq LIMIT %(most)s" if source == Block.Source.METRICS else FIRST_VALUES
    )


def fill(job_id: int, source: int, name: str) -> int:
    """Create the blocks of complete, unaggregated points; return the last row that is in a block. Idempotent."""
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LOCK, job_id % (1 << 31)])  # one at a time
            known = Block.objects.filter(job=job_id, source=source, name=name).order_by("-first")
            after = known.values_list("last", flat=True).first() or 0
            values = {"job": job_id, "source": int(source), "name": name, "after": after, "last": BIG, "most": SIZE}
            cursor.execute(_FILL.format(rows=first_rows_of(source, name)), values)
            if cursor.fetchone() is None:
                return after


def fill_all(job_id: int) -> None:
    """Make blocks of what is complete of all series of a job."""
    # Of very many series only the long ones: readers make the blocks of others, if there are any.
    long = RunMetric.objects.filter(job=job_id, count__gte=SIZE).values_list("name", flat=True)
    for name in series.names_of(job_id, series.MAX_FOLLOWED).union(long):
        fill(job_id, Block.Source.VALUES, name)
    for name in series.MEASURED:
        fill(job_id, Block.Source.METRICS, name)


def forget(job_id: int) -> None:
    """Delete the blocks of a job whose points are deleted."""
    Block.objects.filter(job=job_id).delete()


def unpack(data: bytes, attempt: int) -> Buckets:
    """Return packed buckets, which are all of one attempt."""
    numbers = doubles(data)
    length = len(numbers) // len(COLUMNS)
    columns = (numbers[place * length : (place + 1) * length] for place in range(len(COLUMNS)))
    return Buckets(columns, array("h", [attempt]) * length)


def doubles(data: bytes, kind: str = "d") -> array:
    """Return the numbers that PostgreSQL has packed by its send functions."""
    numbers = array(kind)
    numbers.frombytes(data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
