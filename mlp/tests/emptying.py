"""Empties the database after a test whose transactions were real.

Django's way, TRUNCATE of every table and the post_migrate signal, takes a hundred times as long as the rows of a test
are worth: it makes new files for all tables and indexes, and asks for each content type and permission. Django also
closes the connection; a new one costs as much as the test, since its server process knows no table yet.
"""

from __future__ import annotations

from functools import cache

from django.db import connection
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Composable, Identifier

# Rows that migrating made, which no test changes.
KEPT = ("django_migrations", "django_content_type", "auth_permission")
LISTED = f"""
SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
AND relnamespace = 'public'::regnamespace AND relname NOT IN {KEPT}
"""
LOOK = "tables_with_rows"  # prepared, so that a hundred tables are not planned after each test
MANY = 1000  # deleted rows of a table, after which it is vacuumed: a test server does not do it by itself


def empty_database(test_case: object = None) -> None:
    """Delete the rows of every table; replaces TransactionTestCase._fixture_teardown.

    Until all are found empty: a process beside this one may still have been writing. Foreign keys are not asked, since
    nothing is left that could break them.
    """
    _forget_what_the_test_left()
    with connection.cursor() as cursor:
        _prepare(cursor)
        while tables := _tables_with_rows(cursor):
            counts = _delete(cursor, tables)
            if many := [table for table, count in counts.items() if count > MANY]:
                cursor.execute(SQL("VACUUM {}").format(SQL(", ").join(map(Identifier, many))))


def _forget_what_the_test_left() -> None:
    """Close the connection if it is not as a new one is."""
    if connection.connection is None:
        return
    new = not (connection.connection.closed or connection.in_atomic_block or connection.run_on_commit)
    if not new or connection.connection.info.transaction_status != TransactionStatus.IDLE or not connection.autocommit:
        connection.close()


@cache
def _tables() -> list[str]:
    with connection.cursor() as cursor:
        return [name for (name,) in cursor.execute(LISTED).fetchall()]


def _prepare(cursor) -> None:
    if not getattr(connection.connection, LOOK, False):
        looks = (SQL("EXISTS (SELECT FROM {})").format(Identifier(table)) for table in _tables())
        cursor.execute(SQL("PREPARE {} AS SELECT {}").format(Identifier(LOOK), SQL(", ").join(looks)))
        setattr(connection.connection, LOOK, True)


def _tables_with_rows(cursor) -> list[str]:
    cursor.execute(f"EXECUTE {LOOK}")
    return [table for table, has_rows in zip(_tables(), cursor.fetchone(), strict=True) if has_rows]


def _delete(cursor, tables: list[str]) -> dict[str, int]:
    """Delete all rows of the tables in one transaction; return how many there were."""
    steps: list[Composable] = [SQL("BEGIN"), SQL("SET LOCAL session_replication_role = replica")]
    steps += [SQL("DELETE FROM {}").format(Identifier(table)) for table in tables]
    cursor.execute(SQL("; ").join([*steps, SQL("COMMIT")]))
    counts = []
    while cursor.nextset():
        counts.append(cursor.rowcount)
    return dict(zip(tables, counts[1:], strict=False))
