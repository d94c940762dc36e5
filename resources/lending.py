"""Borrowing between tenants: the arithmetic of loans in memory, and the locks for it. Used by tcc and jobs.

A tenant that needs more than its capacity may borrow what others, which lend, have idle. Only objects that can step
back borrow (preemptible jobs), so a lender gets its resources back. For each kind but disk:

    in use + lent <= capacity + borrowed   a CHECK constraint of the tenant's row
    borrowed = max(0, in use - capacity)   another one: own capacity is used first, and nothing is borrowed for later
    lent = 0 where borrowed > 0            the same
    borrowed and lent are the sums of the loans, one row for each pair of tenants

So what all tenants use never exceeds what they have together.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from functools import wraps

from django.db import transaction
from django.db.models import F, Q, Sum
from django.utils import timezone

from kernel.errors import Refused

from .models import KINDS, LENDABLE, Loan, Tenant
from .units import zero

MOVED = [f"{kind}_inuse" for kind in KINDS] + [f"{kind}_{what}" for kind in LENDABLE for what in ("lent", "borrowed")]


RECALLED = timedelta(minutes=10)


class Lent(Refused):
    """The tenant would have enough if it had lent nothing: its loans are recalled by `recalling`."""

    tenant_id: int | None = None


class Again(Exception):
    """Another loan was made while the locks were awaited: the lock of its lender would come out of order."""


class Ledger:
    """Tenants and the loans between them, in memory. Amounts are in the units of the rows, keys those of tenants."""

    def __init__(self, tenants: Iterable[Tenant], loans: Iterable[Loan] = (), pk: int | None = None):
        self.tenants = {tenant.pk: tenant for tenant in tenants}
        self.loans = {(loan.lender_id, loan.borrower_id): amounts_of(loan) for loan in loans}
        self.pk = pk  # the one that the locks were taken for
        self.before = {key: copy.copy(tenant) for key, tenant in self.tenants.items()}
        self.loans_before = {pair: dict(amounts) for pair, amounts in self.loans.items()}

    @property
    def tenant(self) -> Tenant:
        return self.tenants[self.pk]

    def fresh(self) -> Ledger:
        """Return an independent copy."""
        other = Ledger((copy.copy(tenant) for tenant in self.tenants.values()), pk=self.pk)
        other.loans = {pair: dict(amounts) for pair, amounts in self.loans.items()}
        return other

    def lendable(self, pk: int, closed: Collection[int] = ()) -> dict:
        """Return how much more of each kind the tenant could borrow now; the tenants `closed` do not lend."""
        tenant, most = self.tenants[pk], {}
        for kind in LENDABLE:
            allowed = tenant.borrow_limit(kind) - tenant.borrowed(kind)
            idle = sum((lender.left(kind) for lender in self._lenders(pk, kind, closed)), zero(kind))
            most[kind] = zero(kind) if tenant.lent(kind) else max(min(allowed, idle), zero(kind))
        return most

    def take(self, pk: int, wanted: dict, closed: Collection[int] = ()) -> None:
        """Add to what the tenant has in use; borrow what does not fit its own capacity. The caller has checked it."""
        tenant = self.tenants[pk]
        for kind, value in wanted.items():
            missing = max(value - tenant.left(kind), zero(kind))
            _add(tenant, f"{kind}_inuse", value)
            if kind not in LENDABLE or not missing:
                continue
            _add(tenant, f"{kind}_borrowed", missing)
            for lender in sorted(self._lenders(pk, kind, closed), key=lambda lender: (-lender.left(kind), lender.pk)):
                part = min(missing, lender.left(kind))
                self._lend(lender, pk, kind, part)
                missing -= part

    def give_back(self, pk: int, amounts: dict, to: int | None = None) -> None:
        """Subtract from what the tenant has in use; return what is no longer borrowed, first to the tenant `to`."""
        for kind, value in amounts.items():
            _add(self.tenants[pk], f"{kind}_inuse", -value)
            self.settle(pk, kind, to)

    def least(self, pk: int, kind: str):
        """Return the smallest capacity that the tenant could have: what it uses of its own, and has lent."""
        tenant = self.tenants[pk]
        return getattr(tenant, f"{kind}_inuse") - tenant.borrowed(kind) + tenant.lent(kind)

    def set_capacity(self, pk: int, kind: str, value) -> None:
        """Set a capacity, at least `least`; a larger one replaces what is borrowed."""
        setattr(self.tenants[pk], kind, value)
        self.settle(pk, kind)

    def settle(self, pk: int, kind: str, to: int | None = None) -> None:
        """Return what is borrowed although the tenant's own capacity has room for it: first to the tenant `to`, then to
        those that do not lend any more, then to those with the least left.
        """
        tenant = self.tenants[pk]
        if kind not in LENDABLE or not tenant.borrowed(kind):
            return
        over = max(getattr(tenant, f"{kind}_inuse") - getattr(tenant, kind), zero(kind))
        back = max(tenant.borrowed(kind) - over, zero(kind))
        _add(tenant, f"{kind}_borrowed", -back)
        lenders = [self.tenants[lender] for lender, borrower in self.loans if borrower == pk]
        for lender in sorted(
            lenders, key=lambda lender: (lender.pk != to, lender.lends_now, lender.left(kind), lender.pk)
        ):
            part = min(back, self.lent_to(lender.pk, pk)[kind])
            if part:
                self._lend(lender, pk, kind, -part)
            back -= part

    def lent_to(self, lender: int, borrower: int) -> dict:
        """Return what one tenant has lent to another."""
        return self.loans.get((lender, borrower)) or {kind: zero(kind) for kind in LENDABLE}

    def _lenders(self, pk: int, kind: str, closed: Collection[int]) -> list[Tenant]:
        others = (
            tenant
            for tenant in self.tenants.values()
            if tenant.lends_now and tenant.pk != pk and tenant.pk not in closed
        )
        return [tenant for tenant in others if not tenant.borrowed(kind) and tenant.left(kind) > 0]

    def _lend(self, lender: Tenant, borrower: int, kind: str, by) -> None:
        _add(lender, f"{kind}_lent", by)
        self.loans.setdefault((lender.pk, borrower), self.lent_to(lender.pk, borrower))[kind] += by


def amounts_of(loan: Loan) -> dict:
    """Return what is lent by the loan, by kind."""
    return {kind: getattr(loan, kind) for kind in LENDABLE}


def _add(tenant: Tenant, name: str, by) -> None:
    setattr(tenant, name, getattr(tenant, name) + by)


def everything() -> Ledger:
    """Return all tenants and loans as they are now, without locks."""
    tenants = {tenant.pk: tenant for tenant in Tenant.objects.order_by("pk")}
    if not any(tenant.borrowed(kind) for tenant in tenants.values() for kind in LENDABLE):
        return Ledger(tenants.values())
    return Ledger(tenants.values(), Loan.objects.filter(lender__in=tenants, borrower__in=tenants))


def most(tenant: Tenant, kind: str):
    """Return how much of the kind the tenant could borrow at best: its limit, and the capacity of those that lend."""
    allowed = tenant.borrow_limit(kind)
    if not allowed:
        return zero(kind)
    others = Tenant.objects.filter(lends=True).exclude(pk=tenant.pk).aggregate(sum=Sum(kind))["sum"]
    return min(allowed, others or zero(kind))


def recall(refused: Refused) -> None:
    """Have the loans end that are the reason of the refusal, if they are."""
    if isinstance(refused, Lent):
        Tenant.objects.filter(pk=refused.tenant_id).update(recalled_until=timezone.now() + RECALLED)


def recalling(call: Callable) -> Callable:
    """Have a tenant's loans end when the call is refused because of them: for objects that do not wait, as jobs do.

    To be used around the transaction, since a refusal undoes that. The tenant lends nothing for ten minutes.
    """

    @wraps(call)
    def asked(*args, **kwargs):
        try:
            return call(*args, **kwargs)
        except Lent as refused:
            recall(refused)
            raise

    return asked


def repeated(call: Callable) -> Callable:
    """Make the call in a transaction, or a savepoint of the caller's, and again when it raises Again: leaving the first
    gives back the locks that it took.
    """

    @wraps(call)
    def attempts(*args, **kwargs):
        while True:
            try:
                with transaction.atomic():
                    return call(*args, **kwargs)
            except Again:
                continue

    return attempts


def lock(*, borrowing: bool = False, **key) -> Ledger | None:
    """Lock a tenant and those that it borrows from, with `borrowing` also those that it could, in the order of their
    keys. Return them with the tenant's loans, None for an unknown tenant.

    A tenant's loans change only under its own lock, so while it is held, its lenders stay the same. For calls under
    `repeated`. Raises Again when a lender turned up too late.
    """
    [(column, value)] = key.items()
    lenders = Q(pk__in=Loan.objects.filter(**{f"borrower__{column}": value}).values("lender"))
    wanted = Q(**key) | lenders | (Q(lends=True) if borrowing else Q())
    tenants = list(Tenant.objects.select_for_update(no_key=True).filter(wanted).order_by("pk"))
    tenant = next((tenant for tenant in tenants if getattr(tenant, column) == value), None)
    if tenant is None:
        return None
    if not any(tenant.borrowed(kind) for kind in LENDABLE):
        return Ledger(tenants, pk=tenant.pk)
    ledger = Ledger(tenants, Loan.objects.filter(borrower=tenant), pk=tenant.pk)
    if any(lender not in ledger.tenants for lender, _borrower in ledger.loans):
        raise Again
    return ledger


def store(ledger: Ledger) -> None:
    """Add what has changed since the ledger was read to the rows of its locked tenants and of their loans.

    Each row changes in one statement, so that the database's constraints hold after each.
    """
    for pk, tenant in ledger.tenants.items():
        before = ledger.before[pk]
        by = {name: getattr(tenant, name) - getattr(before, name) for name in (*KINDS, *MOVED)}
        if changed := {name: F(name) + value for name, value in by.items() if value}:
            Tenant.objects.filter(pk=pk).update(**changed)
        ledger.before[pk] = copy.copy(tenant)
    for (lender, borrower), amounts in ledger.loans.items():
        if amounts == ledger.loans_before.get((lender, borrower)):
            continue
        row = Loan.objects.filter(lender=lender, borrower=borrower)
        if not any(amounts.values()):
            row.delete()
        elif not row.update(**amounts):
            Loan.objects.create(lender_id=lender, borrower_id=borrower, **amounts)
    ledger.loans_before = {pair: dict(amounts) for pair, amounts in ledger.loans.items()}
