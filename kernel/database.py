"""Errors of the database: an unreachable one as Fault, a violated constraint by its name.

`reachable` is for callers that answer a log shipper or retry by themselves, where no middleware turns the error into
503. Used by aiops; `violated` by the life cycles.
`execute_prepared`, `by_key`, `first_row`, `all_rows` and `with_related` are for the most frequent statements.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cache
from typing import TypeVar

import psycopg
from django.db import IntegrityError, InterfaceError, OperationalError, connection
from django.db.models import Field, Model

from .errors import AWAY, Fault

log = logging.getLogger(__name__)
AnyModel = TypeVar("AnyModel", bound=Model)


def violated(problem: IntegrityError) -> str:
    """Return the name of the constraint that the database reports, "" for none. The text has the row's values too."""
    return getattr(getattr(problem.__cause__, "diag", None), "constraint_name", None) or ""


def execute_prepared(statement: str, params: Mapping | Sequence, *, savepoint: str = "") -> list[tuple]:
    """Execute a statement that the server keeps parsed and planned for this connection; return its rows.

    For the few statements that are executed thousands of times a minute. Raises what cursors do. With `savepoint`, one
    of that name is made before; it ends with the transaction, or by `roll_back`. That is an exchange of its own with
    the server: in one with the statement, by a pipeline, it costs this process more than it spares.
    """
    connection.ensure_connection()
    link = connection.connection
    with connection.wrap_database_errors:
        if savepoint:
            psycopg.Cursor(link).execute(f"SAVEPOINT {savepoint}")
        return psycopg.Cursor(link).execute(statement, params, prepare=True).fetchall()


def roll_back(savepoint: str) -> None:
    """Return to the savepoint that `execute_prepared` has made, which gives back the locks taken since."""
    with connection.cursor() as cursor:
        cursor.execute(f"ROLLBACK TO SAVEPOINT {savepoint}")
        cursor.execute(f"RELEASE SAVEPOINT {savepoint}")


def by_key(model: type[AnyModel], pk: int, *names: str) -> AnyModel | None:
    """Return the row with that primary key, None without one, as `filter(pk=pk).only(*names).first()` does."""
    return first_row(model, {"pk": pk}, names)


def first_row(
    model: type[AnyModel], key: Mapping[str, object], names: tuple[str, ...] = (), lock: str = ""
) -> AnyModel | None:
    """Return the first row whose columns have these values, None without one, as `filter(**key).first()` does.

    For the look-ups of each request and each change of a state: there, compiling the statement costs five times what
    executing it does. `names` are the columns that are read, all by default; `lock` ends the statement.
    """
    rows = _rows(model, key, names, " LIMIT 1" + lock)
    return rows[0] if rows else None


def all_rows(model: type[AnyModel], key: Mapping[str, object], *names: str) -> list[AnyModel]:
    """Return all rows whose columns have these values, the oldest first, as `filter(**key).only(*names)` does."""
    return _rows(model, key, names, "")


def _rows(model: type[AnyModel], key: Mapping[str, object], names: tuple[str, ...], end: str) -> list[AnyModel]:
    attributes, converters, statement = _statement(model, tuple(key), names)
    found = []
    with connection.cursor() as cursor:
        for row in cursor.execute(statement + end, [_plain(model, *each) for each in key.items()]).fetchall():
            values = list(row)
            for place, convert in converters:
                values[place] = convert(values[place], None, connection)
            found.append(model.from_db(connection.alias, attributes, values))
    return found


def with_related(row: AnyModel, *names: str) -> AnyModel:
    """Return the row with what these foreign keys refer to, as their attributes would ask for it one after another."""
    for name in names:
        field = _field(type(row), name)
        pk = getattr(row, field.attname)
        if pk is not None and not field.is_cached(row):
            setattr(row, name, by_key(field.related_model, pk))
    return row


def _plain(model: type[Model], name: str, value: object) -> object:
    """Return the value for the column, as the ORM prepares it."""
    field = _field(model, name)
    if isinstance(value, Model):
        return getattr(value, field.target_field.attname)
    value = field.get_db_prep_value(value, connection)
    return value.value if isinstance(value, Enum) else value


def _field(model: type[Model], name: str) -> Field:
    return model._meta.pk if name == "pk" else model._meta.get_field(name)


@cache
def _statement(
    model: type[Model], key: tuple[str, ...], names: tuple[str, ...]
) -> tuple[list[str], list[tuple[int, Callable]], str]:
    """Return the names of attributes, (place, function) of values that a field converts, and the statement."""
    fields = [field for field in model._meta.concrete_fields if field.primary_key or not names or field.name in names]
    converters = [(place, each) for place, field in enumerate(fields) for each in field.get_db_converters(connection)]
    table, pk = model._meta.db_table, model._meta.pk.column
    columns = ", ".join(f'"{table}"."{field.column}"' for field in fields)
    where = " AND ".join(f'"{_field(model, name).column}" = %s' for name in key)
    statement = f'SELECT {columns} FROM "{table}" WHERE {where} ORDER BY "{pk}"'
    return [field.attname for field in fields], converters, statement


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
