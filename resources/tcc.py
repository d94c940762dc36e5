"""Try, confirm, cancel: the one door to what a tenant has in use (contract 8). All three are idempotent.

Called by the managers inside the transaction of their own object, and by the REST calls, which are a thin shell.
Locks: the request's row, then the tenant's row, last (mlp.kernel.locking). A try inserts its row first: the primary
key makes two tries of one id agree, and a cancel that came earlier has left its mark there.
"""

from __future__ import annotations

from decimal import ROUND_UP, Decimal

from django.db import connection, transaction
from django.db.models import F, Q, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from mlp.kernel.errors import Refused
from mlp.kernel.locking import Missing, lock_row

from .models import KINDS, RequestType, ResourceRequest, State, Tenant

UNITS = {"gpu": "", "cpu": "", "ram": " Mi", "rom": " bytes"}
MICRO = Decimal("0.000001")


def amounts(*, gpu=0, cpu=0, ram=0, rom=0) -> dict:
    """The four amounts in the units of the books; cpu is rounded up to a millionth of a core."""
    cores = Decimal(str(cpu)).quantize(MICRO, rounding=ROUND_UP)
    return {"gpu": int(gpu), "cpu": cores, "ram": int(ram), "rom": int(rom)}


def try_(
    *, id: str, applier: str, request_type: str, tenant: str = "default", owner: str = "", **asked
) -> ResourceRequest:
    """Reserves (request) or earmarks (release). Returns the row: the earlier one when the id is known.

    Raises Refused: an unknown tenant, another applier's id, or not enough, naming what is short.
    """
    wanted = amounts(**asked)
    with transaction.atomic():
        tenant_id = Tenant.objects.filter(name=tenant).values_list("pk", flat=True).first()
        if tenant_id is None:
            raise Missing("tenant")
        row = ResourceRequest(
            id=id, applier=applier, request_type=request_type, tenant_id=tenant_id, owner=owner, **wanted
        )
        if not _insert(row):
            return _own(ResourceRequest.objects.get(pk=id), applier)
        if request_type == RequestType.REQUEST:
            _take(tenant_id, wanted)
        else:
            _earmark(tenant_id, row, wanted)
    return row


def confirm(*, id: str, applier: str) -> None:
    """Makes a request stay, or gives back what a release earmarked. An unknown or settled id is OK."""
    with transaction.atomic():
        row = lock_row(ResourceRequest, pk=id)
        if row is None or _own(row, applier).state != State.TRIED:
            return
        row.confirm(by=applier)
        row.settled = timezone.now()
        row.save(update_fields=["state", "settled"])
        if row.request_type == RequestType.RELEASE:
            _give_back(row)


def cancel(*, id: str, applier: str) -> None:
    """Gives a tried request back, or forgets a release. An unknown id gets a mark: its late try reserves nothing."""
    now = timezone.now()
    with transaction.atomic():
        mark = ResourceRequest(
            id=id, applier=applier, request_type=RequestType.REQUEST, state=State.CANCELLED, settled=now
        )
        if _insert(mark):
            return
        row = _own(lock_row(ResourceRequest, pk=id), applier)
        if row.state != State.TRIED:
            return
        row.cancel(by=applier)
        row.settled = now
        row.save(update_fields=["state", "settled"])
        if row.request_type == RequestType.REQUEST:
            _give_back(row)


def release(*, id: str, applier: str) -> None:
    """Gives back what the confirmed request `id` holds, by a release of its own (`{id}:release`); idempotent.

    A request that was only tried is cancelled instead. For the managers, inside their object's transaction.
    """
    with transaction.atomic():
        row = lock_row(ResourceRequest, pk=id)
        if row is None or row.state == State.CANCELLED:
            return
        if row.state == State.TRIED:
            return cancel(id=id, applier=applier)
        try_(
            id=f"{id}:release",
            applier=applier,
            request_type=RequestType.RELEASE,
            tenant=row.tenant.name,
            owner=row.owner,
            **row.amounts(),
        )
        confirm(id=f"{id}:release", applier=applier)


def never_fits(tenant: Tenant, **asked) -> None:
    """Raises Refused when the amounts exceed the tenant's whole capacity: waiting would not help."""
    for kind, value in amounts(**asked).items():
        if value > getattr(tenant, kind):
            raise Refused(f"{kind}: {_say(kind, value)} asked, the tenant has {_say(kind, getattr(tenant, kind))}")


