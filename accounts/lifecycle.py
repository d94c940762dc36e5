"""Every change of a user or a token goes through here. Called by api, pages, admin and commands.

`deregistered` is the only custom signal of the code base: jobs and apps, which may not be imported here, receive it to
cancel the user's running work. It is sent inside the transaction; receivers only write rows and enqueue tasks.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.dispatch import Signal
from django.utils import timezone

from kernel import after_commit, names
from kernel.errors import Refused
from kernel.locking import lock_row, locked
from kernel.messages import Message, joined
from kernel.models import record_created

from . import notices, sessions, tokens
from .models import Membership, State, Token, User, new_nonce

deregistered = Signal()

DEFAULT_TENANT = "default"
DEACTIVATED = Message("cancelled: the account was deactivated")  # why an object of the user ended
LONGEST_PASSWORD = 128


def check_password(password: str, user: User | None = None) -> None:
    """Check a password's length and Django's validators. Raises Refused naming the field."""
    low, high = settings.PASSWORD_MIN_LENGTH, LONGEST_PASSWORD
    if not low <= len(password) <= high:
        raise Refused("must have %(low)s to %(high)s characters", field="password", low=low, high=high)
    try:
        validate_password(password, user)
    except ValidationError as problem:
        raise Refused(joined(problem.messages, " "), field="password")


def register(
    *, username: str, password: str | None, by: str, active: bool = True, is_staff: bool = False, judge: bool = True,
    owner: User | None = None,
) -> User:  # fmt: skip
    """Create a user and the row of their token. With `active` False an administrator has to activate the account.

    An `owner` makes it a service account, in that user's tenants. With `judge` False the password is not validated: it
    comes from the platform's settings, or is None where a provider vouches for the user. Raises Refused.
    """
    names.name(username, "username")
    if username == names.PLATFORM:
        raise Refused("is already taken", field="username")
    user = User(username=username, is_staff=is_staff, is_superuser=is_staff, owner=owner)
    if judge:
        check_password(password, user)
    user.set_password(password)
    try:
        with transaction.atomic():
            user.tenant_id = owner.tenant_id if owner is not None else _default_tenant()
            user.save()
            record_created(user, by=by)
            if owner is None:
                Membership.objects.create(user=user, tenant_id=user.tenant_id)
            Token.objects.create(user=user)
            if active:
                user.activate(by=by, reason=Message("registered"))
                user.save()
    except IntegrityError:
        raise Refused("is already taken", field="username")
    return user


def hold_active(user: User) -> None:
    """Lock the user's row for the rest of the caller's transaction. Raises Refused when the account is not active.

    Called first whenever an object is created for a user, so that deactivation covers every object created before it.
    """
    row = lock_row(User, pk=user.pk)
    if row is None or not row.is_active:
        raise Refused("the account is not active", field="user")


def activate(*, username: str, by: str) -> None:
    """Activate the account: NotActive > Actived. Its token is new and a log-in is needed: old tokens stay revoked."""
    with locked(User, username=username) as user:
        if user.owner_id is not None and not User.objects.get(pk=user.owner_id).is_active:
            raise Refused("the owner of this service account is not active", field="user")
        user.activate(by=by)
        user.save()
        _renew(user)
        sessions.end_others(user, keep="")  # a log-in may have been under way during deactivation


def deregister(*, username: str, by: str) -> User:
    """Deactivate the account: tokens are revoked, sessions end, running work is cancelled. Idempotent.

    The user's service accounts end before it, each in a transaction of its own, so that the order of locks holds.
    """
    while True:
        accounts = User.objects.filter(owner__username=username, state=State.ACTIVED).order_by("pk")
        for account in list(accounts.values_list("username", flat=True)):
            deregister(username=account, by=by)
        with locked(User, username=username) as user:
            if not user.is_active:
                return user
            if accounts.exists():  # one was made meanwhile
                continue
            user.deregister(by=by)
            user.save()
            _renew(user)
            sessions.end_others(user, keep="")
            deregistered.send(sender=User, user=user, by=by)
        return user


def set_staff(*, username: str, staff: bool, by: str) -> None:
    """Grant or revoke administrator rights; revoking them also revokes the user's service tokens."""
    with locked(User, username=username) as user:
        if staff and user.owner_id is not None:
            raise Refused("a service account cannot be an administrator", field="user")
        user.is_staff = user.is_superuser = staff
        user.save(update_fields=["is_staff", "is_superuser"])
        tokens.forget(list(user.tokens.values_list("pk", flat=True)))
        after_commit.changed(username, "user", "")  # open pages check their rights again


def change_password(*, user: User, password: str, by: str) -> None:
    check_password(password, user)
    with locked(User, pk=user.pk) as row:
        if row.owner_id is not None:
            raise Refused("a service account has no password", field="user")
        row.set_password(password)
        row.save(update_fields=["password"])
        after_commit.changed(row.username, "user", "")
        notices.tell(
            row,
            Message(
                "Your password was changed by %(by)s. If that was not you, ask an administrator.",
                by=notices.name_of(by),
            ),
        )


def token_of(user: User) -> str:
    """Return the user's token, the same one until it is rotated. Raises Refused when the account is not active."""
    if not user.is_active:
        raise Refused("the account is not active", field="user")
    token, _ = Token.objects.get_or_create(user=user, kind=Token.Kind.USER)
    return tokens.derive(token)


def rotate_token(*, user: User, by: str) -> str:
    """Return a new token; the old one stops working. Raises Refused when the account is not active."""
    with locked(User, pk=user.pk) as row:
        if not row.is_active:
            raise Refused("the account is not active", field="user")
        token, _ = Token.objects.get_or_create(user=row, kind=Token.Kind.USER)
        _renew_rows([token])
        after_commit.changed(row.username, "user", "")
        notices.tell(row, Message("Your API token was replaced by %(by)s.", by=notices.name_of(by)))
    return tokens.derive(token)


def create_service_token(*, user: User, name: str, by: str) -> str:
    """Return a new service token owned by an administrator; it is shown once. Raises Refused."""
    if not user.is_administrator:
        raise Refused("only administrators can have service tokens", field="user")
    names.name(name)
    return tokens.derive(Token.objects.create(user=user, kind=Token.Kind.SERVICE, name=name))


def revoke_service_token(*, pk: int, by: str) -> None:
    with transaction.atomic():
        token = lock_row(Token, pk=pk, kind=Token.Kind.SERVICE)
        if token is not None:
            tokens.forget([token.pk])
            token.delete()


def _renew(user: User) -> None:
    _renew_rows(list(Token.objects.filter(user=user)))


def _renew_rows(rows: list[Token]) -> None:
    tokens.forget([token.pk for token in rows])
    for token in rows:
        token.nonce, token.rotated = new_nonce(), timezone.now()
        token.save(update_fields=["nonce", "rotated"])


def _default_tenant() -> int:
    tenant_model = User._meta.get_field("tenant").related_model
    return tenant_model.objects.get_or_create(name=DEFAULT_TENANT)[0].pk
