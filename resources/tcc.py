"""Try, confirm, cancel: the only way to change what a tenant has in use. All are idempotent.
docs/resources.md explains why it is safe.

Called by the managers inside the transaction of their own object, and by the REST calls, which are a thin shell.
Lock order: the object's row (the caller has it), the rows of the tenant and of those that it borrows from, in the order
of their keys (resources.lending), then request rows. No transaction that holds a request's row waits for a tenant, so
there is no deadlock. The one call that needs no tenant, the confirm of a request, is a single statement. The primary
key decides between two tries of one id, and a cancel that came before its try has inserted that row already.
"""

from __future__ import annotations

from collections.abc import Collection

from django.db import transaction
from django.db.models import Q, QuerySet, Sum
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from kernel.errors import Refused
from kernel.locking import Missing

from . import lending, limits, rows
from .lending import Ledger, Lent
from .models import (
    GIVEN_BACK,
    HELD,
    IDLE_POLICY,
    KINDS,
    LENDING,
    LIVE,
    RequestType,
    ResourceRequest,
    State,
    Tenant,
    UserLimit,
    is_platform_id,
)
from .policies import INTERACTIVE, LOGS, RECORDS, RETENTION, ROLLOUTS
from .units import amounts, kinds_of, with_unit, zero


def try_(
    *, id: str, applier: str, request_type: str, tenant: str = "default", owner: str = "", borrows: bool = False,
    closed: Collection[int] = (), **asked,
) -> ResourceRequest:  # fmt: skip
    """Reserve (request) or earmark (release) the amounts. Returns the row, the earlier one when the id is known.

    `owner` is the user whose object it is for; every caller inside the platform names one and uses a platform id. An
    object that `borrows` can step back, so the tenant may borrow for it, but not from those `closed`; such a try is the
    first that its transaction does with tenants. Raises Missing for an unknown tenant; Refused for another applier's id
    or when the tenant has not enough left; OverLimit when only the owner's limit is exceeded.
    """
    if bool(owner) != is_platform_id(id):
        raise ValueError(f"{id}: platform ids, and only they, have an owner")
    wanted = amounts(**asked)
    row = ResourceRequest(id=id, applier=applier, request_type=request_type, owner=owner, **wanted)
    if request_type == RequestType.REQUEST and rows.try_at_once(row, tenant):
        return row
    return _try(row, tenant, borrows, closed)


@lending.repeated
def _try(row: ResourceRequest, tenant: str, borrows: bool, closed: Collection[int]) -> ResourceRequest:
    """Try with the tenant locked: this finds the reason of a refusal, and borrows."""
    ledger = lending.lock(name=tenant, borrowing=borrows)
    known = ResourceRequest.objects.filter(pk=row.pk).first()
    if known is None:
        if ledger is None:
            raise Missing("tenant")
        row.tenant = ledger.tenant
        if rows.insert(row):
            if row.request_type == RequestType.RELEASE:
                _earmark(row, ledger.tenant)
            else:
                _take(row, ledger, borrows, closed)
            return row
        known = ResourceRequest.objects.get(pk=row.pk)  # just tried with another tenant, or just cancelled
    return _own(known, row.applier)


def confirm(*, id: str, applier: str) -> None:
    """Keep what a request has reserved, or give back what a release has earmarked. An unknown or settled id is OK.

    Raises Refused for a release of more than is still in use, because a try that it counted on was cancelled.
    """
    if not rows.confirm(id, applier):
        _confirm(id, applier)


@lending.repeated
def _confirm(id: str, applier: str) -> None:
    row, ledger = _open(id, applier, State.TRIED)
    if row is not None:
        row.confirm(by=applier)
        rows.save(row, State.TRIED)
        if row.request_type == RequestType.RELEASE:
            _give_back(row, ledger)


@lending.repeated
def cancel(*, id: str, applier: str) -> None:
    """Give back a tried request, or drop a release. An unknown id is recorded, so that its late try reserves nothing.

    Raises Refused for a request of more than is still in use, because a release has given it back already.
    """
    if not ResourceRequest.objects.filter(pk=id).exists():
        nothing = {"request_type": RequestType.REQUEST, "state": State.CANCELLED, "settled": timezone.now()}
        if rows.insert(ResourceRequest(id=id, applier=applier, **nothing)):
            return
    row, ledger = _open(id, applier, State.TRIED)
    if row is not None:
        row.cancel(by=applier)
        rows.save(row, State.TRIED)
        if row.request_type == RequestType.REQUEST:
            _give_back(row, ledger)


