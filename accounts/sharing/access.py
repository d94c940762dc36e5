"""Read access to objects of other users, decided here only: for pages, REST and websockets.

An owner reads and changes their own objects. Another visitor reads an object when a share grants it, to the user, to
one of the user's tenants or by a link that the browser's session has opened, or when the visitor administers the
platform or the tenant that the object belongs to. None of these allows changes. A missing object and one that may not
be read get the same response after the same queries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.views import redirect_to_login
from django.db.models import Exists, Model, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from accounts import auth
from accounts.auth import Credentials, links_of, valid_credentials
from accounts.models import Membership, Role, Share, State, User

from .kinds import kind_of

USED_EVERY = timedelta(minutes=10)
NO_ROW = 0  # no object has this key
SAME_NAME = 100  # objects of a name that are looked at
STAFF = "staff"  # the audience of administrators
TENANT_ADMIN = "tenant_admin"  # that of the administrators of the object's tenant
READ, CLONE = Share.Right.READ, Share.Right.CLONE


@dataclass(frozen=True)
class Visitor:
    """The reader of an object: a user or an anonymous visitor, and the links that the session has opened."""

    user: User | None
    links: tuple[int, ...] = ()


@dataclass(frozen=True)
class Reading:
    """How a visitor reads another user's object: with which right, and by a share with whom (`staff` and
    `tenant_admin` for administrators).
    """

    owner: str
    right: str
    audience: str
    kind: str
    name: str

    @property
    def clones(self) -> bool:
        return self.right == CLONE


def visitor_of(request: HttpRequest) -> Visitor:
    """Return the visitor of a page or of a REST call. A call with a token has no session."""
    user = request.user if request.user is not None and request.user.is_authenticated else None
    token = "HTTP_AUTHORIZATION" in request.META
    return Visitor(user, () if token else links_of(getattr(request, "session", None)))


# --- what is granted -------------------------------------------------------------------------------------------------
def in_force(now=None) -> Q:
    """Return the condition of active shares."""
    now = now or timezone.now()
    valid = Q(revoked=None, owner__state=State.ACTIVED) & (Q(expires=None) | Q(expires__gt=now))
    there = Membership.objects.filter(user_id=Coalesce(OuterRef("owner__owner_id"), OuterRef("owner_id")))
    valid &= ~Q(audience=Share.Audience.TENANT) | Exists(there.filter(tenant_id=OuterRef("tenant_id")))  # not who left
    return valid if settings.SHARE_LINKS else valid & ~Q(audience=Share.Audience.LINK)


def granted_to(visitor: Visitor) -> Q:
    """Return the condition of shares with this visitor."""
    condition = Q(audience=Share.Audience.LINK, pk__in=[*visitor.links, NO_ROW])
    if visitor.user is not None:
        condition |= Q(audience=Share.Audience.USER, user_id=visitor.user.pk)
        condition |= Q(audience=Share.Audience.TENANT, tenant_id__in=tenants_of(visitor.user))
    return condition


def tenants_of(user: User) -> QuerySet:
    """Return the keys of the user's tenants, for a condition of a query."""
    return Membership.objects.filter(user_id=user.member_id).values("tenant_id")


def administered(visitor: Visitor, model: type[Model], keys: Collection[int]) -> set[int]:
    """Return which of these objects belong to a tenant that the visitor administers; as many queries for any."""
    user = visitor.user
    if user is None or user.owner_id or not kind_of(model).of_tenant:
        return set()
    tenants = Membership.objects.filter(user_id=user.pk, role=Role.ADMIN).values("tenant_id")
    return set(model._base_manager.filter(pk__in=[*keys, NO_ROW], tenant__in=tenants).values_list("pk", flat=True))


