"""The database in a backup: pg_dump of one exported snapshot, with the number and a checksum of each table's rows.

While the snapshot is taken, and until `release` is called, nothing can be written to the tables of metrics. What ingest
has read from the message bus and not yet stored then stays there, so that streams which are copied meanwhile are of the
same moment.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psycopg
from django.conf import settings
from psycopg import sql
from psycopg.conninfo import make_conninfo

from aiops.models import LogLine
from jobs.models import Metrics, Value
from kernel.units import count
from supervision import postgres_tools

from .places import BackupError

FROZEN = (Value, Metrics)  # in the order in which ingest writes to them
PARTED = LogLine._meta.db_table
TRIES = 5
NO_LIMITS = "-c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c lock_timeout=60s"
# How rows are written as text, on every server alike.
PLAIN = "SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET timezone = 'UTC'; SET bytea_output = 'hex'"
CHECKSUM = "SELECT count(*), coalesce(sum(('x' || substr(md5(t::text), 1, 15))::bit(60)::bigint), 0)::text FROM {} t"
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
# Without partitions, whose rows are those of their table.
WHOLE_TABLES = """
SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
AND NOT relispartition ORDER BY relname
"""

Rows = dict[str, list]  # table -> [rows, checksum]


def connect() -> psycopg.Connection:
    """Return a connection of its own, whose statements may take long. Raises BackupError."""
    try:
        return psycopg.connect(**_parameters(), autocommit=True)
    except psycopg.OperationalError as problem:
        raise BackupError(f"the database does not answer: {str(problem).strip()}") from problem


def _parameters() -> dict:
    values = settings.DATABASES["default"]
    names = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    given = {name: values[key] for name, key in names.items() if values[key]}
    return {**values["OPTIONS"], **given, "options": NO_LIMITS}


class Moment:
    """The moment that a backup is of: `at` by the database's clock."""

    def __init__(self, reader: psycopg.Connection, writer: psycopg.Connection):
        self._reader, self._writer = reader, writer
        self.at: datetime
        self.snapshot: str

    def take(self) -> None:
        """Wait for the transactions that are writing metrics, and take the snapshot."""
        tables = sql.SQL(", ").join(sql.Identifier(model._meta.db_table) for model in FROZEN)
        for attempt in range(1, TRIES + 1):
            self._writer.execute("BEGIN")
            try:
                self._writer.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(tables))
                break
            except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
                self._writer.execute("ROLLBACK")
                if attempt == TRIES:
                    raise BackupError("the tables of metrics are locked by another program; try again") from None
        self._reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        # Old lines are removed by emptying a partition, which no snapshot hides: not until this one ends.
        self._reader.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(sql.Identifier(PARTED)))
        exported = self._reader.execute("SELECT pg_export_snapshot(), clock_timestamp()").fetchone()
        self.snapshot, self.at = exported

    def release(self) -> None:
        """Let metrics be written again. May be repeated."""
        self._writer.execute("ROLLBACK")

    def migrations(self) -> list[str]:
        return migrations(self._reader)

    def rows(self) -> Rows:
        return rows(self._reader)


@contextlib.contextmanager
def moment() -> Iterator[Moment]:
    """Yield the moment; its snapshot can be dumped until the end of the context."""
    with connect() as reader, connect() as writer:
        reader.execute(PLAIN)
        snapshot = Moment(reader, writer)
        try:
            snapshot.take()
            yield snapshot
        finally:
            with contextlib.suppress(psycopg.Error):
                snapshot.release()
            with contextlib.suppress(psycopg.Error):
                reader.execute("ROLLBACK")


def rows(link: psycopg.Connection) -> Rows:
    """Return the number of rows of each table, and the sum of their checksums."""
    tables = [name for (name,) in link.execute(WHOLE_TABLES).fetchall()]
    return {
        name: list(link.execute(sql.SQL(CHECKSUM).format(sql.Identifier(name))).fetchone()) for name in tables
    }  # fmt: skip


def migrations(link: psycopg.Connection) -> list[str]:
    """Return the migrations that the database has, as `app.name`."""
    names = link.execute("SELECT app || '.' || name FROM django_migrations ORDER BY 1").fetchall()
    return [name for (name,) in names]


def size() -> int:
    """Return the bytes of the database on its server's disk."""
    with connect() as link:
        return link.execute("SELECT pg_database_size(current_database())").fetchone()[0]


# --- PostgreSQL's own programs ---------------------------------------------------------------------------------------
def dump(snapshot: str, folder: Path) -> None:
    """Write the database as of the snapshot to a new folder, one file for each table. Raises BackupError."""
    shutil.rmtree(folder, ignore_errors=True)
    # Not compressed: the repository compresses, and stores what has not changed only once.
    options = ["--format=directory", "--compress=0", "--no-owner", "--no-privileges", "--no-sync"]
    _call("pg_dump", *options, f"--snapshot={snapshot}", f"--file={folder}", f"--dbname={_target()}")


def need_empty() -> None:
    """Raise BackupError when the database has tables."""
    with connect() as link:
        tables = link.execute(TABLES).fetchall()
    if tables:
        raise BackupError(f"the database has tables already ({tables[0][0]}, …): a restore needs an empty one")


def load(folder: Path, replace: bool) -> None:
    """Load a dump into the empty database; with `replace` what an earlier try has loaded is dropped. Raises
    BackupError.
    """
    options = ["--no-owner", "--no-privileges", "--no-comments", "--exit-on-error"]
    if replace:
        with connect() as link:
            for (name,) in link.execute(TABLES).fetchall():
                link.execute(sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(sql.Identifier(name)))
        options += ["--clean", "--if-exists"]
    need_empty()
    _call("pg_restore", *options, "--jobs=2", f"--dbname={_target()}", str(folder))
    with connect() as link:
        link.execute("ANALYZE")


def compare(expected: Rows) -> list[str]:
    """Return how the database's rows differ from those of the backup."""
    with connect() as link:
        link.execute(PLAIN)
        restored = rows(link)
    differences = []
    for name in sorted(expected.keys() | restored.keys()):
        was, now = expected.get(name), restored.get(name)
        if was != now:
            counts = [count(side[0], "row") if side else "no table" for side in (was, now)]
            what = " -> ".join(counts) if counts[0] != counts[1] else f"{counts[0]}, other content"
            differences.append(f"table {name}: {what}")
    return differences


def _target() -> str:
    """Return the connection without its password, which other processes could read in a command line."""
    values = _parameters()
    values.pop("password", None)
    return make_conninfo(**values)


def _call(tool: str, *arguments: str) -> None:
    try:
        postgres_tools.call(tool, *arguments)
    except postgres_tools.ToolFailed as problem:
        raise BackupError(str(problem)) from problem
