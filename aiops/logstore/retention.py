"""The size of the stored lines, and the removal of the oldest. Used by the log store in the database.

A partition whose lines are all to be removed is emptied as a whole, which costs next to nothing; only of the one that
the limit falls in single lines are deleted. For the limit of size a partition is removed as a whole where it is small
beside the limit, since by lines the oldest would be removed minute by minute as the new ones come.

The table's size on disk is no measure: PostgreSQL keeps the space of removed lines for new ones and hardly ever frees
it, so a limit on that size would stay exceeded and remove line after line until none is left. This counts the existing
lines, each with its share of the indexes, as a freshly written table would hold them.
"""

from __future__ import annotations

import logging
import time

from django.db import OperationalError, connection, transaction

from . import partitions
from .statements import KEY

log = logging.getLogger(__name__)

TEXTS = ("cluster", "namespace", "deployment", "service", "pod", "log_type", "log", "attributes", "masked", "level",
         "template", "model", "unexpected", "line_id")  # fmt: skip
INDEXED = ("cluster", "namespace", "deployment")
ROW = 72  # bytes: a row's head, its four numbers, the pointer to it
ENTRIES = 85  # bytes: in the indexes the head of an entry, the pointer to it, its numbers
KEYS = 105  # bytes: the row of the line's id, and its entry in the index of ids
FULL = 0.75  # of an index's page after many page splits
BLOCK = 8192  # bytes
SAMPLED = 4096  # blocks of the table in the sample, at most: 32 MiB
PORTION = 10_000  # lines of one statement: writers of the same workload wait for it
MAX = 500_000  # lines of one call
WHOLE = 8  # a partition up to this part of the limit of size is removed as a whole


def _sum(columns) -> str:
    return " + ".join(f"coalesce(pg_column_size({name}), 0)" for name in columns)  # as stored, perhaps compressed


# With the share of the index of the text, which grows with the rows, in proportion to them.
BYTES = f"""({KEYS} + ({ROW} + {_sum(TEXTS)}) * (1 + %(text)s) + ({ENTRIES} + {_sum(INDEXED)}) / {FULL})::bigint"""
ON_DISK = """
SELECT coalesce(sum(pg_relation_size(relid)), 0),
    coalesce(sum(pg_relation_size(to_regclass(relid::regclass || '_text'))), 0)
FROM pg_partition_tree(%s)
"""
# The seed selects the same blocks each time, so that the sample's error does not vary between calls: otherwise each
# overestimate would remove lines, and nothing would restore them.
SIZE = f"SELECT coalesce(sum({BYTES}), 0) FROM {{}} TABLESAMPLE SYSTEM (%(share)s) REPEATABLE (0)"
# What follows the removal of lines: their ids, and the counts. Workloads and minutes are locked in the same order as
# when lines are added.
SETTLED = f"""
keys AS (
    DELETE FROM aiops_log_key USING gone WHERE key = {KEY}
), counted AS (
    SELECT cluster, namespace, deployment, count(*) AS lines FROM gone GROUP BY 1, 2, 3
), held AS (
    SELECT workload.id, counted.lines FROM aiops_workload AS workload
    JOIN counted USING (cluster, namespace, deployment)
    ORDER BY cluster, namespace, deployment FOR UPDATE OF workload
), corrected AS (
    UPDATE aiops_workload SET lines = greatest(0, aiops_workload.lines - held.lines)
    FROM held WHERE aiops_workload.id = held.id
), fewer AS (
    SELECT time / 60000 AS minute, cluster, namespace, deployment,
        count(*) FILTER (WHERE level NOT IN ('Normal', 'Anomaly')) AS unjudged,
        count(*) FILTER (WHERE level = 'Normal') AS normal, count(*) FILTER (WHERE level = 'Anomaly') AS anomalies
    FROM gone GROUP BY 1, 2, 3, 4
), kept AS (
    SELECT minutes.id, fewer.* FROM aiops_log_minute AS minutes
    JOIN fewer USING (minute, cluster, namespace, deployment)
    ORDER BY minute, cluster, namespace, deployment FOR UPDATE OF minutes
), lowered AS (
    UPDATE aiops_log_minute AS minutes SET unjudged = greatest(0, minutes.unjudged - kept.unjudged),
        normal = greatest(0, minutes.normal - kept.normal), anomalies = greatest(0, minutes.anomalies - kept.anomalies)
    FROM kept WHERE minutes.id = kept.id
)
"""
RETURNED = "RETURNING time, line_id, cluster, namespace, deployment, level"
# The oldest by the limit of age, or until the bytes before a line make up the excess.
REMOVE = f"""
WITH oldest AS (
    SELECT id, time, {BYTES} AS bytes FROM aiops_log WHERE time < %(before)s OR %(excess)s > 0
    ORDER BY time, id LIMIT %(most)s
), summed AS (
    SELECT id, time, sum(bytes) OVER (ORDER BY time, id ROWS UNBOUNDED PRECEDING) - bytes AS so_far FROM oldest
), gone AS (
    DELETE FROM aiops_log WHERE (time, id) IN (
        SELECT time, id FROM summed WHERE time < %(before)s OR so_far < %(excess)s
    ) {RETURNED}, {BYTES} AS bytes
), {SETTLED}
SELECT count(*), coalesce(sum(bytes), 0) FROM gone
"""
# All lines of one workload, in portions. The workload is locked first, as when lines are added.
OF_WORKLOAD = "(cluster, namespace, deployment) = (%(cluster)s, %(namespace)s, %(deployment)s)"
FORGET = f"""
WITH gone AS (
    DELETE FROM aiops_log WHERE (time, id) IN (
        SELECT time, id FROM aiops_log WHERE {OF_WORKLOAD} LIMIT %(most)s
    ) {RETURNED}
), {SETTLED}
SELECT count(*) FROM gone
"""
# A whole partition: its ids before it is locked, since they take longest.
KEYS_OF = f"DELETE FROM aiops_log_key USING {{0}} AS gone WHERE key = {KEY.replace('line_id', 'gone.line_id')}"
EMPTIED = f"WITH gone AS (SELECT * FROM {{0}}), {SETTLED} SELECT count(*) FROM gone"
EMPTY_MINUTES = "DELETE FROM aiops_log_minute WHERE unjudged = 0 AND normal = 0 AND anomalies = 0"
# Senders name workloads as they like, perhaps each line another one. Those to which lines are being added stay.
EMPTY_WORKLOADS = """
DELETE FROM aiops_workload WHERE id IN (
    SELECT id FROM aiops_workload WHERE lines = 0 ORDER BY cluster, namespace, deployment
    LIMIT %(most)s FOR UPDATE SKIP LOCKED
)
"""


