"""What this machine, or the cluster, has: CPUs, memory, disk, GPUs. Asked at every start, for the default tenant."""

from __future__ import annotations

import logging
import os
import shutil
from decimal import Decimal
from pathlib import Path

from django.conf import settings
from django.db import transaction

import runners
from runners.gpus import devices

from . import tcc
from .models import Tenant

log = logging.getLogger(__name__)

CGROUP = Path("/sys/fs/cgroup")


def cpus() -> Decimal:
    """CPUs this process may use, less when a cgroup's quota says so."""
    count = Decimal(len(os.sched_getaffinity(0)))
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        if quota != "max":
            count = min(count, Decimal(quota) / Decimal(period))
    except (OSError, ValueError):
        pass  # no cgroup v2, or none with a limit
    return count.quantize(Decimal("0.001"))


def ram_mi() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        if limit != "max":
            total = min(total, int(limit))
    except (OSError, ValueError):
        pass  # as above
    return total >> 20


def gpus() -> int:
    """As many as the runner can hand out: a divided GPU counts as its slices."""
    return len(devices())


def disk_free() -> int:
    return shutil.disk_usage(settings.MLP_ROOT).free


def measured() -> dict:
    """{"cpu", "ram", "gpu"}: the cluster's where runs go to one, else this machine's. Empty while the cluster does not
    answer: the tenant keeps what it had.
    """
    try:
        cluster = runners.get().capacity()
    except runners.RunnerError as error:
        log.warning("the capacity is left as it was: %s", error)
        return {}
    return {"cpu": cpus(), "ram": ram_mi(), "gpu": gpus()} if cluster is None else cluster


def prepare_default_tenant() -> Tenant:
    """Makes the tenant `default` at the first start; later follows the machine, never below what is in use.

    Disk is measured once: later the datasets themselves make it less. A capacity that an operator set is left alone.
    """
    found = measured()
    disk = disk_free()
    with transaction.atomic():
        Tenant.objects.get_or_create(name="default")
        tenant = tcc.lock_tenant(name="default")
        if tenant.source == Tenant.Source.DISCOVERED:
            for kind, value in found.items():
                setattr(tenant, kind, max(value, getattr(tenant, f"{kind}_inuse")))
            tenant.rom = tenant.rom or disk
            tenant.save(update_fields=["cpu", "ram", "gpu", "rom"])
    return tenant
