"""The migrated database of which each process of a test run gets a copy, which takes a tenth of a second.

The first process that needs it makes it, and the others wait. Used by the fixture `django_db_modify_db_settings`; as a
program it makes it for those that come later.
"""

from __future__ import annotations

from contextlib import closing, contextmanager

import django
import psycopg
from django.core.management import call_command
from django.db import connection

TEMPLATE = "mlp_migrated"
DRAFT = f"{TEMPLATE}_draft"
LOCK = 727_001


def make() -> str:
    """Return the name of the template database, made by now."""
    with closing(psycopg.connect(**connection.get_connection_params(), autocommit=True)) as server:
        # Migrations take longer than the platform's statements may where the machine is busy.
        server.execute("SET lock_timeout = 0")
        server.execute("SET statement_timeout = 0")
        server.execute("SELECT pg_advisory_lock(%s)", [LOCK])  # until the connection is closed
        if not server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [TEMPLATE]).fetchone():
            server.execute(f"DROP DATABASE IF EXISTS {DRAFT}")
            server.execute(f"CREATE DATABASE {DRAFT}")
            with using(DRAFT):
                call_command("migrate", interactive=False, verbosity=0)
            server.execute(f"ALTER DATABASE {DRAFT} RENAME TO {TEMPLATE}")
    return TEMPLATE


@contextmanager
def using(name: str):
    """Let Django's connection lead to this database."""
    before = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before


if __name__ == "__main__":
    django.setup()
    make()
