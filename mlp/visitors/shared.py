"""A page with an object of another user: the changes that its websocket is notified of. Used by mlp.visitors.live."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser

from accounts.auth import Credentials, valid_credentials
from accounts.models import User
from accounts.sharing import access
from accounts.sharing.kinds import KINDS

MAX_NAME = 500
RIGHTS = {"share", "user"}  # changes after which the owner's object may be hidden


def current(entry: Credentials) -> User | AnonymousUser | None:
    """Return the user of a session that is still valid; None if it had links only and none of them is active."""
    user = valid_credentials([entry]).get(entry)
    if user is not None and not user.is_authenticated and not access.any_link(entry.links):
        return None
    return user


@dataclass(frozen=True)
class Shown:
    """The object of another user that a page shows."""

    owner: str
    kind: str
    name: str

    def readable(self, user: User | AnonymousUser, entry: Credentials) -> bool:
        """Return whether the reader may read it."""
        visitor = access.Visitor(user if user.is_authenticated else None, entry.links)
        rows = KINDS[self.kind].model._default_manager.select_related("user")
        return access.look_up(visitor, rows, self.owner, self.name) is not None

    def concerned(self, event: dict) -> bool:
        """Return whether the page has to be fetched again after this change."""
        if event["owner"] != self.owner:
            return False
        return event["kind"] in RIGHTS or (event["kind"], event["name"]) == (self.kind, self.name)


def parse(entry: dict) -> Shown | None:
    """Return the object that a page's message names; None for an unknown kind. Raises KeyError."""
    shown = Shown(entry["user"], entry["object"], entry["name"])
    valid = all(isinstance(text, str) and len(text) <= MAX_NAME and "\0" not in text for text in vars(shown).values())
    return shown if valid and shown.kind in KINDS else None
