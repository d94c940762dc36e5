"""Empties the database after a test whose transactions were real.

Django's way, TRUNCATE of every table and the post_migrate signal, takes a hundred times as long as the rows of a test
are worth: it makes new files for all tables and indexes, and asks for each content type and permission.
"""

from __future__ import annotations

from django.db import connection

# Rows that migrating made, which no test changes.
KEPT = ("django_migrations", "django_content_type", "auth_permission")

# Until all are found empty: a process beside this one may still have been writing. Foreign keys are not asked, since
# nothing is left that could break them.
EMPTY = f"""
DO $$
DECLARE
    entry text;
    has_rows boolean;
    found_any boolean := true;
BEGIN
    SET LOCAL session_replication_role = replica;
    WHILE found_any LOOP
        found_any := false;
        FOR entry IN
            SELECT quote_ident(tablename) FROM pg_tables
            WHERE schemaname = 'public' AND tablename NOT IN {KEPT}
        LOOP
            EXECUTE 'SELECT EXISTS (SELECT FROM ' || entry || ')' INTO has_rows;
            IF has_rows THEN
                EXECUTE 'DELETE FROM ' || entry;
                found_any := true;
            END IF;
        END LOOP;
    END LOOP;
END $$
"""


def empty_database(test_case: object = None) -> None:
    """Delete the rows of every table; replaces TransactionTestCase._fixture_teardown."""
    with connection.cursor() as cursor:
        cursor.execute(EMPTY)
