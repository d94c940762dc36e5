"""Creates, revokes and lists shares. The only writer of Share. Called by pages, api, admin and reconcile.

Each share and each revocation is a row of the audit log, kind `share`, with the name of the object.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, Model, OuterRef, Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext_noop

from accounts import notices
from accounts.models import Membership, Share, State, User
from kernel import after_commit, clock
from kernel.errors import Refused
from kernel.locking import Missing, lock_row
from kernel.messages import Message, word
from kernel.models import record_change
from kernel.pages import number_in

from .access import in_force, in_trash, tenants_of
from .kinds import KINDS, kind_of

Audience, Right = Share.Audience, Share.Right
LONGEST = timedelta(days=366)
USUAL = timedelta(days=7)  # a link of which nobody says when it ends
KEPT = timedelta(days=90)  # an ended share, as a record
TOKEN_BYTES = 32
MOMENT = (
    r"^([0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?(Z|[+-](0[0-9]|1[0-4]):?[0-5][0-9]))?)?$"
)
TIDIED_AT_ONCE = 1000


def own(user: User, kind: str, name: str) -> Model:
    """Return the user's object of that kind and name. Raises Missing."""
    known = KINDS.get(kind)
    row = known and known.model._default_manager.filter(user=user, name=name).order_by("-pk").first()
    if row is None or in_trash(row):
        raise Missing(kind if known else "object")
    return row


def make(
    *, row: Model, audience: str, right: str = Right.READ, user: str = "", tenant: str | None = None,
    expires: datetime | None = None, by: str,
) -> tuple[Share, str]:  # fmt: skip
    """Share the object; return the share and, for a link, its token, which is not stored.

    A `tenant` is one that the owner is in, by default the object's. Sharing again with the same user or tenant changes
    the right and the expiry. By default a link expires after a week. Raises Refused.
    """
    owner, now = row.user, timezone.now()
    if audience == Audience.LINK:
        if not settings.SHARE_LINKS:
            raise Refused("sharing by link is switched off on this platform", field="audience")
        expires = expires or now + USUAL
    if expires is not None and not now < expires <= now + LONGEST:
        raise Refused("must be a time within the next year", field="expires")
    if right not in Right.values:
        raise Refused("must be one of %(choices)s", field="right", choices=", ".join(Right.values))
    token, to = "", {}
    if audience == Audience.USER:
        to = {"user": _other(owner, user)}
    elif audience == Audience.TENANT:
        to = {"tenant": _tenant_of(owner, row, tenant)}
    elif audience == Audience.LINK:
        token = secrets.token_urlsafe(TOKEN_BYTES)
        to = {"token_hash": hashed(token)}
    else:
        raise Refused("must be one of %(choices)s", field="audience", choices=", ".join(Audience.values))
    key = {"owner": owner, "kind": kind_of(row).name, "object_id": row.pk, "audience": audience, **to}
    with transaction.atomic():
        lock_row(User, pk=owner.pk)  # shares of one owner are made one after another
        share = None if token else Share.objects.filter(revoked=None, **key).first()
        if share is None:
            require_room(owner)
            share = Share(**key)
        share.name, share.right, share.expires = row.name, right, expires
        share.save()
        what = Message("with %(who)s: %(right)s", who=whom(share), right=word(Right(right).label))
        record_change(share, transition="share", source="", target="shared", by=by, reason=what)
        if share.user is not None:
            _tell(share.user, share, "shared", Message("%(owner)s shares this with you.", owner=owner.username))
        if notices.name_of(by) != owner.username:
            _tell_owner(share, "shared", gettext_noop("%(by)s shared this in your name (%(who)s: %(right)s)."), by)
    return share, token


def require_room(owner: User) -> None:
    """Raise Refused for a user who has as many shares as are allowed."""
    if Share.objects.filter(in_force(timezone.now()), owner=owner).count() >= settings.SHARES_PER_USER:
        raise Refused("you have %(limit)s shares; revoke one first", field="shares", limit=settings.SHARES_PER_USER)


def revoke(share: Share, *, by: str) -> None:
    """Revoke a share, also on open pages. Idempotent."""
    with transaction.atomic():
        row = lock_row(Share, pk=share.pk)
        if row is None or row.revoked is not None:
            return
        row.revoked = timezone.now()
        row.save(update_fields=["revoked"])
        why = Message("with %(who)s", who=whom(row))
        record_change(row, transition="revoke", source="shared", target="revoked", by=by, reason=why)
        if notices.name_of(by) != row.owner.username:
            _tell_owner(row, "revoked", gettext_noop("%(by)s revoked your share (%(who)s: %(right)s)."), by)