def grants(visitor: Visitor, model: type[Model], keys: Collection[int]) -> dict[int, Share]:
    """Return the widest share that lets the visitor read each of these objects, by the object's key."""
    kind = kind_of(model)
    asked = [*keys, NO_ROW]
    covers: dict[tuple[str, int], set[int]] = {(kind.name, key): {key} for key in keys}
    for key, parent, parent_key in kind.parents(asked):
        covers.setdefault((parent, parent_key), set()).add(key)
    objects = Q(kind=kind.name, object_id__in=asked)
    for name in {name for name, _key in covers} - {kind.name}:
        objects |= Q(kind=name, object_id__in=[key for each, key in covers if each == name])
    shares: dict[int, Share] = {}
    for share in Share.objects.filter(objects & granted_to(visitor) & in_force()):
        for key in covers.get((share.kind, share.object_id), ()):
            if key not in shares or share.right == CLONE:
                shares[key] = share
    return shares


def readings(visitor: Visitor, rows: Sequence[Model]) -> dict[int, Reading | None]:
    """Return how the visitor reads each of the rows, by key: None for their own. Rows they may not read are omitted."""
    user = visitor.user
    foreign = [row.pk for row in rows if (user is None or row.user_id != user.pk) and not in_trash(row)]
    shares = grants(visitor, type(rows[0]), foreign) if foreign else {}
    others = [key for key in foreign if key not in shares]
    reads_all = user is None or user.is_administrator
    managed = administered(visitor, type(rows[0]), others) if others and not reads_all else set()
    result: dict[int, Reading | None] = {}
    for row in rows:
        if user is not None and row.user_id == user.pk:
            result[row.pk] = None
        elif row.pk in shares:
            result[row.pk] = _by(row, shares[row.pk])
        elif row.pk in managed:
            result[row.pk] = _reading(row, READ, TENANT_ADMIN)
        elif user is not None and user.is_administrator and not in_trash(row):
            result[row.pk] = _reading(row, READ, STAFF)
    return result


def any_link(links: Collection[int]) -> bool:
    """Return whether one of the links is an active share."""
    return Share.objects.filter(in_force(), audience=Share.Audience.LINK, pk__in=links).exists()


def may_read(visitor: Visitor, model: type[Model], key: int, owner_id: int) -> bool:
    """Return whether the visitor may read the object. For repeated checks, such as those of websockets."""
    if visitor.user is not None and visitor.user.pk == owner_id:
        return True
    if hasattr(model, "trashed") and model._base_manager.filter(pk=key).exclude(trashed=None).exists():
        return False
    if visitor.user is not None and visitor.user.is_administrator:
        return True
    return key in grants(visitor, model, [key]) or key in administered(visitor, model, [key])


def entitled(entries: Collection[Credentials], model: type[Model], key: int, owner_id: int | None) -> set[Credentials]:
    """Return the entries whose visitors may read the object now.

    Without an owner the object has been deleted, and any valid entry passes.
    """
    return {
        entry
        for entry, user in valid_credentials(entries).items()
        if owner_id is None or may_read(_visitor(user, entry), model, key, owner_id)
    }


def access_check(request: HttpRequest, row: Model) -> Callable[[], bool]:
    """Return a function that returns whether a streaming response's caller may still read the object."""
    model, key, owner_id = type(row), row.pk, row.user_id
    return auth.access_check(
        request, owner_id, lambda user, entry: may_read(_visitor(user, entry), model, key, owner_id)
    )


def _visitor(user: User | AnonymousUser, entry: Credentials) -> Visitor:
    return Visitor(user if user.is_authenticated else None, entry.links)


def _by(row: Model, share: Share) -> Reading:
    now = timezone.now()
    if share.used is None or now - share.used > USED_EVERY:
        Share.objects.filter(pk=share.pk).update(used=now)
    return _reading(row, share.right, share.audience)


def _reading(row: Model, right: str, audience: str) -> Reading:
    return Reading(row.user.username, right, audience, kind_of(row).name, row.name)


# --- pages and REST --------------------------------------------------------------------------------------------------
def find(request: HttpRequest, rows: QuerySet, name: str, right: str = READ) -> Model:
    """Return the object of that name of the owner in the address, else of the visitor, with its `reading`.

    Raises Http404 for a missing object and for one that the visitor may not read, or not clone where `right` says so.
    """
    owner = getattr(request, "page_owner", "")
    visitor = visitor_of(request)
    row = look_up(visitor, rows, owner or request.user.username, name, right)
    if row is None:
        raise Http404 if owner else _not_mine(visitor, rows, name)
    request.reading = row.reading
    return row


