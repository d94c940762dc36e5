"""Creates, changes and deletes tenants: an operator's work. Called by api and admin.

The capacity of a new tenant comes out of that of `default`, as long as that one is discovered, and returns to it: so
all tenants together have what the machine or the cluster has. Once an operator has set the capacity of `default`, each
capacity is what operators say; `manage.py doctor` warns when they add up to more than the machine has.
"""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.db.models import Model, ProtectedError, Sum

from kernel import names
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message, word
from kernel.models import record_change

from . import lending, tcc
from .models import KINDS, LIVE, ResourceRequest, Tenant
from .units import amounts, kinds_of, with_unit, zero

DEFAULT = "default"  # has every user who is in no other


def create(*, name: str, by: str, **capacity) -> Tenant:
    """Create a tenant with that capacity, 0 of each kind that is not named. Raises Refused."""
    names.name(name)
    try:
        with transaction.atomic():
            tenant = Tenant.objects.create(name=name, source=Tenant.Source.SET)
            if capacity:
                change(name=name, by=by, **capacity)
            record_change(tenant, transition="create", source="", target="created", by=by)
    except IntegrityError:
        raise Refused("there is already a tenant named %(name)s", field="name", name=name)
    return Tenant.objects.get(pk=tenant.pk)


@lending.repeated
def change(*, name: str, by: str, **values) -> Tenant:
    """Set capacity and policies of a tenant (`tcc.set_capacity`), and give or take the difference. Raises Refused."""
    capacity = {kind: amounts(**{kind: values[kind]})[kind] for kind in KINDS if kind in values}
    if capacity and name != DEFAULT:
        tenants = {tenant.name: tenant for tenant in lock_all()}
        if name not in tenants:
            raise Missing("tenant")
        _take_from_default({kind: value - getattr(tenants[name], kind) for kind, value in capacity.items()})
    return tcc.set_capacity(name=name, by=by, **values)


@lending.repeated
def delete(*, name: str, by: str) -> Tenant:
    """Delete a tenant in which nothing is left; its capacity returns to `default`. Raises Missing, and Refused."""
    if name == DEFAULT:
        raise Refused("the tenant default cannot be deleted", field="tenant")
    tenant = next((tenant for tenant in lock_all() if tenant.name == name), None)
    if tenant is None:
        raise Missing("tenant")
    require_empty(tenant)
    tcc.set_capacity(name=name, by=by, lends=False)
    _take_from_default({kind: -getattr(tenant, kind) for kind in KINDS})
    key = tenant.pk
    try:
        tenant.requests.all().delete()
        tenant.delete()
    except ProtectedError as problem:
        raise Refused(_in_use(next(iter(problem.protected_objects))), field="tenant")
    tenant.pk = key
    record_change(tenant, transition="delete", source="created", target="deleted", by=by)
    return tenant


def lock_all() -> list[Tenant]:
    """Lock all tenants for the rest of the transaction, in the order of their keys: before anything else is locked."""
    return list(Tenant.objects.select_for_update(no_key=True).order_by("pk"))


def others_have() -> dict:
    """Return the sums of the capacities of all tenants but `default`."""
    sums = Tenant.objects.exclude(name=DEFAULT).aggregate(**{f"{kind}_sum": Sum(kind) for kind in KINDS})
    return kinds_of(sums, "_sum")


def _take_from_default(wanted: dict) -> None:
    """Subtract the amounts from the capacity of `default`, if it is discovered. All tenants are locked."""
    ledger = tcc.lock_ledger(name=DEFAULT)
    default = ledger.tenant
    if default.source != Tenant.Source.DISCOVERED:
        return
    for kind, value in wanted.items():
        left = getattr(default, kind) - ledger.least(default.pk, kind)
        if value > max(left, zero(kind)):
            raise Refused(
                "requested %(asked)s more, but the tenant default has %(left)s that it does not use",
                field=kind, asked=with_unit(kind, value), left=with_unit(kind, max(left, zero(kind))),
            )  # fmt: skip
        ledger.set_capacity(default.pk, kind, getattr(default, kind) - value)
    lending.store(ledger)


def require_empty(tenant: Tenant) -> None:
    """Raise Refused while something of the tenant is in use, or somebody has no other one."""
    lent = any(tenant.lent(kind) for kind in lending.LENDABLE)
    if lent or ResourceRequest.objects.filter(LIVE, tenant=tenant).exists():
        raise Refused("something in this tenant still holds resources; end and delete it first", field="tenant")
    for relation in tenant._meta.related_objects:
        if relation.on_delete is not None and relation.on_delete.__name__ == "PROTECT" and relation.name != "requests":
            row = relation.related_model._base_manager.filter(**{relation.field.name: tenant}).first()
            if row is not None:
                raise Refused(_in_use(row), field="tenant")


def _in_use(row: Model) -> Message:
    return Message("this tenant still has %(kind)s %(name)s", kind=word(row._meta.verbose_name), name=str(row)[:200])