def size(table: str = "aiops_log") -> int:
    """Return the bytes of all lines with their index entries; for a large table estimated from a
    sample of its blocks.
    """
    share, text = sample(table)
    with connection.cursor() as cursor:
        cursor.execute(SIZE.format(table), {"share": share, "text": text})
        return int(int(cursor.fetchone()[0]) * 100 / share)


def sample(table: str = "aiops_log") -> tuple[float, float]:
    """Return the percentage of the table's blocks that a sample has, and the share of the indexes of its text."""
    blocks, text = _on_disk(table)
    share = 100.0
    while blocks * share / 100 > SAMPLED:
        share /= 2
    return share, text


def _on_disk(table: str) -> tuple[int, float]:
    """Return the blocks of the table's partitions, and the size of the indexes of their text beside theirs."""
    with connection.cursor() as cursor:
        cursor.execute(ON_DISK, [table])
        rows, text = map(int, cursor.fetchone())
    return rows // BLOCK, text / (rows or 1)


def remove(days: int, megabytes: int, most: int = MAX, portion: int = PORTION) -> int:
    """Remove lines older than the days, and as many of the oldest as exceed the size; return how many.

    It works in portions, each a statement of its own, and stops soon after `most`; the next call goes on.
    """
    limit = megabytes << 20
    before, excess = int(time.time() * 1000) - days * partitions.DAY_MS, size() - limit
    removed, freed = _whole(before, excess, limit)
    excess -= freed
    begun, (_blocks, text) = removed, _on_disk("aiops_log")
    while removed - begun < most:
        with connection.cursor() as cursor:
            cursor.execute(REMOVE, {"before": before, "excess": excess, "most": portion, "text": text})
            lines, freed = cursor.fetchone()
        removed, excess = removed + lines, excess - int(freed)
        if lines < portion:
            break
    forget_empty(removed)
    return removed


def forget_empty(removed: int) -> None:
    """Remove the counts of what has no lines any more, after so many lines have been removed."""
    with connection.cursor() as cursor:
        if removed:
            cursor.execute(EMPTY_MINUTES)
        cursor.execute(EMPTY_WORKLOADS, {"most": PORTION})


def _whole(before: int, excess: int, limit: int) -> tuple[int, int]:
    """Empty the oldest partitions that are older than `before`, or needed for the excess, and join the empty ones.

    Return (lines, bytes) that were removed.
    """
    removed = freed = 0
    oldest = partitions.listed()[::-1]
    for place, partition in enumerate(oldest[:-1]):  # the newest takes lines
        occupied = size(partition.name) if partition.bytes and _has_lines(partition.name) else 0
        if occupied and partition.until > before and not (excess - freed > 0 and occupied <= limit // WHOLE):
            break
        try:
            removed, freed = removed + (_empty(partition.name) if partition.bytes else 0), freed + occupied
            if place:
                partitions.replace_oldest()
        except OperationalError as problem:  # locked, by a backup for example
            log.info("the partition %s was not removed now: %s", partition.name, str(problem).strip())
            break
    return removed, freed


def _has_lines(name: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT EXISTS (SELECT FROM {name})")
        return cursor.fetchone()[0]


def _empty(name: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(KEYS_OF.format(name))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{partitions.WAIT}'")
        cursor.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
        cursor.execute(EMPTIED.format(name))
        (lines,) = cursor.fetchone()
        cursor.execute(f"TRUNCATE {name}")
    return lines


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
        cursor.execute(f"DELETE FROM aiops_workload WHERE lines = 0 AND {OF_WORKLOAD}", given)
        cursor.execute(f"{EMPTY_MINUTES} AND {OF_WORKLOAD}", given)
    return removed