def set_capacity(*, name: str, by: str, **capacity) -> Tenant:
    """An operator's word on a tenant's capacity. Raises Refused below what is in use."""
    with transaction.atomic():
        tenant = lock_row(Tenant, name=name)
        if tenant is None:
            raise Missing("tenant")
        for kind, value in capacity.items():
            value = amounts(**{kind: value})[kind]
            if value < getattr(tenant, f"{kind}_inuse"):
                in_use = _say(kind, getattr(tenant, f"{kind}_inuse"))
                raise Refused(f"{kind}: must not be below what is in use ({in_use})")
            setattr(tenant, kind, value)
        tenant.source = Tenant.Source.SET
        tenant.save()
    return tenant


def books(tenant: Tenant) -> dict:
    """What is in use by the rows alone: live requests less confirmed releases. Equals the tenant's own sums."""
    live = Q(request_type=RequestType.REQUEST) & ~Q(state=State.CANCELLED)
    given = Q(request_type=RequestType.RELEASE, state=State.CONFIRMED)
    sums = ResourceRequest.objects.filter(tenant=tenant).aggregate(
        **{f"taken_{kind}": Coalesce(Sum(kind, filter=live), _zero(kind)) for kind in KINDS},
        **{f"given_{kind}": Coalesce(Sum(kind, filter=given), _zero(kind)) for kind in KINDS},
    )
    return {kind: sums[f"taken_{kind}"] - sums[f"given_{kind}"] for kind in KINDS}


def _zero(kind: str):
    return Decimal(0) if kind == "cpu" else 0


def _insert(row: ResourceRequest) -> bool:
    """Whether the row is new. Waits for another transaction that is just inserting the same id.

    Bare SQL, since Django's `bulk_create(ignore_conflicts=True)` does not tell which rows were inserted.
    """
    row.created = timezone.now()
    columns = [field.column for field in ResourceRequest._meta.concrete_fields]
    values = [getattr(row, field.attname) for field in ResourceRequest._meta.concrete_fields]
    marks = ", ".join(["%s"] * len(columns))
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO resource_request ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT (id) DO NOTHING",
            [str(value) if isinstance(value, str) else value for value in values],
        )
        return cursor.rowcount == 1


def _own(row: ResourceRequest, applier: str) -> ResourceRequest:
    if row.applier != applier:
        raise Refused(f"applier: this id belongs to {row.applier}")
    return row


def _take(tenant_id: int, wanted: dict) -> None:
    """Adds to what is in use in one statement that checks and locks at once. Raises Refused naming what is short."""
    fits = {f"{kind}__gte": F(f"{kind}_inuse") + value for kind, value in wanted.items() if value}
    sums = {f"{kind}_inuse": F(f"{kind}_inuse") + value for kind, value in wanted.items()}
    if Tenant.objects.filter(pk=tenant_id, **fits).update(**sums):
        return
    tenant = Tenant.objects.get(pk=tenant_id)
    for kind, value in wanted.items():
        if value > tenant.left(kind):
            left = _say(kind, tenant.left(kind))
            raise Refused(f"{kind}: {_say(kind, value)} asked, {left} left in tenant {tenant.name}")
    raise Refused(f"tenant: {tenant.name} had not enough at that moment, try again")


def _earmark(tenant_id: int, row: ResourceRequest, wanted: dict) -> None:
    tenant = lock_row(Tenant, pk=tenant_id)
    others = ResourceRequest.objects.filter(
        tenant_id=tenant_id, request_type=RequestType.RELEASE, state=State.TRIED
    ).exclude(pk=row.pk)
    sums = others.aggregate(**{f"sum_{kind}": Coalesce(Sum(kind), _zero(kind)) for kind in KINDS})
    for kind, value in wanted.items():
        left = getattr(tenant, f"{kind}_inuse") - sums[f"sum_{kind}"]
        if value > left:
            raise Refused(f"{kind}: release of {_say(kind, value)} asked, only {_say(kind, left)} in use")


def _give_back(row: ResourceRequest) -> None:
    there = {f"{kind}_inuse__gte": value for kind, value in row.amounts().items()}
    sums = {f"{kind}_inuse": F(f"{kind}_inuse") - value for kind, value in row.amounts().items()}
    if not Tenant.objects.filter(pk=row.tenant_id, **there).update(**sums):
        raise Refused(f"id: {row.id} would give back more than is in use")


def _say(kind: str, value) -> str:
    number = f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)
    return number + UNITS[kind]
