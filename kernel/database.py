"""Errors of the database: an unreachable one as Fault, a violated constraint by its name.

`reachable` is for callers that answer a log shipper or retry by themselves, where no middleware turns the error into
503. Used by aiops; `violated` by the life cycles.
`execute_prepared` is for the most frequent statements.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import psycopg
from django.db import IntegrityError, InterfaceError, OperationalError, connection

from .errors import AWAY, Fault

log = logging.getLogger(__name__)


def violated(problem: IntegrityError) -> str:
    """Return the name of the constraint that the database reports, "" for none. The text has the row's values too."""
    return getattr(getattr(problem.__cause__, "diag", None), "constraint_name", None) or ""


def execute_prepared(statement: str, params: Mapping | Sequence) -> list[tuple]:
    """Execute a statement that the server keeps parsed and planned for this connection; return its rows.

    For the few statements that are executed thousands of times a minute, inside a transaction. Raises what cursors do.
    """
    with connection.wrap_database_errors:
        cursor = psycopg.Cursor(connection.connection)
        return cursor.execute(statement, params, prepare=True).fetchall()


@contextmanager
def reachable(words: str = AWAY) -> Iterator[None]:
    """Turn a lost database connection into Fault; also usable as a decorator.

    The dead connection is closed, so that the next call opens a new one; inside a transaction the outermost block does
    that, since nothing of it has been stored.
    """
    try:
        yield
    except (OperationalError, InterfaceError) as problem:
        log.warning("database: %s", str(problem).strip() or type(problem).__name__)
        connection.close_if_unusable_or_obsolete()
        raise Fault(words) from problem