class Elsewhere(Http404):
    """The visitor has no such object, but reads one of that name, of `owner`: its owner has passed on the address."""

    def __init__(self, owner: str):
        super().__init__()
        self.owner = owner


def _not_mine(visitor: Visitor, rows: QuerySet, name: str) -> Http404:
    """Return what to raise: Elsewhere where exactly one object of that name is shared with the visitor. The queries are
    the same for a name that nobody has.
    """
    candidates = [] if "\x00" in name else list(rows.filter(name=name).select_related("user")[:SAME_NAME])
    keys = [row.pk for row in candidates if not in_trash(row)]
    shared = {*grants(visitor, rows.model, keys), *administered(visitor, rows.model, keys)}
    owners = [row.user.username for row in candidates if row.pk in shared]
    return Elsewhere(owners[0]) if len(owners) == 1 else Http404()


def look_up(visitor: Visitor, rows: QuerySet, owner: str, name: str, right: str = READ) -> Model | None:
    """Return the owner's object of that name when the visitor may read it, with its `reading`; else None."""
    if "\x00" in owner + name:
        return None
    row = rows.filter(user__username=owner, name=name).first()
    if visitor.user is not None and owner == visitor.user.username:
        return row
    if row is not None and in_trash(row):
        row = None
    keys = [row.pk] if row is not None else []
    shares, managed = grants(visitor, rows.model, keys), administered(visitor, rows.model, keys)
    if row is None:
        return None
    share = shares.get(row.pk)
    if share is not None:
        row.reading = _by(row, share)
    elif visitor.user is not None and visitor.user.is_administrator:
        row.reading = _reading(row, READ, STAFF)
    elif managed:
        row.reading = _reading(row, READ, TENANT_ADMIN)
    else:
        return None
    return row if right == READ or row.reading is None or row.reading.clones else None


def in_trash(row: Model) -> bool:
    """Return whether the object is in its owner's trash, where only the owner can read it."""
    return getattr(row, "trashed", None) is not None


def readable(request: HttpRequest, rows: Iterable[Model]) -> list[Model]:
    """Return those of the rows that the visitor may read, each with its `reading`."""
    rows = list(rows)
    reading_of = readings(visitor_of(request), rows)
    for row in rows:
        row.reading = reading_of.get(row.pk)
    return [row for row in rows if row.pk in reading_of]


def shareable(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorate a page that others may read, too, at `/u/{owner}/…`. It uses `find`, which reads `page_owner`.

    At that address the page is read-only. A visitor who is not logged in needs a link; otherwise they are sent to the
    log-in page. A reader who opens the owner's own address is sent to theirs.
    """

    @wraps(view)
    def wrapped(request, *args, owner: str = "", **kwargs):
        request.page_owner, request.reading = owner, None
        if not request.user.is_authenticated and not (owner and links_of(request.session)):
            return redirect_to_login(request.get_full_path())
        if owner and request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        try:
            return view(request, *args, **kwargs)
        except Elsewhere as elsewhere:
            if request.method not in ("GET", "HEAD"):
                raise
            return redirect(f"/u/{elsewhere.owner}{request.get_full_path()}")
        except Http404:
            if request.user.is_authenticated:
                raise
            return redirect_to_login(request.get_full_path())

    return wrapped


def address(row: Model, page: str = "", *args: str, own: bool | None = None) -> str:
    """Return the address of an object's page; it has the owner in it unless the object is the visitor's own.

    `own` says whether it is, for a row that `find` has not returned.
    """
    if own is None:
        own = row.reading is None
    return address_of(None if own else row.user.username, page or kind_of(row).page, row.name, *args)


def address_of(owner: str | None, page: str, *args: str) -> str:
    """Return the address of that user's page; without an owner it is the visitor's own."""
    return reverse(page, args=[owner, *args] if owner else args)
