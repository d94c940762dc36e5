"""Service accounts: users of their own for CI and other programs, without a password or any other way to log in.

A service account belongs to a user, who makes its tokens and ends it; it works in the owner's tenants, under its own
name in the history, and sees the owner's objects only where they are shared with it. It ends with its owner's account
(accounts.lifecycle.deregister) and cannot have service accounts of its own, nor be an administrator.
"""

from __future__ import annotations

from django.db.models import QuerySet

from kernel import names
from kernel.errors import Refused
from kernel.locking import Missing, locked
from kernel.messages import Message

from . import lifecycle, notices
from .models import User

MAX = 10  # of one user, also those that have ended: names are never given back


def accounts_of(owner: User) -> QuerySet[User]:
    """Return the user's service accounts, the newest first."""
    return owner.service_accounts.order_by("-pk")


def get(owner: User, name: str) -> User:
    """Return one of the user's service accounts. Raises Missing."""
    row = owner.service_accounts.filter(username=name).first()
    if row is None:
        raise Missing("service account")
    return row


def require_room(owner: User) -> None:
    """Raise Refused for a user who has as many service accounts as are allowed."""
    if owner.service_accounts.count() >= MAX:
        raise Refused("you have %(limit)s service accounts, the most that are allowed", limit=MAX)


def create(*, owner: User, name: str, by: str) -> User:
    """Create a service account without tokens; `named_tokens.create` makes them. Raises Refused."""
    names.name(name)
    if User.objects.filter(username=name).exists():
        raise Refused("is already taken", field="name")
    with locked(User, pk=owner.pk) as row:
        if not row.is_active:
            raise Refused("the account is not active", field="user")
        if row.owner_id is not None:
            raise Refused("a service account cannot have service accounts", field="user")
        require_room(row)
        account = lifecycle.register(username=name, password=None, by=by, judge=False, owner=row)
        notices.tell(row, Message("%(by)s made the service account %(name)s.", by=notices.name_of(by), name=name))
    return account


def end(*, owner: User, name: str, by: str) -> User:
    """Deactivate a service account: its tokens are revoked, its work is cancelled. Idempotent. Raises Missing."""
    return lifecycle.deregister(username=get(owner, name).username, by=by)
