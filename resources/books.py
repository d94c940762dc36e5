"""Checks the accounting of resources and repairs it. Called by `manage.py books`.

Three figures must agree: what a tenant's row records as in use, the sum of the requests, and what the platform's
objects use according to their own rows. The objects are authoritative: they exist. Only damage from outside (manual
SQL, a restored table) can cause a difference; each one is listed before anything is changed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.db import connection, models, transaction
from django.db.models import Q, Sum
from django.utils import timezone

from . import tcc
from .models import HELD, KINDS, LENDABLE, LIVE, Loan, RequestType, ResourceRequest, State, Tenant
from .units import with_unit, zero

log = logging.getLogger(__name__)

BY = "books"
ROUNDS = 3


@dataclass(frozen=True)
class Source:
    """Objects of one kind: which of them use resources, how much, and under which request id (`{prefix}:{pk}`)."""

    prefix: str
    applier: str
    model: type[models.Model]
    using: Q
    amounts: Callable[[models.Model], dict]

    def claims(self, tenant: Tenant) -> dict[str, Claim]:
        """Return what the objects use in the tenant, by the ids of their requests."""
        using = self.model._default_manager.filter(self.using, tenant=tenant).select_related("user")
        return {f"{self.prefix}:{row.pk}": Claim(self.applier, row.user.username, self.amounts(row)) for row in using}


@dataclass(frozen=True)
class Claim:
    """What one object uses according to its own row."""

    applier: str
    owner: str
    amounts: dict


@dataclass(frozen=True)
class Difference:
    """One line of the table. `id` is the request's, or "" for the tenant's own row."""

    tenant: str
    id: str
    what: str
    recorded: str
    expected: str


def explain(tenant: Tenant, sources: Iterable[Source]) -> list[Difference]:
    """Return every difference of one tenant, from one snapshot of the database and without locks."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return _differences(Tenant.objects.get(pk=tenant.pk), list(sources))


def repair(tenant: Tenant, sources: Iterable[Source]) -> None:
    """Repair the accounting of one tenant in one transaction, and in further ones for differences that appear later.

    Locks in tcc's order: the objects with a difference, all tenants, the requests. Under the tenants' locks no sum
    changes, so a difference that is still there is repaired, and a new one is left to the next round.
    """
    sources = list(sources)
    for _ in range(ROUNDS):
        seen = explain(tenant, sources)
        if not seen:
            return
        with transaction.atomic():
            suspects = sorted({difference.id for difference in seen if difference.id})
            _lock_objects(suspects, sources)
            locked = _lock_tenants()[tenant.pk]
            list(
                ResourceRequest.objects.select_for_update(of=("self",), no_key=True)
                .filter(pk__in=suspects)
                .order_by("pk")
            )
            claims = _claims(locked, sources)
            for difference in _row_differences(locked, claims, sources):
                if difference.id in suspects:
                    _repair_row(locked, difference.id, claims.get(difference.id))
            _repair_sums(locked, sources)
        for difference in seen:
            log.warning(
                "accounting of tenant %s: corrected %s from %s to %s",
                difference.tenant,
                difference.what,
                difference.recorded,
                difference.expected,
            )


def _differences(tenant: Tenant, sources: list[Source]) -> list[Difference]:
    claims = _claims(tenant, sources)
    return [*_row_differences(tenant, claims, sources), *_sum_differences(tenant, claims, sources)]


def _claims(tenant: Tenant, sources: list[Source]) -> dict[str, Claim]:
    return {id: claim for source in sources for id, claim in source.claims(tenant).items()}


def _checkable(sources: list[Source]) -> Q:
    """Return the filter for live requests of the sources' objects; others, such as aiops', cannot be checked here."""
    prefixes = "|".join(source.prefix for source in sources)
    return LIVE & Q(pk__regex=f"^({prefixes}):[0-9]+$")


def _row_differences(tenant: Tenant, claims: dict[str, Claim], sources: list[Source]) -> list[Difference]:
    """Compare requests with objects, in both directions."""
    rows = {row.pk: row for row in ResourceRequest.objects.filter(_checkable(sources), tenant=tenant)}
    differences = []
    for id in sorted(rows.keys() | claims.keys()):
        row, claim = rows.get(id), claims.get(id)
        recorded = "not active" if row is None else _described(row.applier, row.owner, row.amounts())
        expected = (
            "nothing: no object uses it" if claim is None else _described(claim.applier, claim.owner, claim.amounts)
        )
        if recorded != expected:
            differences.append(Difference(tenant.name, id, f"request {id}", recorded, expected))
    return differences


def _described(applier: str, owner: str, amounts: dict) -> str:
    parts = [f"{kind} {with_unit(kind, value)}" for kind, value in amounts.items() if value]
    return ", ".join(parts or ["nothing"]) + f" for {owner or 'no owner'} ({applier})"


def _outside(tenant: Tenant, sources: list[Source]) -> dict:
    """Return the sum of the rows that came over REST; negative only if the accounting is damaged."""
    requested = tcc.add_up(ResourceRequest.objects.filter(HELD | _checkable(sources), tenant=tenant))
    total = tcc.allocated(tenant)
    return {kind: total[kind] - requested[kind] for kind in KINDS}


