"""Errors of the database: an unreachable one as Fault, a violated constraint by its name.

`reachable` is for callers that answer a log shipper or retry by themselves, where no middleware turns the error into
503. Used by aiops; `violated` by the life cycles.
`execute_prepared` and `by_key` are for the most frequent statements.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import psycopg
from django.db import IntegrityError, InterfaceError, OperationalError, connection
from django.db.models import Model

from .errors import AWAY, Fault

log = logging.getLogger(__name__)
AnyModel = TypeVar("AnyModel", bound=Model)


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


def by_key(model: type[AnyModel], pk: int, *names: str) -> AnyModel | None:
    """Return the row with that primary key, None without one, as `filter(pk=pk).only(*names).first()` does.

    For what each request asks: to build the statement anew takes five times as long as all else of it.
    """
    attributes, converters, statement = _by_key(model, names)
    with connection.cursor() as cursor:
        row = cursor.execute(statement, [pk]).fetchone()
    if row is None:
        return None
    values = list(row)
    for place, convert in converters:
        values[place] = convert(values[place], None, connection)
    return model.from_db(connection.alias, attributes, values)


@cache
def _by_key(model: type[Model], names: tuple[str, ...]) -> tuple[list[str], list[tuple[int, Callable]], str]:
    """Return the names of attributes, (place, function) of values that a field converts, and the statement."""
    fields = [field for field in model._meta.concrete_fields if field.primary_key or not names or field.name in names]
    converters = [(place, each) for place, field in enumerate(fields) for each in field.get_db_converters(connection)]
    quoted = connection.ops.quote_name
    columns = ", ".join(quoted(field.column) for field in fields)
    table, key = quoted(model._meta.db_table), quoted(model._meta.pk.column)
    return [field.attname for field in fields], converters, f"SELECT {columns} FROM {table} WHERE {key} = %s"


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