@lending.repeated
def release(*, id: str, applier: str, to: int | None = None) -> None:
    """Give back what the request of a platform's object holds, tried or confirmed; idempotent.

    For the managers, inside their object's transaction: the object has ended, so nothing is earmarked first. What is
    no longer borrowed is returned to the tenant `to` first.
    """
    row, ledger = _open(id, applier, State.TRIED, State.CONFIRMED)
    if row is None or row.request_type != RequestType.REQUEST:
        return
    before = row.state
    if before == State.TRIED:
        row.cancel(by=applier)
    else:
        row.release(by=applier)
    rows.save(row, before)
    _give_back(row, ledger, to)


def withdraw(*, id: str, applier: str, to: int | None = None) -> None:
    """Give back what the request of a platform's object holds, and forget it: the object will try that id again.

    For an object that goes on later: a settled id cannot be tried again.
    """
    with transaction.atomic():
        release(id=id, applier=applier, to=to)
        ResourceRequest.objects.filter(pk=id, applier=applier, state__in=[State.CANCELLED, State.RELEASED]).delete()


@lending.repeated
def resize(*, id: str, applier: str, tenant: int, owner: str, **asked) -> None:
    """Let the request of a platform's object hold these amounts instead of those before; make it where there is none.

    Raises Refused when the tenant has not enough left for what is added; OverLimit when the owner's limit is exceeded.
    """
    wanted = amounts(**asked)
    ledger = lock_ledger(pk=tenant)
    row = rows.lock(id)
    if row is None:
        nothing = ResourceRequest(
            id=id, applier=applier, request_type=RequestType.REQUEST, owner=owner, tenant=ledger.tenant,
            state=State.CONFIRMED, settled=timezone.now(),
        )  # fmt: skip
        rows.insert(nothing)
        row = nothing
    by = {kind: value - getattr(_own(row, applier), kind) for kind, value in wanted.items()}
    more = {kind: max(value, zero(kind)) for kind, value in by.items()}
    if any(more.values()):
        limit = limits.limit_of(tenant, owner)
        has = limits.used_by(tenant, owner) if limit is not None else {}
        refused = refusal(ledger.tenant, owner, more, limit, has)
        if refused is not None:
            raise refused
    ledger.take(tenant, more)
    ledger.give_back(tenant, {kind: max(-value, zero(kind)) for kind, value in by.items()})
    lending.store(ledger)
    ResourceRequest.objects.filter(pk=id).update(**wanted)


def never_fits(tenant: Tenant, owner: str = "", borrows: bool = False, **asked) -> None:
    """Raise Refused when waiting is no use: the amounts exceed the owner's limit, or the tenant's capacity, with what
    it may borrow for an object that `borrows`.
    """
    wanted = amounts(**asked)
    for kind, value in wanted.items():
        whole = getattr(tenant, kind)
        if value > whole and borrows:
            whole += lending.most(tenant, kind)
        if value > whole:
            raise Refused(
                "requested %(asked)s, but this tenant has %(whole)s",
                field=kind, asked=with_unit(kind, value), whole=with_unit(kind, whole),
            )  # fmt: skip
    if owner:
        limits.never_fits(tenant.pk, owner, wanted)


@lending.repeated
def set_capacity(*, name: str, by: str, network: str | None = None, **capacity) -> Tenant:
    """Set a tenant's capacity and its policies of network, idle jobs, lending, retention, logs, interactive work,
    rollouts and records of requests.

    Raises Missing, and Refused below what is in use or lent. What is borrowed against a new policy is returned when
    its jobs have stepped back.
    """
    policies = (*IDLE_POLICY, *LENDING, *RETENTION, *LOGS, *INTERACTIVE, *ROLLOUTS, *RECORDS)
    policy = {field: capacity.pop(field) for field in policies if field in capacity}
    ledger = lock_ledger(name=name)
    tenant = ledger.tenant
    for kind, value in capacity.items():
        value = amounts(**{kind: value})[kind]
        if value < (least := ledger.least(tenant.pk, kind)):
            problem = _("must not be less than what is in use (%(in_use)s)")
            if tenant.lent(kind):
                problem = _("must not be less than what is in use or lent (%(in_use)s)")
            raise Refused(problem, field=kind, in_use=with_unit(kind, least))
        ledger.set_capacity(tenant.pk, kind, value)
    lending.store(ledger)
    if capacity:
        policy["source"] = Tenant.Source.SET
    if network is not None:
        policy["network"] = network
    for field, value in policy.items():
        kind, _underscore, what = field.partition("_")
        setattr(tenant, field, amounts(**{kind: value})[kind] if what == "borrow_limit" else value)
    if policy:
        tenant.save(update_fields=list(policy))
    return tenant


def allocated(tenant: Tenant) -> dict:
    """Return what is in use by the requests: live ones minus confirmed releases. Equals the tenant's own sums."""
    counted = ResourceRequest.objects.filter(LIVE | GIVEN_BACK, tenant=tenant).values("request_type").order_by()
    total = {kind: zero(kind) for kind in KINDS}
    for row in counted.annotate(**{f"{kind}_sum": Sum(kind) for kind in KINDS}):
        sign = -1 if row["request_type"] == RequestType.RELEASE else 1
        for kind, amount in kinds_of(row, "_sum").items():
            total[kind] += sign * amount
    return total


