"""The few statements that every try and confirm makes, as SQL: building them anew each time costs more than they do.

Only tcc uses them. `try_at_once` and `confirm` are the whole of their call where nothing is in the way, as compare and
set; in every other case they do nothing, and tcc goes the longer way, by locks and the model's transitions.
"""

from __future__ import annotations

from contextlib import nullcontext

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from .models import KINDS, ResourceRequest, State

COLUMNS = [field.column for field in ResourceRequest._meta.concrete_fields]
NAMES = [field.attname for field in ResourceRequest._meta.concrete_fields]

VALUES = ", ".join("tenant.id" if name == "tenant_id" else f"%({name})s" for name in NAMES)
# Capacity less what is asked, not in use plus what is asked: the sum of two whole numbers could be too large a one.
TRY = f"""
WITH tenant AS (
    UPDATE tenant SET {", ".join(f"{kind}_inuse = {kind}_inuse + %({kind})s" for kind in KINDS)}
    WHERE name = %(tenant)s AND {" AND ".join(f"{kind}_inuse <= {kind} - %({kind})s" for kind in KINDS)}
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
VALUES ({", ".join(f"%({name})s" for name in NAMES)}) ON CONFLICT (id) DO NOTHING
"""
CONFIRM = """
UPDATE resource_request SET state = 'confirmed', settled = %s
WHERE id = %s AND applier = %s AND state = 'tried' AND request_type = 'request'
"""
LOCK = f"SELECT {', '.join(COLUMNS)} FROM resource_request WHERE id = %s FOR UPDATE"
SAVE = "UPDATE resource_request SET state = %s, settled = %s, released = %s WHERE id = %s AND state = %s"


def try_at_once(row: ResourceRequest, tenant: str) -> bool:
    """A whole try of a request in one statement, by itself or inside the caller's transaction.

    False, with nothing done, when anything at all is in the way, a limit of the owner included: tcc then looks what.
    """
    row.created = timezone.now()
    within = transaction.atomic() if connection.in_atomic_block else nullcontext()
    try:
        with within, connection.cursor() as cursor:
            cursor.execute(TRY, {**_values(row), "tenant": tenant})
            found = cursor.fetchone()
    except IntegrityError:
        return False  # the same id was being tried or cancelled at this very moment
    if found is None:
        return False
    row.tenant_id = found[0]
    row._state.adding = False
    return True


def insert(row: ResourceRequest) -> bool:
    """Stores a new row. False when the id is known. Waits for another transaction that is just inserting it."""
    row.created = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(INSERT, _values(row))
        row._state.adding = False
        return cursor.rowcount == 1


def _values(row: ResourceRequest) -> dict:
    values = {name: getattr(row, name) for name in NAMES}
    return {name: str(value) if isinstance(value, str) else value for name, value in values.items()}


def confirm(id: str, applier: str) -> bool:
    """The transition confirm of a tried request, in one statement: compare and set. False: look more closely."""
    with connection.cursor() as cursor:
        cursor.execute(CONFIRM, [timezone.now(), id, applier])
        return cursor.rowcount == 1


def lock(id: str) -> ResourceRequest | None:
    """The row, locked until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(LOCK, [id])
        found = cursor.fetchone()
    return found and ResourceRequest.from_db(connection.alias, NAMES, found)


def save(row: ResourceRequest, before: str) -> None:
    """Writes the state down to which a transition has moved the locked row, and when."""
    if row.state == State.RELEASED:
        row.released = timezone.now()
    else:
        row.settled = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(SAVE, [str(row.state), row.settled, row.released, row.pk, str(before)])
        if cursor.rowcount != 1:
            raise RuntimeError(f"{row.pk} is not {before} any more, although it is locked")
