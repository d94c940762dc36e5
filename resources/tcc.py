"""Try, confirm, cancel: the one door to what a tenant has in use (contract 8). All are idempotent. docs/resources.md
argues why it is safe.

Called by the managers inside the transaction of their own object, and by the REST calls, which are a thin shell.
Locks: the object's row (the caller has it), the tenant's row, then request rows. So whoever holds a request's row and
waits for a tenant does not exist, and nobody waits in a circle. The one call that needs no tenant, the confirm of a
request, is a single statement. The primary key makes two tries of one id agree, and a cancel that came before its try
has left its mark there.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import F, Q, QuerySet, Sum
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from kernel.errors import Refused
from kernel.locking import Missing

from . import limits, rows
from .models import GIVEN_BACK, HELD, KINDS, LIVE, RequestType, ResourceRequest, State, Tenant, is_platform_id
from .units import amounts, kinds_of, say, zero


def try_(
    *, id: str, applier: str, request_type: str, tenant: str = "default", owner: str = "", **asked
) -> ResourceRequest:
    """Reserves (request) or earmarks (release). Returns the row: the earlier one when the id is known.

    `owner` is the user whose object it is for; every caller inside the platform names one and takes a platform id.
    Raises Refused: an unknown tenant, another applier's id, or not enough, naming what is short; OverLimit when it is
    only the owner's limit.
    """
    if bool(owner) != is_platform_id(id):
        raise ValueError(f"{id}: platform ids, and only they, have an owner")
    wanted = amounts(**asked)
    row = ResourceRequest(id=id, applier=applier, request_type=request_type, owner=owner, **wanted)
    if request_type == RequestType.REQUEST and rows.try_at_once(row, tenant):
        return row
    with transaction.atomic():
        found = Tenant.objects.select_for_update(no_key=True).filter(name=tenant).first()
        known = ResourceRequest.objects.filter(pk=id).first()
        if known is None:
            if found is None:
                raise Missing("tenant")
            row.tenant = found
            if rows.insert(row):
                (_earmark if request_type == RequestType.RELEASE else _take)(row, found)
                return row
            known = ResourceRequest.objects.get(pk=id)  # just tried with another tenant, or just cancelled
        return _own(known, applier)


def confirm(*, id: str, applier: str) -> None:
    """Makes a request stay, or gives back what a release earmarked. An unknown or settled id is OK.

    Raises Refused for a release when less than it names is left in use, since a try that it counted on was cancelled.
    """
    if rows.confirm(id, applier):
        return
    with transaction.atomic():
        row, tenant = _open(id, applier, State.TRIED)
        if row is not None:
            row.confirm(by=applier)
            rows.save(row, State.TRIED)
            if row.request_type == RequestType.RELEASE:
                _give_back(row, tenant)


def cancel(*, id: str, applier: str) -> None:
    """Gives a tried request back, or forgets a release. An unknown id gets a mark: its late try reserves nothing.

    Raises Refused for a request when less than it names is left in use, since a release has given it back already.
    """
    with transaction.atomic():
        if not ResourceRequest.objects.filter(pk=id).exists():
            nothing = {"request_type": RequestType.REQUEST, "state": State.CANCELLED, "settled": timezone.now()}
            if rows.insert(ResourceRequest(id=id, applier=applier, **nothing)):
                return
        row, tenant = _open(id, applier, State.TRIED)
        if row is not None:
            row.cancel(by=applier)
            rows.save(row, State.TRIED)
            if row.request_type == RequestType.REQUEST:
                _give_back(row, tenant)


def release(*, id: str, applier: str) -> None:
    """Gives back what the request of a platform's object holds, tried or confirmed; idempotent.

    For the managers, inside their object's transaction: the object is at its end, so nothing is earmarked first.
    """
    with transaction.atomic():
        row, tenant = _open(id, applier, State.TRIED, State.CONFIRMED)
        if row is None or row.request_type != RequestType.REQUEST:
            return
        before = row.state
        if before == State.TRIED:
            row.cancel(by=applier)
        else:
            row.release(by=applier)
        rows.save(row, before)
        _give_back(row, tenant)


def never_fits(tenant: Tenant, owner: str = "", **asked) -> None:
    """Raises Refused when the amounts exceed the tenant's whole capacity or the owner's limit: waiting is no use."""
    wanted = amounts(**asked)
    for kind, value in wanted.items():
        if value > getattr(tenant, kind):
            raise Refused(
                "requested %(asked)s, but this tenant has %(whole)s",
                field=kind, asked=say(kind, value), whole=say(kind, getattr(tenant, kind)),
            )  # fmt: skip
    if owner:
        limits.never_fits(tenant.pk, owner, wanted)


def set_capacity(*, name: str, by: str, **capacity) -> Tenant:
    """An operator's word on a tenant's capacity. Raises Refused below what is in use."""
    with transaction.atomic():
        tenant = lock_tenant(name=name)
        for kind, value in capacity.items():
            value = amounts(**{kind: value})[kind]
            if value < getattr(tenant, f"{kind}_inuse"):
                in_use = say(kind, getattr(tenant, f"{kind}_inuse"))
                raise Refused("must not be less than what is in use (%(in_use)s)", field=kind, in_use=in_use)
            setattr(tenant, kind, value)
        if capacity:
            tenant.source = Tenant.Source.SET
            tenant.save(update_fields=[*capacity, "source"])
    return tenant


def books(tenant: Tenant) -> dict:
    """What is in use by the rows alone: live requests less confirmed releases. Equals the tenant's own sums."""
    sums = ResourceRequest.objects.filter(tenant=tenant).aggregate(
        **{f"{kind}_taken": Sum(kind, filter=LIVE) for kind in KINDS},
        **{f"{kind}_given": Sum(kind, filter=GIVEN_BACK) for kind in KINDS},
    )
    taken, given = kinds_of(sums, "_taken"), kinds_of(sums, "_given")
    return {kind: taken[kind] - given[kind] for kind in KINDS}