def whom(share: Share) -> str:
    """Return the name of the user or tenant of the share; `link` for a link."""
    if share.user is not None:
        return share.user.username
    return share.tenant.name if share.tenant is not None else "link"


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def by_token(token: str) -> Share | None:
    """Return the active share of a link."""
    if not (20 <= len(token) <= 100 and token.isascii()):
        return None
    return Share.objects.filter(in_force(), audience=Audience.LINK, token_hash=hashed(token)).first()


def shares_of(row: Model) -> QuerySet[Share]:
    """Return the active shares of an object, newest first."""
    return _shown(Share.objects.filter(in_force(), kind=kind_of(row).name, object_id=row.pk))


def made_by(owner: User) -> QuerySet[Share]:
    """Return the active shares that the user has made, newest first."""
    return _shown(Share.objects.filter(in_force(), owner=owner))


def numbered(owner: User, number: str) -> Share | None:
    """Return the user's share with that number, if it is active."""
    return made_by(owner).filter(pk=number_in(number)).first()


def made_for(user: User) -> QuerySet[Share]:
    """Return the active shares with the user and those of others with the user's tenant, newest first."""
    to = Q(user=user) | (Q(audience=Audience.TENANT, tenant_id__in=tenants_of(user)) & ~Q(owner=user))
    shares = Share.objects.filter(in_force() & to)
    for kind in KINDS.values():
        if hasattr(kind.model, "trashed"):  # what is in its owner's trash is read by nobody else
            row = kind.model._base_manager.filter(pk=OuterRef("object_id")).exclude(trashed=None)
            shares = shares.exclude(Q(kind=kind.name) & Exists(row))
    return _shown(shares)


def _shown(shares: QuerySet[Share]) -> QuerySet[Share]:
    return shares.select_related("owner", "user", "tenant").order_by("-pk")


def known_to(user: User, most: int = 50) -> list[str]:
    """Return usernames to suggest: those with whom the user has shared, or who have shared with the user."""
    shared = Share.objects.filter(owner=user, user__isnull=False).values("user_id")
    sharing = Share.objects.filter(user=user).values("owner_id")
    people = User.objects.filter(Q(pk__in=shared) | Q(pk__in=sharing), state=State.ACTIVED).exclude(pk=user.pk)
    return list(people.order_by("username").values_list("username", flat=True)[:most])


def moment(text: str) -> datetime | None:
    """Parse the expiry: a date, of which it is the last second (UTC), or a time. Raises Refused."""
    if not text:
        return None
    day = at = None
    if re.match(MOMENT, text):
        with suppress(ValueError):  # well formed, such as February 31
            day, at = parse_date(text), parse_datetime(text)
    if day is not None:
        return datetime.combine(day, time(23, 59, 59), UTC)
    if at is None or at.tzinfo is None:
        raise Refused("must be a date (2030-12-31) or a time with its zone (2030-12-31T12:00:00Z)", field="expires")
    return at


def tidy() -> None:
    """Delete the records of shares that expired or were revoked long ago."""
    before = clock.settled(timezone.now()) - KEPT
    old = Share.objects.filter(Q(revoked__lt=before) | Q(expires__lt=before)).values_list("pk", flat=True)
    Share.objects.filter(pk__in=list(old[:TIDIED_AT_ONCE])).delete()


def tenants_to_share_with(owner: User, row: Model) -> list[Model]:
    """Return the owner's tenants, first the one that the object belongs to, else the owner's default one."""
    rows = Membership.objects.filter(user_id=owner.member_id).select_related("tenant").order_by("tenant__name")
    first = getattr(row, "tenant_id", None)
    order = {first: 0, owner.tenant_id: 1}
    return sorted((row.tenant for row in rows), key=lambda tenant: order.get(tenant.pk, 2))


def _tenant_of(owner: User, row: Model, name: str | None) -> Model:
    tenants = [tenant for tenant in tenants_to_share_with(owner, row) if name in (None, tenant.name)]
    if not tenants:
        raise Missing("tenant")
    return tenants[0]


def _other(owner: User, username: str) -> User:
    if username == owner.username:
        raise Refused("must be another user", field="user")
    user = User.objects.filter(username=username, state=State.ACTIVED).first() if "\0" not in username else None
    if user is None:
        raise Refused("no active user has this name", field="user")
    return user


def _tell_owner(share: Share, event: str, words: str, by: str) -> None:
    """Notify the owner of what somebody else did in their name: who makes a link has its key."""
    right = word(Right(share.right).label)
    what = Message(words, by=notices.name_of(by), who=whom(share), right=right)
    _tell(share.owner.owner or share.owner, share, event, what)


def _tell(user: User, share: Share, event: str, what: Message) -> None:
    notices.notify(user=user, kind="share", name=share.name, event=event, reason=what)
    after_commit.changed(user.username, "share", "")
