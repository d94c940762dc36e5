"""Saved searches: filters under a name. Called by REST and pages.

A search that is shared with a tenant can be run by its members while the owner is one of them. It shows them the lines
that they may see, never the owner's.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, RestrictedError
from django.db.models.functions import Coalesce

from accounts.lifecycle import hold_active
from accounts.models import Membership, State, User
from accounts.tenancy import members
from aiops.models import SavedSearch
from kernel.errors import Refused
from kernel.locking import Missing, get_or_missing
from kernel.messages import Message

from . import log_search

FILTERS = ("level", "q", "template", "severity", "attribute", *log_search.NAMES)
MAX_VALUE = 253  # characters of a filter other than `q`
TAKEN = Message("is already taken")


def visible(user: User):
    """Return the searches that the user can run: their own, and those that are shared with a tenant of theirs; all of
    them for an administrator.
    """
    rows = SavedSearch.objects.select_related("owner", "tenant")
    if user.is_administrator:
        return rows
    mine = Membership.objects.filter(user_id=user.member_id).values("tenant_id")
    owners = Membership.objects.filter(user_id=Coalesce(OuterRef("owner__owner_id"), OuterRef("owner_id")))
    shared = Exists(owners.filter(tenant_id=OuterRef("tenant_id"))) & Q(owner__state=State.ACTIVED)  # not who left
    return rows.filter(Q(owner=user) | (Q(tenant__in=mine) & shared))


def find(user: User, number: int | None) -> SavedSearch:
    """Return a search that the user can run. Raises Missing."""
    return get_or_missing(visible(user), number, "search")


def own(user: User, number: int | None) -> SavedSearch:
    """Return a search of the user's own. Raises Missing."""
    row = find(user, number)
    if row.owner_id != user.pk:
        raise Missing("search")
    return row


def changeable(user: User, number: int | None) -> SavedSearch:
    """Return a search that the user may change: their own, or any for an administrator. Raises Missing."""
    return find(user, number) if user.is_administrator else own(user, number)


def require_room(user: User) -> None:
    """Raise Refused for a user who has as many searches as are allowed."""
    most = settings.AIOPS_SEARCHES_PER_USER
    if not user.is_administrator and SavedSearch.objects.filter(owner=user).count() >= most:
        raise Refused("at most %(most)s saved searches of a user", field="name", most=most)


def create(*, user: User, name: str, filters: dict, tenant: str | None = None, replace: bool = False) -> SavedSearch:
    """Save a search; with `replace` also under a name that the user has already given. Raises Refused, Missing."""
    filters = checked(user, filters)
    shared = members.chosen(user, tenant) if tenant else None
    with transaction.atomic():
        hold_active(user)
        mine = SavedSearch.objects.filter(owner=user)
        row = mine.filter(name=name).first() if replace else None
        if row is None:
            require_room(user)
            row = SavedSearch(owner=user, name=name)
        row.filters, row.tenant = filters, shared
        _save(row)
    return row


def change(row: SavedSearch, given: dict) -> SavedSearch:
    """Change the given ones of name, filters and tenant ("" for none). Raises Refused, Missing."""
    if "filters" in given:
        row.filters = checked(row.owner, given["filters"])
    if "tenant" in given:
        row.tenant = members.chosen(row.owner, given["tenant"]) if given["tenant"] else None
    row.name = given.get("name", row.name)
    _save(row)
    return row


def _save(row: SavedSearch) -> None:
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError as problem:
        raise Refused(TAKEN, field="name") from problem


def delete(row: SavedSearch) -> None:
    """Delete a search. Raises Refused while an alert rule uses it."""
    try:
        row.delete()
    except RestrictedError as problem:
        raise _in_use(rule.name for rule in problem.restricted_objects) from problem


def require_unused(row: SavedSearch) -> None:
    """Raise Refused while an alert rule uses the search."""
    if names := [rule.name for rule in row.rules.all()]:
        raise _in_use(names)


def _in_use(names: Iterable[str]) -> Refused:
    return Refused("alert rules use this search: %(names)s", field="search", names=", ".join(sorted(names)[:5]))


def checked(user: User, filters: dict) -> dict:
    """Return the filters without empty ones. Raises Refused naming a wrong one."""
    for name, value in filters.items():
        if name not in FILTERS:
            raise Refused("unknown field", field=name)
        if name != "q" and len(value) > MAX_VALUE:
            raise Refused("must have at most %(most)s characters", field=name, most=MAX_VALUE)
    kept = {name: value for name, value in filters.items() if value.strip()}
    if not kept:
        raise Refused("must have at least one filter", field="filters")
    log_search.body(user, **kept)
    return kept
