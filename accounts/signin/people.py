"""Who is behind an identity of a provider: finds or creates the account, and brings its rights up to date.

An account belongs to an identity because the identity created it, or because its owner has connected it while logged
in. A name or an e-mail address that is the same never is a reason: a person who chooses names at the provider could
choose the administrator's.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import lifecycle, sessions
from accounts.models import Identity, Preference, User
from accounts.tenancy import members
from kernel import names
from kernel.errors import Refused

from . import group_names

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Person:
    """What a provider says of somebody."""

    issuer: str
    subject: str
    username: str  # as the provider writes it
    email: str = ""  # only one that the provider has verified
    groups: Sequence[str] = field(default=())

    @property
    def by(self) -> str:
        return f"sign-in:{self.issuer}"[:80]


def username_of(text: str) -> str:
    """Return the username made of a provider's name: the part before @, without accents, only the letters a to z.

    Raises Refused when no letter is left.
    """
    plain = unicodedata.normalize("NFKD", text.partition("@")[0].rpartition("\\")[2])
    letters = re.sub("[^a-z]", "", plain.lower())[:50]
    if not letters:
        raise Refused("the provider's username %(name)s has no letter a to z, and usernames here are made of them",
                      name=text[:100] or '""')  # fmt: skip
    return letters


def enter(person: Person, rules) -> User:
    """Return the active user behind the identity, created at the first sign-in, with rights that follow the groups.

    Raises Refused when they may not sign in; then nothing is created, and rights that groups gave are taken back.
    """
    if not person.subject or len(person.subject) > 255:
        raise Refused("the provider has sent no subject (sub) of 1 to 255 characters")
    identity = _identity(person)
    if identity is None:
        _check_allowed(person, rules)
        try:
            with transaction.atomic():
                identity = _created(person, rules)
        except IntegrityError:  # the same person's other sign-in, at the same moment, was first
            identity = _identity(person)
    user = identity.user
    if not _allowed(person, rules):
        _withdraw(identity, person)
        _check_allowed(person, rules)
    if not user.is_active:
        raise Refused("this account is not active; an administrator can activate it")
    with transaction.atomic():
        _follow(identity, person, rules)
    user.refresh_from_db()
    return user


def connect(user: User, person: Person) -> None:
    """Let the owner of an account sign in by this identity from now on. Raises Refused when it is somebody else's."""
    try:
        with transaction.atomic():
            row, _ = Identity.objects.get_or_create(
                issuer=person.issuer, subject=person.subject, defaults={"user": user, "name": person.username[:200]}
            )
    except IntegrityError:
        row = Identity.objects.get(issuer=person.issuer, subject=person.subject)
    if row.user_id != user.pk:
        raise Refused("this account of the provider belongs to another user here")
    log.info("%s has connected %s of %s", user.username, person.username, person.issuer)


def disconnect(user: User, pk: int) -> None:
    """End the connection. Raises Refused when the user could not log in afterwards."""
    with transaction.atomic():
        locked = User.objects.select_for_update().get(pk=user.pk)
        require_other_way(locked, pk)
        locked.identities.filter(pk=pk).delete()


def require_other_way(user: User, pk: int) -> None:
    """Raise Refused when the user could not log in without that connection."""
    if not user.has_usable_password() and not user.identities.exclude(pk=pk).exists():
        raise Refused("this is the only way to log in to this account; set a password first")


def _identity(person: Person) -> Identity | None:
    rows = Identity.objects.filter(issuer=person.issuer, subject=person.subject)
    return rows.select_related("user").first()


def _created(person: Person, rules) -> Identity:
    """Create the account of somebody new, whole or not at all. Raises Refused."""
    if not rules.create:
        raise Refused("there is no account for %(name)s; an administrator can create one, which you then connect",
                      name=person.username[:100])  # fmt: skip
    user = lifecycle.register(
        username=_free_name(username_of(person.username)),
        password=None,
        by=person.by,
        active=not settings.REGISTRATION_NEEDS_APPROVAL,
        judge=False,
    )
    if person.email:
        Preference.objects.update_or_create(user=user, defaults={"email": person.email[:254]})
    identity = Identity.objects.create(
        user=user, issuer=person.issuer, subject=person.subject, name=person.username[:200], created_user=True
    )
    if roles := roles_of(person.groups, rules):
        members.follow_groups(user, roles, person.by)
        members.forget_first(user, [tenant for tenant, _role in roles])
    log.info("%s of %s signed in first: user %s", person.username, person.issuer, user.username)
    return identity


def _free_name(wanted: str) -> str:
    """Return the name, or with one more letter where another person of a provider has it. Raises Refused when it is
    the name of a local account: that may be the same person's, who alone can say so.
    """
    holder = User.objects.filter(username=wanted).first()
    if holder is None and wanted != names.PLATFORM:
        return wanted
    if holder is None or not holder.identities.filter(created_user=True).exists():
        raise Refused(
            "the username %(name)s belongs to an account with a password; if it is yours, log in with the password and "
            "connect it on your account's page",
            name=wanted,
        )
    for letter in "bcdefghijklmnopqrstuvwxyz":
        name = wanted[:49] + letter
        if not User.objects.filter(username=name).exists():
            return name
    raise Refused("the username %(name)s is already taken", name=wanted)


def roles_of(groups: Sequence[str], rules) -> list[tuple[str, str]]:
    """Return (tenant, role) of the groups in the order of the setting; of one tenant the highest role."""
    order = ("viewer", "member", "admin")
    roles: dict[str, str] = {}
    for group, tenant, role in rules.tenants:
        if group_names.is_among(group, groups) and order.index(role) >= order.index(roles.get(tenant, "viewer")):
            roles[tenant] = role
    return list(roles.items())


def _allowed(person: Person, rules) -> bool:
    return not rules.allowed or any(group_names.is_among(group, person.groups) for group in rules.allowed)


def _check_allowed(person: Person, rules) -> None:
    if not _allowed(person, rules):
        raise Refused("%(name)s is in none of the groups that may use this platform", name=person.username[:100])


def _withdraw(identity: Identity, person: Person) -> None:
    """Take from a user who may no longer sign in what groups gave: administrator rights, and open sessions."""
    with transaction.atomic():
        if identity.staff:
            lifecycle.set_staff(username=identity.user.username, staff=False, by=person.by)
            Identity.objects.filter(pk=identity.pk).update(staff=False)
        sessions.end_others(identity.user, keep="")


def _follow(identity: Identity, person: Person, rules) -> None:
    """Bring rights up to date. What an administrator has granted here stays; only what groups gave is taken back."""
    user, staff = identity.user, any(group_names.is_among(group, person.groups) for group in rules.administrators)
    if staff and not user.is_staff:
        lifecycle.set_staff(username=user.username, staff=True, by=person.by)
    elif identity.staff and not staff and user.is_staff:
        lifecycle.set_staff(username=user.username, staff=False, by=person.by)
    granted = staff and (identity.staff or not user.is_staff)
    changes = {"staff": granted, "name": person.username[:200], "used": timezone.now()}
    Identity.objects.filter(pk=identity.pk).update(**changes)
    members.follow_groups(user, roles_of(person.groups, rules), person.by)
