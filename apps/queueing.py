"""The queue of applications: those whose resources are not free start as soon as they are, the longest wait first.

An application may hold what it has for ever, so, unlike a job, one that does not fit holds back neither others nor
jobs. `admit` is called each round by reconcile, and before jobs are admitted.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction

from jobs.queue.holders import RUN_KINDS, Holder, amounts_text, holders_of
from kernel.locking import lock_row
from kernel.messages import Message, joined
from resources import limits, products
from resources.models import Tenant
from resources.units import zero

from . import lifecycle
from .models import Application, State


def waiting():
    """Return the queued applications in their order."""
    return Application.objects.filter(state=State.CREATING, reserved=False).order_by("queued", "pk")


def admit() -> list[int]:
    """Reserve the resources of queued applications as far as they fit; return their keys."""
    admitted = []
    for pk, tenant, gpu, cpu, ram in waiting().values_list("pk", "tenant", "gpu", "cpu", "ram"):
        if not _may_fit(Tenant.objects.get(pk=tenant), {"gpu": gpu, "cpu": cpu, "ram": ram}):
            continue
        with transaction.atomic():
            app = lock_row(Application, pk=pk)
            if app is None or app.state != State.CREATING or app.reserved:
                continue
            if lifecycle.reserve(app) is None:
                admitted.append(pk)
    return admitted


def _may_fit(tenant: Tenant, needs: dict) -> bool:
    """Return whether a try is worth its locks: the tenant has as much, or would have if it had lent nothing."""
    return all(value <= _number(kind, tenant.left(kind) + tenant.lent(kind)) for kind, value in needs.items())


@dataclass
class Queue:
    """Why a queued application waits, for its page and for REST."""

    position: int
    length: int
    needs: dict
    free: dict
    missing: dict
    reason: str
    by_limit: bool
    holders: list[Holder]

    @property
    def missing_text(self) -> str:
        return amounts_text(self.missing)


def explain(app: Application, *, all_names: bool = False, reader: bool = False) -> Queue | None:
    """Return why the application waits; None if it does not. A `reader` gets neither names nor what is in use."""
    if app.state != State.CREATING or app.reserved:
        return None
    line = list(waiting().filter(tenant=app.tenant_id).values_list("pk", flat=True))
    if app.pk not in line:
        return None
    position, length = line.index(app.pk) + 1, len(line)
    tenant, owner = Tenant.objects.get(pk=app.tenant_id), app.user.username
    needs = {"gpu": app.gpu, "cpu": app.cpu, "ram": app.ram}
    if reader:
        return Queue(position, length, needs, {}, {}, Message("Not enough is free."), False, [])
    limit = limits.limit_of(tenant.pk, owner)
    has = limits.used_by(tenant.pk, owner) if limit is not None else {}
    free = {kind: _number(kind, tenant.left(kind)) for kind in RUN_KINDS}
    own = {kind: _number(kind, max(most - has[kind], zero(kind)))
           for kind in RUN_KINDS if (most := getattr(limit, kind, None)) is not None}  # fmt: skip
    by_limit = any(needs[kind] > left for kind, left in own.items())
    left = {**free, **{kind: min(free[kind], most) for kind, most in own.items()}}
    missing = {kind: round(needs[kind] - left[kind], 3) for kind in RUN_KINDS if needs[kind] > left[kind]}
    of_type = None if missing else products.current().refusal(app.gpu_type, app.gpu)
    return Queue(
        position, length, needs, left, missing,
        Message("Not enough free resources: %(short)s.", short=of_type.problem) if of_type is not None
        else _reason(needs, left, missing, by_limit), by_limit,
        holders_of(tenant.pk, owner, missing, by_limit, {}, all_names),
    )  # fmt: skip


def _number(kind: str, value) -> float | int:
    return float(value) if kind == "cpu" else int(value)


def _reason(needs: dict, left: dict, missing: dict, by_limit: bool) -> Message:
    if not missing:
        return Message("It is about to start.")
    short = joined(
        Message("needs %(needs)s, %(left)s free", needs=amounts_text({kind: needs[kind]}),
                left=amounts_text({kind: left[kind]}, every=True))
        for kind in missing
    )  # fmt: skip
    if by_limit:
        return Message("Exceeds what is left of your limit: %(short)s.", short=short)
    return Message("Not enough free resources: %(short)s.", short=short)
