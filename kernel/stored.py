"""What the rows of each user take in the database, and the limit on it (MLP_DATABASE_LIMIT_MIB, lowered by
resources.limits).

A model that keeps text of users says whose a row is: `stored_by`, SQL about the row `r`. Triggers of PostgreSQL, made
after each migration, count its rows by their size, in the transaction of each statement: statements add what
they have changed to `stored_bytes`, and `collapse` joins these rows. So no two writers wait for each other.

`require` is asked where kernel.disk is, before something is stored.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import NamedTuple

from django.apps import apps
from django.conf import settings
from django.db import connection, transaction

from .errors import Refused
from .messages import Message

ROW = 64  # bytes of a row beside its values: its header, and its place in indexes
FRESH_S = 2.0  # how long a sum may be used
MANY = 100_000  # sums that a process remembers
MANY_ROWS = 200  # of a user in stored_bytes, which are left alone

MADE = "SELECT tgrelid::regclass::text, obj_description(oid) FROM pg_trigger WHERE tgname = 'stored_insert'"
FUNCTION = """
CREATE OR REPLACE FUNCTION stored_in_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO stored_bytes (user_id, size) SELECT owner, sum(size)
        FROM (SELECT {owner} AS owner, {size} AS size FROM fresh AS r) AS each WHERE owner IS NOT NULL GROUP BY owner;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO stored_bytes (user_id, size) SELECT owner, -sum(size)
        FROM (SELECT {owner} AS owner, {size} AS size FROM gone AS r) AS each WHERE owner IS NOT NULL GROUP BY owner;
    ELSE
        INSERT INTO stored_bytes (user_id, size) SELECT owner, sum(size) FROM (
            SELECT {owner} AS owner, {size} AS size FROM fresh AS r UNION ALL
            SELECT {owner} AS owner, -({size}) AS size FROM gone AS r
        ) AS each WHERE owner IS NOT NULL GROUP BY owner HAVING sum(size) <> 0;
    END IF;
    RETURN NULL;
END $$
"""
TRIGGERS = """
CREATE TRIGGER stored_insert AFTER INSERT ON "{table}" REFERENCING NEW TABLE AS fresh
FOR EACH STATEMENT EXECUTE FUNCTION stored_in_{table}();
CREATE TRIGGER stored_update AFTER UPDATE ON "{table}" REFERENCING NEW TABLE AS fresh OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION stored_in_{table}();
CREATE TRIGGER stored_delete AFTER DELETE ON "{table}" REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION stored_in_{table}();
"""
DROP = 'DROP TRIGGER IF EXISTS stored_{event} ON "{table}"'
COUNT = """
INSERT INTO stored_bytes (user_id, size) SELECT owner, sum(size)
FROM (SELECT {owner} AS owner, {size} AS size FROM "{table}" AS r) AS each WHERE owner IS NOT NULL GROUP BY owner
"""
SUM = "SELECT coalesce(sum(size), 0) FROM stored_bytes WHERE user_id = %s"
COLLAPSE = """
WITH gone AS (
    DELETE FROM stored_bytes WHERE user_id IN (
        SELECT user_id FROM stored_bytes GROUP BY user_id HAVING count(*) > %s
    ) RETURNING user_id, size
)
INSERT INTO stored_bytes (user_id, size) SELECT user_id, sum(size) FROM gone GROUP BY user_id HAVING sum(size) <> 0
"""


class TooMuch(Refused):
    """The user's rows in the database take as much as they may."""


class Counted(NamedTuple):
    """A table whose rows count, as SQL: whose a row `r` is, and its bytes."""

    table: str
    owner: str
    size: str

    @property
    def mark(self) -> str:
        """Return what tells these triggers from others that counted in another way."""
        return hashlib.sha256(repr((self, FUNCTION, TRIGGERS)).encode()).hexdigest()[:16]


def counted() -> list[Counted]:
    """Return the tables whose rows count."""
    size = f"octet_length(r::text) + {ROW}"
    models = [(model, getattr(model, "stored_by", None)) for model in apps.get_models()]
    return [
        Counted(model._meta.db_table, owner, getattr(model, "stored_size", size)) for model, owner in models if owner
    ]


def make_triggers(**_options) -> None:
    """Make the triggers that are missing, or count in another way, and count the rows that are there already.

    After migrations of one app alone there may be some of the tables only; the next migration goes on.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        there = set(connection.introspection.table_names(cursor))
        if "stored_bytes" not in there:
            return
        cursor.execute(MADE)
        existing = dict(cursor.fetchall())
        wanted = {entry.table: entry for entry in counted() if entry.table in there}
        if {table.strip('"'): mark for table, mark in existing.items()} == {
            name: entry.mark for name, entry in wanted.items()
        }:
            return
        for table in {table.strip('"') for table in existing} | wanted.keys():
            for event in ("insert", "update", "delete"):
                cursor.execute(DROP.format(event=event, table=table))
        cursor.execute("DELETE FROM stored_bytes")
        cursor.execute("SET LOCAL statement_timeout = 0")  # large tables are counted
        for entry in wanted.values():
            names = entry._asdict()
            cursor.execute(FUNCTION.format(**names))
            cursor.execute(TRIGGERS.format(**names))  # which locks the table against writers
            cursor.execute(f"COMMENT ON TRIGGER stored_insert ON \"{entry.table}\" IS '{entry.mark}'")
            cursor.execute(COUNT.format(**names))


# --- the limit --------------------------------------------------------------------------------------------------------
_sums: dict[int, tuple[float, int, int]] = {}  # of users: when it was read, bytes, the limit in MiB
_limits: list[Callable[[int], int | None]] = []


def limit_by(of_user: Callable[[int], int | None]) -> None:
    """Let a function say the limit of single users in MiB, None for none; the setting stays the highest."""
    _limits.append(of_user)


def limit_mib(user_id: int) -> int:
    """Return the limit that applies to the user."""
    lower = [limit for limit in (of_user(user_id) for of_user in _limits) if limit is not None]
    return min([settings.DATABASE_LIMIT_MIB, *lower])


def used(user_id: int) -> int:
    """Return how many bytes the user's rows take."""
    with connection.cursor() as cursor:
        cursor.execute(SUM, [user_id])
        return max(0, int(cursor.fetchone()[0]))


def require(user_id: int | None) -> None:
    """Raise TooMuch for a user whose rows take all that they may; by a sum that is some seconds old at most."""
    if user_id is None:
        return
    now = time.monotonic()
    read, size, limit = _sums.get(user_id, (float("-inf"), 0, 0))
    if size >= limit << 20 or now - read > FRESH_S:
        if len(_sums) >= MANY:
            _sums.clear()
        size, limit = used(user_id), limit_mib(user_id)
        _sums[user_id] = now, size, limit
    if size >= limit << 20:
        problem = Message(
            "runs, notes and other entries of yours take %(size)s MiB in the database, and the limit is %(limit)s MiB "
            "(MLP_DATABASE_LIMIT_MIB, or that of the tenant): delete some",
            size=size >> 20, limit=limit,
        )  # fmt: skip
        raise TooMuch(problem)


def is_full(user_id: int) -> bool:
    """Return whether the user's rows take all that they may."""
    try:
        require(user_id)
    except TooMuch:
        return True
    return False


def collapse() -> None:
    """Join the rows of each user who has many of them in `stored_bytes`."""
    with connection.cursor() as cursor:
        cursor.execute(COLLAPSE, [MANY_ROWS])
