"""Compares the books with the world, and puts them right. Called by `manage.py books`.

Three accounts must agree: what a tenant's row says is in use, what the requests add up to, and what the platform's
objects hold by their own account. The objects are right: what they hold is really there. Only damage from outside
(SQL by hand, a restored table) can make a difference; each one is explained before anything is touched.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.db import connection, models, transaction
from django.db.models import Q
from django.utils import timezone

from . import tcc
from .models import HELD, KINDS, LIVE, RequestType, ResourceRequest, State, Tenant
from .units import say, zero

log = logging.getLogger(__name__)

BY = "books"
ROUNDS = 3


@dataclass(frozen=True)
class Source:
    """Objects of one kind: which of them hold something, how much, and under which id (`{prefix}:{pk}`)."""

    prefix: str
    applier: str
    model: type[models.Model]
    holding: Q
    amounts: Callable[[models.Model], dict]

    def claims(self, tenant: Tenant) -> dict[str, Claim]:
        found = self.model._default_manager.filter(self.holding, tenant=tenant).select_related("user")
        return {f"{self.prefix}:{one.pk}": Claim(self.applier, one.user.username, self.amounts(one)) for one in found}


@dataclass(frozen=True)
class Claim:
    """What one object holds by its own account."""

    applier: str
    owner: str
    amounts: dict


@dataclass(frozen=True)
class Difference:
    """One line of the table. `id` is the request's, or "" for the tenant's own row."""

    tenant: str
    id: str
    what: str
    found: str
    expected: str


def explain(tenant: Tenant, sources: Iterable[Source]) -> list[Difference]:
    """Every difference of one tenant, seen in one snapshot: nobody is kept waiting, and none is only passing."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return _differences(Tenant.objects.get(pk=tenant.pk), list(sources))


def repair(tenant: Tenant, sources: Iterable[Source]) -> None:
    """Puts the books of one tenant right, in one transaction (and another when something new was seen meanwhile).

    Locks as tcc does: the objects that looked wrong, the tenant, the requests. Under the tenant's lock no sum moves; so
    what is still wrong then is mended, and what is seen only now waits for another round.
    """
    sources = list(sources)
    for _ in range(ROUNDS):
        seen = explain(tenant, sources)
        if not seen:
            return
        with transaction.atomic():
            suspects = sorted({one.id for one in seen if one.id})
            _lock_objects(suspects, sources)
            locked = tcc.lock_tenant(pk=tenant.pk)
            list(
                ResourceRequest.objects.select_for_update(of=("self",), no_key=True)
                .filter(pk__in=suspects)
                .order_by("pk")
            )
            claims = _claims(locked, sources)
            for one in _row_differences(locked, claims, sources):
                if one.id in suspects:
                    _mend_row(locked, one.id, claims.get(one.id))
            _mend_sums(locked, sources)
        for one in seen:
            log.warning("books of %s: %s said %s, should say %s", one.tenant, one.what, one.found, one.expected)


def _differences(tenant: Tenant, sources: list[Source]) -> list[Difference]:
    claims = _claims(tenant, sources)
    return [*_row_differences(tenant, claims, sources), *_sum_differences(tenant, claims, sources)]


def _claims(tenant: Tenant, sources: list[Source]) -> dict[str, Claim]:
    return {id: claim for source in sources for id, claim in source.claims(tenant).items()}


def _judged(sources: list[Source]) -> Q:
    """The live requests whose objects we can ask; aiops, for one, keeps its own books."""
    prefixes = "|".join(source.prefix for source in sources)
    return LIVE & Q(pk__regex=f"^({prefixes}):[0-9]+$")


def _row_differences(tenant: Tenant, claims: dict[str, Claim], sources: list[Source]) -> list[Difference]:
    """Requests against objects, both ways."""
    rows = {row.pk: row for row in ResourceRequest.objects.filter(_judged(sources), tenant=tenant)}
    found = []
    for id in sorted(rows.keys() | claims.keys()):
        row, claim = rows.get(id), claims.get(id)
        says = "not live" if row is None else _words(row.applier, row.owner, row.amounts())
        should = "nothing: no object holds it" if claim is None else _words(claim.applier, claim.owner, claim.amounts)
        if says != should:
            found.append(Difference(tenant.name, id, f"request {id}", says, should))
    return found


