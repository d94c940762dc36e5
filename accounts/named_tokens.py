"""Named tokens: a user makes them, each with a scope and an end, for programs that should not be able to do everything.

The text is shown once; what it is derived from is the row's nonce (accounts.tokens).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone

from kernel import after_commit, names
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import Missing, lock_row, locked
from kernel.messages import Message
from kernel.registering import Registry, model_names

from . import notices, tokens
from .models import TARGETED, Scope, Token, User

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")
MAX = 100  # of one user
MAX_DAYS = 3650
SOON = timedelta(days=7)
WARNED_AT_ONCE = 100


def require_room(user: User) -> None:
    """Raise Refused for an account that has as many tokens as are allowed."""
    if Token.objects.filter(user=user, kind=Token.Kind.NAMED).count() >= MAX:
        raise Refused("you have %(limit)s tokens, the most that are allowed", limit=MAX)


def create(
    *, user: User, name: str, scope: str = Scope.FULL, target: str = "", days: int | None = None,
    registry: str = Registry.VERSIONS, registry_models: Sequence[str] = (), by: str,
) -> tuple[Token, str]:  # fmt: skip
    """Return a new token's row and its text, which cannot be shown again. It ends after `days`, None for never.
    `registry` and `registry_models` say what one for submission may change in the model registry.

    Raises Refused.
    """
    if not NAME.fullmatch(name):
        raise Refused("must be 1 to 50 letters, digits and . _ -, beginning with a letter or digit", field="name")
    if scope not in Scope.values:
        raise Refused("must be one of %(choices)s", field="scope", choices=", ".join(Scope.values))
    if scope in TARGETED:
        (names.dataset_name if scope == Scope.DATASET else names.name)(target, "target")
    elif target:
        raise Refused("must be empty for this scope", field="target")
    if registry not in Registry.values:
        raise Refused("must be one of %(choices)s", field="registry", choices=", ".join(Registry.values))
    if days is not None and not 1 <= days <= MAX_DAYS:
        raise Refused("must be from 1 to %(last)s", field="days", last=MAX_DAYS)
    expires = timezone.now() + timedelta(days=days) if days is not None else None
    try:
        with locked(User, pk=user.pk) as row:
            if not row.is_active:
                raise Refused("the account is not active", field="user")
            require_room(row)
            token = Token.objects.create(
                user=row,
                kind=Token.Kind.NAMED,
                name=name,
                scope=scope,
                target=target,
                expires=expires,
                registry=registry,
                registry_models=model_names(registry_models),
            )
            after_commit.changed(row.username, "user", "")
            notices.tell(row, Message("%(by)s made the token %(name)s.", by=notices.name_of(by), name=name))
    except IntegrityError as problem:
        if violated(problem) == "token_name_once":
            raise Refused("you already have a token named %(name)s", field="name", name=name)
        raise
    return token, tokens.derive(token)


def tokens_of(user: User):
    """Return the user's named tokens, the newest first."""
    return user.tokens.filter(kind=Token.Kind.NAMED).order_by("-pk")


def revoke(*, user: User, name: str, by: str) -> None:
    """Delete a token; requests with it are refused from the commit on. Raises Missing, Fault."""
    with transaction.atomic():
        row = lock_row(Token, user=user, kind=Token.Kind.NAMED, name=name)
        if row is None:
            raise Missing("token")
        tokens.forget([row.pk])
        row.delete()
        after_commit.changed(user.username, "user", "")
        notices.tell(user, Message("%(by)s revoked the token %(name)s.", by=notices.name_of(by), name=name))


def warn(now: datetime | None = None) -> int:
    """Tell users once of tokens that expire soon; return of how many."""
    now = now or timezone.now()
    soon = Token.objects.filter(kind=Token.Kind.NAMED, warned=False, expires__gt=now, expires__lt=now + SOON)
    count = 0
    for pk in list(soon.order_by("expires").values_list("pk", flat=True)[:WARNED_AT_ONCE]):
        with transaction.atomic():
            row = lock_row(Token, pk=pk, warned=False)
            if row is None:
                continue
            row.warned = True
            row.save(update_fields=["warned"])
            notices.tell(row.user, Message("The token %(name)s expires on %(day)s.", name=row.name,
                                             day=f"{row.expires:%Y-%m-%d}"))  # fmt: skip
            count += 1
    return count
