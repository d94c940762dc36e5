"""The size of the stored lines, and the removal of the oldest. Used by the log store in the database.

The table's size on disk is no measure: PostgreSQL keeps the space of removed lines for new ones and hardly ever frees
it, so a limit on that size would stay exceeded and remove line after line until none is left. This counts the existing
lines, each with its share of the indexes, as a freshly written table would hold them.
"""

from __future__ import annotations

import time

from django.db import connection

TEXTS = ("cluster", "namespace", "deployment", "service", "pod", "log_type", "log", "masked", "level", "template",
         "model", "unexpected", "line_id")  # fmt: skip
INDEXED = ("line_id", "line_id", "cluster", "namespace", "deployment")  # the id twice: itself and for prefixes
ROW = 72  # bytes: a row's head, its four numbers, the pointer to it
ENTRIES = 130  # bytes: in six indexes the head of an entry, the pointer to it, its numbers
FULL = 0.75  # of an index's page after many page splits
BLOCK = 8192  # bytes
SAMPLED = 4096  # blocks of the table in the sample, at most: 32 MiB
PORTION = 10_000  # lines of one statement: writers of the same workload wait for it
MOST = 500_000  # lines of one call


def _sum(columns) -> str:
    return " + ".join(f"coalesce(pg_column_size({name}), 0)" for name in columns)  # as stored, perhaps compressed


BYTES = f"(({ROW} + {_sum(TEXTS)}) + ({ENTRIES} + {_sum(INDEXED)}) / {FULL})::bigint"
# The seed selects the same blocks each time, so that the sample's error does not vary between calls: otherwise each
# overestimate would remove lines, and nothing would restore them.
SIZE = f"SELECT coalesce(sum({BYTES}), 0) FROM aiops_log TABLESAMPLE SYSTEM (%s) REPEATABLE (0)"
# The oldest by the limit of age, or until the bytes before a line make up the excess. Workloads are locked in the same
# order as when lines are added.
REMOVE = f"""
WITH oldest AS (
    SELECT id, time, {BYTES} AS bytes FROM aiops_log WHERE time < %(before)s OR %(excess)s > 0
    ORDER BY time, id LIMIT %(most)s
), summed AS (
    SELECT id, time, sum(bytes) OVER (ORDER BY time, id ROWS UNBOUNDED PRECEDING) - bytes AS so_far FROM oldest
), gone AS (
    DELETE FROM aiops_log WHERE id IN (SELECT id FROM summed WHERE time < %(before)s OR so_far < %(excess)s)
    RETURNING cluster, namespace, deployment, {BYTES} AS bytes
), counted AS (
    SELECT cluster, namespace, deployment, count(*) AS lines FROM gone GROUP BY 1, 2, 3
), held AS (
    SELECT workload.id, counted.lines FROM aiops_workload AS workload
    JOIN counted USING (cluster, namespace, deployment)
    ORDER BY cluster, namespace, deployment FOR UPDATE OF workload
), corrected AS (
    UPDATE aiops_workload SET lines = greatest(0, aiops_workload.lines - held.lines)
    FROM held WHERE aiops_workload.id = held.id
)
SELECT count(*), coalesce(sum(bytes), 0) FROM gone
"""

# All lines of one workload, in portions. The workload is locked first, as when lines are added.
FORGET = """
WITH held AS (
    SELECT id FROM aiops_workload WHERE (cluster, namespace, deployment) = (%(cluster)s, %(namespace)s, %(deployment)s)
    FOR UPDATE
), gone AS (
    DELETE FROM aiops_log WHERE id IN (
        SELECT id FROM aiops_log
        WHERE (cluster, namespace, deployment) = (%(cluster)s, %(namespace)s, %(deployment)s) LIMIT %(most)s
    ) AND (SELECT count(*) FROM held) >= 0 RETURNING id
), corrected AS (
    UPDATE aiops_workload SET lines = greatest(0, lines - (SELECT count(*) FROM gone))
    WHERE id IN (SELECT id FROM held)
)
SELECT count(*) FROM gone
"""


def size() -> int:
    """Return the bytes of all lines with their index entries; for a large table estimated from a
    sample of its blocks.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_size('aiops_log')")
        blocks, share = cursor.fetchone()[0] // BLOCK, 100.0
        while blocks * share / 100 > SAMPLED:
            share /= 2
        cursor.execute(SIZE, [share])
        return int(int(cursor.fetchone()[0]) * 100 / share)


def remove(days: int, megabytes: int, most: int = MOST, portion: int = PORTION) -> int:
    """Remove lines older than the days, and as many of the oldest as exceed the size; return how many.

    It works in portions, each a statement of its own, and stops soon after `most`; the next call goes on.
    """
    before, excess, removed = int(time.time() * 1000) - days * 86_400_000, size() - (megabytes << 20), 0
    while removed < most:
        with connection.cursor() as cursor:
            cursor.execute(REMOVE, {"before": before, "excess": excess, "most": portion})
            lines, freed = cursor.fetchone()
        removed, excess = removed + lines, excess - int(freed)
        if lines < portion:
            break
    return removed


def forget(names: tuple[str, str, str], portion: int = PORTION) -> int:
    """Remove all lines of the workload of that cluster, namespace and deployment; return how many."""
    given = dict(zip(("cluster", "namespace", "deployment"), names, strict=True))
    removed, lines = 0, portion
    while lines == portion:
        with connection.cursor() as cursor:
            cursor.execute(FORGET, {**given, "most": portion})
            (lines,) = cursor.fetchone()
        removed += lines
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM aiops_workload WHERE lines = 0"
            " AND (cluster, namespace, deployment) = (%(cluster)s, %(namespace)s, %(deployment)s)",
            given,
        )
    return removed