def add_up(requests: QuerySet) -> dict:
    """The four amounts of the rows added up."""
    return kinds_of(requests.aggregate(**{f"{kind}_sum": Sum(kind) for kind in KINDS}), "_sum")


def lock_tenant(**key) -> Tenant:
    """The tenant's row, locked. Raises Missing. NO KEY: whoever only refers to the tenant need not wait for us."""
    tenant = Tenant.objects.select_for_update(no_key=True).filter(**key).first()
    if tenant is None:
        raise Missing("tenant")
    return tenant


def _open(id: str, applier: str, *states: State) -> tuple[ResourceRequest | None, Tenant | None]:
    """The request while it is in one of those states, locked, and its tenant, locked before it; else two None."""
    row = ResourceRequest.objects.filter(pk=id).first()
    if row is None or _own(row, applier).state not in states:
        return None, None
    tenant = lock_tenant(pk=row.tenant_id)
    row = rows.lock(id)
    return (row, tenant) if row.state in states else (None, None)


def _own(row: ResourceRequest, applier: str) -> ResourceRequest:
    if row.applier != applier:
        raise Refused("this id belongs to %(applier)s", field="applier", applier=row.applier)
    return row


def _take(row: ResourceRequest, tenant: Tenant) -> None:
    """Adds to what is in use of the locked tenant. Raises OverLimit or Refused, naming what is short and how much."""
    limit = limits.limit_of(tenant.pk, row.owner) if row.owner else None
    if limit is not None:
        limits.check(row, limit)
    wanted = {kind: value for kind, value in row.amounts().items() if value}
    for kind, value in wanted.items():
        if value > tenant.left(kind):
            left = say(kind, tenant.left(kind))
            raise Refused(
                "requested %(asked)s, but tenant %(tenant)s has %(left)s left",
                field=kind, asked=say(kind, value), left=left, tenant=tenant.name,
            )  # fmt: skip
    _change(tenant, wanted)


def _earmark(row: ResourceRequest, tenant: Tenant) -> None:
    """Raises Refused when all releases earmarked in the locked tenant would together exceed what is in use."""
    earmarked = Q(request_type=RequestType.RELEASE, state=State.TRIED) & ~Q(pk=row.pk)
    _must_be_left(row, tenant, HELD | earmarked, _("cannot release %(asked)s: %(left)s is in use"))


def _give_back(row: ResourceRequest, tenant: Tenant) -> None:
    """Takes from what is in use of the locked tenant. Raises Refused when a row of REST names more than REST holds."""
    if not row.owner:
        _must_be_left(row, tenant, HELD, _("cannot give back %(asked)s: %(left)s is in use"))
    _change(tenant, {kind: -value for kind, value in row.amounts().items() if value})


def _change(tenant: Tenant, by: dict) -> None:
    """Adds to what is in use. The database's own constraints stand behind what was checked before."""
    if by:
        Tenant.objects.filter(pk=tenant.pk).update(**{f"{kind}_inuse": F(f"{kind}_inuse") + by[kind] for kind in by})


def _must_be_left(row: ResourceRequest, tenant: Tenant, spoken_for: Q, problem: str) -> None:
    """Raises Refused unless the row's amounts are in use beyond what those other rows stand for."""
    others = add_up(ResourceRequest.objects.filter(spoken_for, tenant=tenant))
    for kind, value in row.amounts().items():
        left = max(getattr(tenant, f"{kind}_inuse") - others[kind], zero(kind))
        if value > left:
            raise Refused(problem, field=kind, asked=say(kind, value), left=say(kind, left))
