"""The statements of try and confirm as SQL, for speed. Only tcc uses them.

`try_at_once` and `confirm` are a whole call in one statement, as compare-and-set, in the usual case. Otherwise they
change nothing, and tcc uses locks and the model's transitions. Measured with bench/resources.py on two busy cores, in
turns with the same calls through the ORM and tenant locks: 42 against 14 try-confirm cycles per second with one client,
150 against 13 with eight. With only `lock` and `save` through the ORM, 8 against 10 cycles with one client, with
overlapping ranges.
"""

from __future__ import annotations

from django.db import IntegrityError, connection
from django.utils import timezone
from psycopg.types.numeric import Int8

from kernel.database import execute_prepared, roll_back

from .models import KINDS, LENDABLE, ResourceRequest, State

COLUMNS = [field.column for field in ResourceRequest._meta.concrete_fields]
NAMES = [field.attname for field in ResourceRequest._meta.concrete_fields]

VALUES = ", ".join("tenant.id" if name == "tenant_id" else f"%({name})s" for name in NAMES)
# Compared with capacity minus amount, since in use plus amount could exceed the largest integer. A tenant that borrows
# is left to tcc, which locks its lenders too.
LENT = {kind: f" - {kind}_lent" if kind in LENDABLE else "" for kind in KINDS}
TRY = f"""
WITH tenant AS (
    UPDATE tenant SET {", ".join(f"{kind}_inuse = {kind}_inuse + %({kind})s" for kind in KINDS)}
    WHERE name = %(tenant)s AND {" AND ".join(f"{kind}_inuse <= {kind}{LENT[kind]} - %({kind})s" for kind in KINDS)}
    AND {" AND ".join(f"{kind}_borrowed = 0" for kind in LENDABLE)}
    AND NOT EXISTS (SELECT FROM resource_request WHERE id = %(id)s)
    AND (%(owner)s = '' OR NOT EXISTS (
        SELECT FROM user_limit WHERE user_limit.tenant_id = tenant.id AND user_limit.user IN (%(owner)s, '')
    ))
    RETURNING tenant.id
)
INSERT INTO resource_request ({", ".join(COLUMNS)}) SELECT {VALUES} FROM tenant RETURNING tenant_id
"""
INSERT = f"""
INSERT INTO resource_request ({", ".join(COLUMNS)})
VALUES ({", ".join(f"%({name})s" for name in NAMES)}) ON CONFLICT (id) DO NOTHING RETURNING id
"""
CONFIRM = """
UPDATE resource_request SET state = 'confirmed', settled = %s
WHERE id = %s AND applier = %s AND state = 'tried' AND request_type = 'request' RETURNING id
"""
LOCK = f"SELECT {', '.join(COLUMNS)} FROM resource_request WHERE id = %s FOR UPDATE"
SAVE = "UPDATE resource_request SET state = %s, settled = %s, released = %s WHERE id = %s AND state = %s RETURNING id"
ATTEMPT = "try_at_once"  # the savepoint of a try


def try_at_once(row: ResourceRequest, tenant: str) -> bool:
    """Try a request in one statement, by itself or inside the caller's transaction; return whether that was possible.

    False, with nothing changed, when the request is known, does not fit, or its owner has a limit: tcc finds out which.
    """
    row.created = timezone.now()
    savepoint = ATTEMPT if connection.in_atomic_block else ""
    try:
        rows = execute_prepared(TRY, {**_values(row), "tenant": tenant}, savepoint=savepoint)
    except IntegrityError:
        rows = []  # the same id was being tried or cancelled at this very moment
    if not rows:
        if savepoint:
            roll_back(savepoint)  # a row that changed while it was waited for is locked, and not updated
        return False
    [(row.tenant_id,)] = rows
    row._state.adding = False
    return True


def insert(row: ResourceRequest) -> bool:
    """Insert a new row; return False when the id is known. Waits for a transaction that is inserting the same id."""
    row.created = timezone.now()
    row._state.adding = False
    return bool(execute_prepared(INSERT, _values(row)))


def _values(row: ResourceRequest) -> dict:
    """Return the row's values, integers of one type: the server keeps a statement for each combination of types."""
    values = {name: getattr(row, name) for name in NAMES}
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: object) -> object:
    if isinstance(value, str):
        return str(value)  # not a member of an enumeration
    return Int8(value) if isinstance(value, int) else value


def confirm(id: str, applier: str) -> bool:
    """Confirm a tried request in one statement, as compare-and-set; return False when it was not exactly that."""
    return bool(execute_prepared(CONFIRM, [timezone.now(), id, applier]))


def lock(id: str) -> ResourceRequest | None:
    """Lock the row until the transaction ends, and return it; None when there is none."""
    rows = execute_prepared(LOCK, [id])
    return ResourceRequest.from_db(connection.alias, NAMES, rows[0]) if rows else None


def save(row: ResourceRequest, before: str) -> None:
    """Store the state to which a transition has moved the locked row, and when."""
    if row.state == State.RELEASED:
        row.released = timezone.now()
    else:
        row.settled = timezone.now()
    if not execute_prepared(SAVE, [str(row.state), row.settled, row.released, row.pk, str(before)]):
        raise RuntimeError(f"{row.pk} is not {before} any more, although it is locked")