def add_up(requests: QuerySet) -> dict:
    """Return the sums of the four amounts of the rows."""
    return kinds_of(requests.aggregate(**{f"{kind}_sum": Sum(kind) for kind in KINDS}), "_sum")


def lock_ledger(**key) -> Ledger:
    """Lock a tenant and those that it borrows from (lending.lock). Raises Missing."""
    ledger = lending.lock(**key)
    if ledger is None:
        raise Missing("tenant")
    return ledger


def _open(id: str, applier: str, *states: State) -> tuple[ResourceRequest | None, Ledger | None]:
    """Lock the tenant and those that it borrows from, then the request, and return it and them; two None unless the
    request is in one of the states.
    """
    row = ResourceRequest.objects.filter(pk=id).first()
    if row is None or _own(row, applier).state not in states:
        return None, None
    ledger = lock_ledger(pk=row.tenant_id)
    row = rows.lock(id)
    return (row, ledger) if row.state in states else (None, None)


def _own(row: ResourceRequest, applier: str) -> ResourceRequest:
    if row.applier != applier:
        raise Refused("this id belongs to %(applier)s", field="applier", applier=row.applier)
    return row


def refusal(
    tenant: Tenant, owner: str, wanted: dict, limit: UserLimit | None, has: dict, lendable: dict | None = None
) -> Refused | None:
    """Return why the tenant cannot give the amounts to the owner, who already has `has`; None if it can.

    `lendable` is what it could borrow for them. It is OverLimit if only the owner's limit is exceeded. Also called for
    tenants and sums of a later time.
    """
    if limit is not None and (over := limits.exceeded(limit, owner, has, wanted)):
        return over
    for kind, value in wanted.items():
        more = (lendable or {}).get(kind, zero(kind))
        if value and value > tenant.left(kind) + more:
            said = {"asked": with_unit(kind, value), "left": with_unit(kind, tenant.left(kind)), "tenant": tenant.name}
            if more:
                problem = _("requested %(asked)s, but tenant %(tenant)s has %(left)s left and can borrow %(more)s")
                return Refused(problem, field=kind, more=with_unit(kind, more), **said)
            if tenant.lent(kind):
                problem = _("requested %(asked)s, but tenant %(tenant)s has %(left)s left; %(lent)s is lent")
                refused = Lent(problem, field=kind, lent=with_unit(kind, tenant.lent(kind)), **said)
                refused.tenant_id = tenant.pk
                return refused
            return Refused("requested %(asked)s, but tenant %(tenant)s has %(left)s left", field=kind, **said)
    return None


def _take(row: ResourceRequest, ledger: Ledger, borrows: bool, closed: Collection[int]) -> None:
    """Add to what the locked tenant has in use. Raises OverLimit or Refused, with what is short and by how much."""
    tenant = ledger.tenant
    limit = limits.limit_of(tenant.pk, row.owner) if row.owner else None
    has = limits.used_by(tenant.pk, row.owner, but=row.pk) if limit is not None else {}
    lendable = ledger.lendable(tenant.pk, closed) if borrows else None
    refused = refusal(tenant, row.owner, row.amounts(), limit, has, lendable)
    if refused is not None:
        raise refused
    ledger.take(tenant.pk, row.amounts(), closed)
    lending.store(ledger)


def _earmark(row: ResourceRequest, tenant: Tenant) -> None:
    """Raise Refused when all releases earmarked in the locked tenant would together exceed what is in use."""
    earmarked = Q(request_type=RequestType.RELEASE, state=State.TRIED) & ~Q(pk=row.pk)
    _must_be_left(row, tenant, HELD | earmarked, _("cannot release %(asked)s: %(left)s is in use"))


def _give_back(row: ResourceRequest, ledger: Ledger, to: int | None = None) -> None:
    """Subtract from what the locked tenant has in use. Raises Refused when a row of REST names more than REST holds."""
    if not row.owner:
        _must_be_left(row, ledger.tenant, HELD, _("cannot release %(asked)s: %(left)s is in use"))
    ledger.give_back(row.tenant_id, row.amounts(), to)
    lending.store(ledger)


def _must_be_left(row: ResourceRequest, tenant: Tenant, spoken_for: Q, problem: str) -> None:
    """Raise Refused unless the row's amounts are in use beyond those of the other rows."""
    others = add_up(ResourceRequest.objects.filter(spoken_for, tenant=tenant))
    for kind, value in row.amounts().items():
        left = max(getattr(tenant, f"{kind}_inuse") - others[kind], zero(kind))
        if value > left:
            raise Refused(problem, field=kind, asked=with_unit(kind, value), left=with_unit(kind, left))
