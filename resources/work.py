"""What users have under way in a tenant, of all kinds: listed for its administrators, who may end it.

Each app registers its own kinds when it is loaded (`apps.py`), since this one imports none of them. Ending is the same
verb that the owner has, with the administrator's name in the history; the owner is notified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from kernel.locking import Missing

from .models import Tenant

SHOWN = 500


@dataclass(frozen=True)
class Kind:
    """A kind of work: the rows under way in a tenant, and how one is ended."""

    name: str
    live: Callable[[Tenant], QuerySet]
    end: Callable[..., object]  # end(user=…, name=…, by=…)
    page: str  # the URL name of its page


@dataclass(frozen=True)
class Item:
    """One piece of work."""

    kind: str
    user: str
    name: str
    state: str
    state_word: str
    since: datetime


KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Add a kind of work."""
    KINDS[kind.name] = kind


def live(tenant: Tenant, user: str = "", most: int = SHOWN) -> list[Item]:
    """Return what is under way in the tenant, of one user or of all, the newest first; at most `most` of each kind."""
    objects = []
    for kind in KINDS.values():
        rows = kind.live(tenant).select_related("user").order_by("-pk")
        rows = rows.filter(user__username=user) if user else rows
        objects += [
            Item(kind.name, row.user.username, row.history_name, row.state, row.get_state_display(), row.created)
            for row in rows[:most]
        ]
    return sorted(objects, key=lambda item: item.since, reverse=True)


def end(tenant: Tenant, *, kind: str, user: str, name: str, by: str) -> None:
    """End one piece of work. Raises Missing where the tenant has no such work; as its own verb does."""
    known = KINDS.get(kind)
    rows = known.live(tenant).select_related("user").filter(user__username=user) if known is not None else ()
    row = next((row for row in rows if row.history_name == name), None)
    if row is None:
        raise Missing(kind if known is not None else "object")
    known.end(user=row.user, name=name, by=by)
