"""The partitions of the table of lines: ranges of time, of which one has what is older and one what is newer.

The newest takes the present's lines and has no index of their text, which would more than double the work of storing
them. When it holds SEALED_BYTES, or is a day old, it is closed: it gets an upper bound, a new one takes what is newer,
and the index is built on the closed one in one go, beside everything else. So a search reads the newest lines as they
are, and the others by the index. A line that arrives late goes to the partition of its time. The oldest is removed as a
whole (retention.py), and the next takes its place.

The index is of pg_trgm, an extension that comes with PostgreSQL. On a server that has not got it, or does not let the
platform's user create it, all lines are read.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from django.db import DatabaseError, OperationalError, connection, transaction

log = logging.getLogger(__name__)

SEALED_BYTES = 64 << 20  # of the table alone, about 250,000 lines
MAX = 40  # partitions that size alone makes; more lines make larger ones
DAY_MS = 86_400_000
WAIT = "2s"  # for the table's lock: while this waits, all others wait behind it
OPTIONS = "(autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000)"
LISTED = """
SELECT part.relname, pg_get_expr(part.relpartbound, part.oid), pg_relation_size(part.oid), coalesce((
    SELECT indisvalid FROM pg_index JOIN pg_class AS named ON named.oid = indexrelid
    WHERE indrelid = part.oid AND named.relname = part.relname || '_text'
), false) FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid
WHERE inhparent = 'aiops_log'::regclass
"""


@dataclass(frozen=True)
class Partition:
    """A table with the lines of the times in [since, until), in ms; None: without a bound. `bytes` without indexes."""

    name: str
    since: int | None
    until: int | None
    bytes: int
    indexed: bool


def listed() -> list[Partition]:
    """Return the partitions, the newest first."""
    with connection.cursor() as cursor:
        cursor.execute(LISTED)
        partitions = [
            Partition(name, *_bounds(bound), size, indexed) for name, bound, size, indexed in cursor.fetchall()
        ]
    return sorted(partitions, key=lambda partition: -1 if partition.since is None else partition.since, reverse=True)


def _bounds(text: str) -> tuple[int | None, int | None]:
    """Return the numbers of `FOR VALUES FROM ('1') TO (MAXVALUE)`."""
    first, last = (word.strip("()' ") for word in text.removeprefix("FOR VALUES FROM").split(" TO "))
    return None if first == "MINVALUE" else int(first), None if last == "MAXVALUE" else int(last)


def is_due() -> bool:
    """Return whether `keep` would close the newest partition, or a closed one has no index yet."""
    parts = listed()
    return _is_closing_due(parts, int(time.time() * 1000), DAY_MS) or any(map(_lacks_index, parts))


def _is_closing_due(parts: list[Partition], now: int, day_ms: int) -> bool:
    newest, most = parts[0], max(SEALED_BYTES, sum(part.bytes for part in parts) // MAX)
    return bool(newest.bytes) and (newest.bytes >= most or now >= (newest.since or 0) + day_ms)


def _lacks_index(partition: Partition) -> bool:
    return partition.until is not None and not partition.indexed


def keep(day_ms: int = DAY_MS) -> bool:
    """Close the newest partition if it is large or old enough, and begin another; return whether it was."""
    parts = listed()
    newest, now = parts[0], int(time.time() * 1000)
    if not _is_closing_due(parts, now, day_ms):
        return False
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            _lock(cursor, "aiops_log")
            cursor.execute(f"SELECT coalesce(max(time), 0) FROM {newest.name}")
            bound = max(now, cursor.fetchone()[0] + 1, (newest.since or 0) + 1)  # the clock may have been set back
            since = "MINVALUE" if newest.since is None else newest.since
            cursor.execute(f"ALTER TABLE aiops_log DETACH PARTITION {newest.name}")
            cursor.execute(
                f"ALTER TABLE aiops_log ATTACH PARTITION {newest.name} FOR VALUES FROM ({since}) TO ({bound})"
            )
            cursor.execute(
                f"CREATE TABLE aiops_log_{bound} PARTITION OF aiops_log"
                f" FOR VALUES FROM ({bound}) TO (MAXVALUE) WITH {OPTIONS}"
            )
    except OperationalError as problem:  # the lock is held, by a backup for example
        log.info("the partition %s was not closed now: %s", newest.name, str(problem).strip())
        return False
    return True


def _lock(cursor, table: str) -> None:
    cursor.execute(f"SET LOCAL lock_timeout = '{WAIT}'")
    cursor.execute("SET LOCAL statement_timeout = 0")
    cursor.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")


def build_indexes() -> int:
    """Create the index of the text of each closed partition that has none, the newest first; return how many.

    Beside what reads and writes the partition, except in a transaction.
    """
    built = 0
    for partition in listed():
        if _lacks_index(partition) and has_trigrams():
            _build(partition)
            built += 1
    return built


def _build(partition: Partition) -> None:
    beside = "" if connection.in_atomic_block else "CONCURRENTLY"
    with connection.cursor() as cursor:
        try:
            cursor.execute("SELECT set_config('statement_timeout', '0', false), current_setting('statement_timeout')")
            cursor.execute(f"DROP INDEX {beside} IF EXISTS {partition.name}_text")  # of an attempt that was broken off
            cursor.execute(
                f"CREATE INDEX {beside} {partition.name}_text ON {partition.name} USING gin (log gin_trgm_ops)"
            )
            cursor.execute(f"ANALYZE {partition.name}")
        finally:
            if connection.connection is not None and not connection.needs_rollback:
                cursor.execute("RESET statement_timeout")


def has_trigrams() -> bool:
    """Return whether the extension pg_trgm is there; create it if that is possible."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trgm')")
        if cursor.fetchone()[0]:
            return True
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS pg_trgm")
    except DatabaseError as problem:
        log.warning(
            "the text of log lines has no index: let the database's administrator create the extension pg_trgm (%s)",
            str(problem).strip(),
        )
        return False
    return True


def replace_oldest() -> None:
    """Remove the empty oldest partition, and let the next one, which is empty and closed, take what is older."""
    first, second = listed()[:-3:-1]
    with transaction.atomic(), connection.cursor() as cursor:
        _lock(cursor, "aiops_log")
        cursor.execute(f"ALTER TABLE aiops_log DETACH PARTITION {first.name}")
        cursor.execute(f"DROP TABLE {first.name}")
        cursor.execute(f"ALTER TABLE aiops_log DETACH PARTITION {second.name}")
        cursor.execute(
            f"ALTER TABLE aiops_log ATTACH PARTITION {second.name} FOR VALUES FROM (MINVALUE) TO ({second.until})"
        )