def _sum_differences(tenant: Tenant, claims: dict[str, Claim], sources: list[Source]) -> list[Difference]:
    """Compare the tenant's row with its objects' claims, the requests over REST, and those that cannot be checked."""
    differences, outside = [], _outside(tenant, sources)
    unchecked = tcc.add_up(ResourceRequest.objects.filter(HELD, tenant=tenant).exclude(_checkable(sources)))
    for kind in KINDS:
        claimed = sum((claim.amounts[kind] for claim in claims.values()), zero(kind))
        expected = max(outside[kind], zero(kind)) + unchecked[kind] + claimed
        in_use, capacity = getattr(tenant, f"{kind}_inuse"), getattr(tenant, kind)
        right = with_unit(kind, expected)
        if outside[kind] < 0:
            more = f"{with_unit(kind, -outside[kind])} more than requested"
            differences.append(Difference(tenant.name, "", f"{kind} released", more, "no more than requested"))
        if in_use != expected:
            differences.append(Difference(tenant.name, "", f"{kind}_inuse", with_unit(kind, in_use), right))
        least = expected + tenant.lent(kind) - tenant.borrowed(kind)
        if capacity < least:
            least = f"at least {with_unit(kind, least)}, which is in use{' or lent' if tenant.lent(kind) else ''}"
            differences.append(Difference(tenant.name, "", kind, with_unit(kind, capacity), least))
    return [*differences, *_loan_differences(tenant)]


def _loan_differences(tenant: Tenant) -> list[Difference]:
    """Compare the tenant's row with its loans."""
    differences = []
    for what, loans in (("borrowed", tenant.loans_taken), ("lent", tenant.loans_given)):
        sums = loans.aggregate(**{kind: Sum(kind) for kind in LENDABLE})
        for kind in LENDABLE:
            recorded, expected = getattr(tenant, f"{kind}_{what}"), sums[kind] or zero(kind)
            if recorded != expected:
                shown = with_unit(kind, recorded), with_unit(kind, expected)
                differences.append(Difference(tenant.name, "", f"{kind}_{what}", *shown))
    return differences


def _lock_tenants() -> dict[int, Tenant]:
    """Lock all tenants in the order of their keys: a repair may end loans of several."""
    return {tenant.pk: tenant for tenant in Tenant.objects.select_for_update(no_key=True).order_by("pk")}


def _lock_objects(suspects: list[str], sources: list[Source]) -> None:
    for source in sources:
        keys = [int(id.partition(":")[2]) for id in suspects if id.startswith(f"{source.prefix}:")]
        list(
            source.model._default_manager.select_for_update(of=("self",), no_key=True)
            .filter(pk__in=keys)
            .order_by("pk")
        )


def _repair_row(tenant: Tenant, id: str, claim: Claim | None) -> None:
    """Make the request agree with its object. The row is locked, or missing."""
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
        return  # it is released in its own tenant first, and repaired here in the next round
    row.request_type, row.tenant, row.applier, row.owner = RequestType.REQUEST, tenant, claim.applier, claim.owner
    for kind, value in claim.amounts.items():
        setattr(row, kind, value)
    row.save()


def _repair_sums(tenant: Tenant, sources: list[Source]) -> None:
    """Make the locked tenant's row agree with its requests, and its capacity no smaller.

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
    for kind, value in tcc.allocated(tenant).items():
        setattr(tenant, f"{kind}_inuse", value)
        if kind in LENDABLE:
            _repair_loans(tenant, kind)
        setattr(tenant, kind, max(getattr(tenant, kind), value + tenant.lent(kind) - tenant.borrowed(kind)))
    tenant.save()


def _repair_loans(tenant: Tenant, kind: str) -> None:
    """Make the sums of the locked tenant those of its loans, after ending those for which nothing is in use."""
    given = tenant.loans_given.aggregate(sum=Sum(kind))["sum"] or zero(kind)
    taken = list(tenant.loans_taken.order_by("pk"))
    over = max(getattr(tenant, f"{kind}_inuse") - getattr(tenant, kind), zero(kind))
    surplus = sum((getattr(loan, kind) for loan in taken), zero(kind)) - (zero(kind) if given else over)
    for loan in taken:
        part = min(max(surplus, zero(kind)), getattr(loan, kind))
        if not part:
            continue
        surplus -= part
        setattr(loan, kind, getattr(loan, kind) - part)
        _store_loan(loan)
        lent = loan.lender.loans_given.aggregate(sum=Sum(kind))["sum"] or zero(kind)
        Tenant.objects.filter(pk=loan.lender_id).update(**{f"{kind}_lent": lent})
    setattr(tenant, f"{kind}_lent", given)
    setattr(tenant, f"{kind}_borrowed", sum((getattr(loan, kind) for loan in taken), zero(kind)))


def _store_loan(loan: Loan) -> None:
    if any(getattr(loan, kind) for kind in LENDABLE):
        loan.save()
    else:
        loan.delete()
