"""The few statements that every try and confirm makes, as SQL: building them anew each time costs more than they do.

Only tcc uses them. Whether a state may be left for another is still asked of the model's transitions; `save` writes
only over the state that was read.
"""

from __future__ import annotations

from django.db import connection
from django.utils import timezone

from .models import KINDS, ResourceRequest, State

COLUMNS = [field.column for field in ResourceRequest._meta.concrete_fields]
NAMES = [field.attname for field in ResourceRequest._meta.concrete_fields]

INSERT = f"""
INSERT INTO resource_request ({", ".join(COLUMNS)})
SELECT {", ".join("tenant.id" if name == "tenant_id" else f"%({name})s" for name in NAMES)}
FROM tenant WHERE tenant.name = %(tenant)s
ON CONFLICT (id) DO NOTHING RETURNING tenant_id
"""
# Capacity less what is asked, not in use plus what is asked: the sum of two whole numbers could be too large a one.
TAKE = f"""
UPDATE tenant SET {", ".join(f"{kind}_inuse = {kind}_inuse + %({kind})s" for kind in KINDS)}
FROM new WHERE tenant.id = new.tenant_id AND {" AND ".join(f"{kind}_inuse <= {kind} - %({kind})s" for kind in KINDS)}
RETURNING tenant.id
"""
INSERT_AND_TAKE = f"WITH new AS ({INSERT}), taken AS ({TAKE}) SELECT tenant_id, EXISTS (SELECT FROM taken) FROM new"
TAKE_LATER = f"WITH new AS (SELECT %(tenant_id)s AS tenant_id) {TAKE}"
CONFIRM = """
UPDATE resource_request SET state = 'confirmed', settled = %s
WHERE id = %s AND applier = %s AND state = 'tried' AND request_type = 'request'
"""
MARK = """
INSERT INTO resource_request (id, applier, request_type, owner, state, gpu, cpu, ram, rom, created, settled)
VALUES (%(id)s, %(applier)s, 'request', '', 'cancelled', 0, 0, 0, 0, %(now)s, %(now)s) ON CONFLICT (id) DO NOTHING
"""
LOCK = f"SELECT {', '.join(COLUMNS)} FROM resource_request WHERE id = %s FOR UPDATE"
SAVE = "UPDATE resource_request SET state = %s, settled = %s, released = %s WHERE id = %s AND state = %s"


def insert(row: ResourceRequest, tenant: str) -> bool:
    """Stores a new row of the tenant of that name. False when the id is known, or the tenant is not.

    Waits for another transaction that is just inserting the same id.
    """
    return _insert(INSERT, row, tenant) is not None


def insert_and_take(row: ResourceRequest, tenant: str) -> bool | None:
    """The same, and adds its amounts to what is in use, after the insert. None for `insert`'s False.

    False when there is not enough: then only the row is stored.
    """
    found = _insert(INSERT_AND_TAKE, row, tenant)
    return found and found[1]


def _insert(statement: str, row: ResourceRequest, tenant: str) -> tuple | None:
    row.created = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute(statement, {**{name: getattr(row, name) for name in NAMES}, "tenant": tenant})
        found = cursor.fetchone()
    if found is not None:
        row.tenant_id = found[0]
        row._state.adding = False
    return found


def take(row: ResourceRequest) -> bool:
    """Adds the stored row's amounts to what is in use. False when there is not enough."""
    with connection.cursor() as cursor:
        cursor.execute(TAKE_LATER, {**row.amounts(), "tenant_id": row.tenant_id})
        return cursor.rowcount == 1


def confirm(id: str, applier: str) -> bool:
    """The transition confirm of a tried request, in one statement: compare and set. False: look more closely."""
    with connection.cursor() as cursor:
        cursor.execute(CONFIRM, [timezone.now(), id, applier])
        return cursor.rowcount == 1


def mark(id: str, applier: str) -> bool:
    """Stores that the id is cancelled before it was tried. False when it is known."""
    with connection.cursor() as cursor:
        cursor.execute(MARK, {"id": id, "applier": applier, "now": timezone.now()})
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
