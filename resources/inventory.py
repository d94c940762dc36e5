"""The CPUs, memory, disk and GPUs of this machine or the cluster, measured for the default tenant.

That is done at every start, and every minute where runs are on a cluster.
"""

from __future__ import annotations

import logging
import shutil

from django.conf import settings

import runners
from kernel.machine import cpus, ram_mib
from runners.gpus import devices

from . import lending, products, tcc, tenants
from .models import Tenant
from .units import amounts, zero

log = logging.getLogger(__name__)


def gpus() -> int:
    """Return how many GPUs the runner can assign; each slice of a partitioned GPU counts."""
    return len(devices())


def disk_free() -> int:
    """Return the free bytes of the disk with the storage root."""
    return shutil.disk_usage(settings.MLP_ROOT).free


def measured() -> dict:
    """Return {"cpu", "ram", "gpu"} of the cluster where jobs run on one, else of this machine.

    Empty while the cluster does not answer: the tenant then keeps its capacity.
    """
    try:
        cluster = runners.get().capacity()
    except runners.RunnerError as error:
        log.warning("could not read the cluster's capacity, keeping the last one: %s", error)
        return {}
    return {"cpu": cpus(), "ram": ram_mib(), "gpu": gpus()} if cluster is None else cluster


def prepare_default_tenant() -> Tenant:
    """Create the tenant `default` at the first start; later update it to the machine, never below what is in use.

    Disk is measured once, because datasets use it up later. A capacity that an operator has set stays.
    """
    capacity = measured()
    disk = disk_free()
    Tenant.objects.get_or_create(name="default")
    follow_products()
    return _follow(capacity, disk)


def follow_cluster() -> None:
    """Update the default tenant to what the cluster has now, where runs are on one: nodes come and go."""
    try:
        capacity = runners.get().capacity()
    except runners.RunnerError as error:
        log.warning("could not read the cluster's capacity, keeping the last one: %s", error)
        return
    if capacity is not None:
        _follow(capacity, 0)
        follow_products()


def follow_products() -> None:
    """Record how many GPUs of each product there are now."""
    try:
        counts = runners.get().gpu_products()
    except runners.RunnerError as error:
        log.warning("could not read the products of the GPUs, keeping the last ones: %s", error)
        return
    products.follow(counts)


@lending.repeated
def _follow(capacity: dict, disk: int) -> Tenant:
    """Set the capacity of the default tenant unless an operator has: what the other tenants leave of the machine."""
    tenants.lock_all()
    ledger = tcc.lock_ledger(name="default")
    tenant = ledger.tenant
    if tenant.source == Tenant.Source.DISCOVERED:
        others = tenants.others_have()
        for kind, value in amounts(**{**capacity, "rom": tenant.rom or disk}).items():
            if kind == "rom" or kind in capacity:
                left = value if kind == "rom" else max(value - others[kind], zero(kind))
                ledger.set_capacity(tenant.pk, kind, max(left, ledger.least(tenant.pk, kind)))
        lending.store(ledger)
    return tenant