def _words(applier: str, owner: str, amounts: dict) -> str:
    parts = [f"{kind} {say(kind, value)}" for kind, value in amounts.items() if value]
    return ", ".join(parts or ["nothing"]) + f" for {owner or 'nobody'} ({applier})"


def _outside(tenant: Tenant, sources: list[Source]) -> dict:
    """What the rows that came over REST add up to; below zero only in damaged books."""
    held = tcc.add_up(ResourceRequest.objects.filter(HELD | _judged(sources), tenant=tenant))
    total = tcc.books(tenant)
    return {kind: total[kind] - held[kind] for kind in KINDS}


def _sum_differences(tenant: Tenant, claims: dict[str, Claim], sources: list[Source]) -> list[Difference]:
    """The tenant's row against what its objects claim, the requests over REST, and those we cannot judge."""
    found, outside = [], _outside(tenant, sources)
    unjudged = tcc.add_up(ResourceRequest.objects.filter(HELD, tenant=tenant).exclude(_judged(sources)))
    for kind in KINDS:
        claimed = sum((claim.amounts[kind] for claim in claims.values()), zero(kind))
        right = max(outside[kind], zero(kind)) + unjudged[kind] + claimed
        in_use, capacity = getattr(tenant, f"{kind}_inuse"), getattr(tenant, kind)
        if outside[kind] < 0:
            more = f"{say(kind, -outside[kind])} more than requests"
            found.append(Difference(tenant.name, "", f"{kind} released", more, "no more than requests"))
        if in_use != right:
            found.append(Difference(tenant.name, "", f"{kind}_inuse", say(kind, in_use), say(kind, right)))
        if capacity < right:
            found.append(
                Difference(tenant.name, "", kind, say(kind, capacity), f"{say(kind, right)}: so much is in use")
            )
    return found


def _lock_objects(suspects: list[str], sources: list[Source]) -> None:
    for source in sources:
        keys = [int(id.partition(":")[2]) for id in suspects if id.startswith(f"{source.prefix}:")]
        list(
            source.model._default_manager.select_for_update(of=("self",), no_key=True)
            .filter(pk__in=keys)
            .order_by("pk")
        )


def _mend_row(tenant: Tenant, id: str, claim: Claim | None) -> None:
    """Makes the request say what the object says. The row is locked, or not there."""
    row = ResourceRequest.objects.filter(pk=id).first()
    if claim is None:
        if row.state == State.TRIED:
            row.cancel(by=BY)
            row.settled = timezone.now()
        else:
            row.release(by=BY)
            row.released = timezone.now()
        row.save()
        return
    if row is None:
        row = ResourceRequest(id=id, state=State.CONFIRMED, settled=timezone.now())
    elif row.state not in (State.TRIED, State.CONFIRMED):
        row.reinstate(by=BY)
        row.released = None
    elif row.tenant_id != tenant.pk:
        return  # it is mended first where it is, and comes here in another round
    row.request_type, row.tenant, row.applier, row.owner = RequestType.REQUEST, tenant, claim.applier, claim.owner
    for kind, value in claim.amounts.items():
        setattr(row, kind, value)
    row.save()


def _mend_sums(tenant: Tenant, sources: list[Source]) -> None:
    """Makes the locked tenant's row say what its requests say, with room for it.

    What was released without ever having been requested gets a request of its own, so that it is accounted for.
    """
    missing = {kind: max(-value, zero(kind)) for kind, value in _outside(tenant, sources).items()}
    if any(missing.values()):
        ResourceRequest.objects.create(
            id=f"{BY}:{secrets.token_hex(8)}",
            applier="jm",
            request_type=RequestType.REQUEST,
            tenant=tenant,
            state=State.CONFIRMED,
            settled=timezone.now(),
            **missing,
        )
    for kind, value in tcc.books(tenant).items():
        setattr(tenant, f"{kind}_inuse", value)
        setattr(tenant, kind, max(getattr(tenant, kind), value))
    tenant.save()
