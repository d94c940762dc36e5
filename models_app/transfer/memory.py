"""What was taken before from a server, for one user."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from accounts.models import User
from kernel import disk, stored
from kernel.errors import Refused
from models_app.models import Imported

from .server import NoRoom

Kind = Imported.Kind


def checksum(what: Any) -> str:
    """Return a checksum of what a server says of an object; the order of its lists does not count."""
    return hashlib.sha256(json.dumps(_sorted(what), sort_keys=True).encode()).hexdigest()


def _sorted(what: Any) -> Any:
    if isinstance(what, dict):
        return {key: _sorted(value) for key, value in what.items() if value not in (None, "", [], {})}
    if isinstance(what, list):
        return sorted((_sorted(item) for item in what), key=lambda item: json.dumps(item, sort_keys=True))
    return what


class Memory:
    """The rows of one server and user."""

    def __init__(self, user: User, source: str):
        self.user, self.source = user, source

    def require_room(self) -> None:
        """Raise NoRoom while the platform stores nothing, or nothing more of the user's: asked before each write."""
        try:
            disk.require()
            stored.require(self.user.pk)
        except disk.DiskFull as full:
            raise NoRoom(str(full.msg), 507) from None
        except Refused as refused:
            raise NoRoom(str(refused.msg), 507) from None

    def find(self, kind: str, key: str) -> Imported | None:
        """Return what was remembered of an object."""
        return Imported.objects.filter(user=self.user, source=self.source, kind=kind, key=key).first()

    def several(self, kind: str, keys: list[str]) -> dict[str, Imported]:
        """Return what was remembered of several objects, by their keys."""
        rows = Imported.objects.filter(user=self.user, source=self.source, kind=kind, key__in=keys)
        return {row.key: row for row in rows}

    def rows(self, kind: str) -> QuerySet[Imported]:
        """Return what is remembered of a kind."""
        return Imported.objects.filter(user=self.user, source=self.source, kind=kind)

    def remember(self, kind: str, key: str, object_id: int) -> Imported:
        """Remember a new object, in the transaction that makes it."""
        if not transaction.get_connection().in_atomic_block:
            raise AssertionError("an object and its row are made in one transaction")
        return Imported.objects.create(user=self.user, source=self.source, kind=kind, key=key, object_id=object_id)

    @staticmethod
    def complete(row: Imported, mark: str, **counts: int) -> None:
        """Remember that all of an object has been taken."""
        row.mark, row.counts = mark, {**row.counts, **counts}
        row.save(update_fields=["mark", "counts", "at"])
