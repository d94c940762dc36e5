"""Idempotency-Key: a request that is sent again with the key that it had creates nothing a second time.

The key is stored in the transaction that creates the object, so there is never one without the other, also after a
crash. It is a caller's own, and known for a day; see draft-ietf-httpapi-idempotency-key-header.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from django.db import IntegrityError
from django.db.models import Model, QuerySet
from django.utils import timezone
from rest_framework.request import Request

from .errors import Refused
from .models import RequestKey

HEADER = "Idempotency-Key"
MAX_LENGTH = 100
FORM = re.compile(rf"[!-~]{{1,{MAX_LENGTH}}}")
KEPT = timedelta(days=1)
FORGOTTEN_AT_ONCE = 1000

Row = TypeVar("Row", bound=Model)
Within = Callable[[Row], object] | None


def create_once(request: Request, rows: QuerySet[Row], create: Callable[[Within], Row]) -> Row:
    """Return what `create` makes, or the one of `rows` that this user's earlier request with the same key has made.

    `create` calls the function that it is given, if any, with the new object in the transaction that creates it. Raises
    what `create` does, and Refused for a key that cannot be one, or that another request had.
    """
    key = request.headers.get(HEADER, "")
    if not key:
        return create(None)
    if not FORM.fullmatch(key):
        raise Refused("must be 1 to %(most)s visible ASCII characters", field=HEADER, most=MAX_LENGTH)
    digest = _digest(request)

    def earlier() -> Row | None:
        noted = RequestKey.objects.filter(user_id=request.user.pk, key=key).first()
        if noted is None:
            return None
        if noted.digest != digest:
            raise Refused("another request had this key", field=HEADER)
        row = rows.filter(pk=noted.object_id).first()
        if row is None:  # it was deleted since
            noted.delete()
        return row

    def note(row: Row) -> None:
        now = timezone.now()
        # Rows that another request removes just now are left to it: to wait for them might end in a deadlock.
        old = RequestKey.objects.select_for_update(skip_locked=True).filter(at__lt=now - KEPT)
        RequestKey.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE])).delete()
        RequestKey.objects.create(user_id=request.user.pk, key=key, digest=digest, object_id=row.pk, at=now)

    if (row := earlier()) is not None:
        return row
    try:
        return create(note)
    except (Refused, IntegrityError):
        if (row := earlier()) is None:  # else it was sent again while the first one was worked on
            raise
        return row


def _digest(request: Request) -> str:
    asked = [request.method, request.path, request.data]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()
