"""Trainings of tenants' own models: who starts one, when its turn comes, and what is left of a model that is no more.

Their requests are rows and no messages, so Opni's services notice nothing but that somebody trains (JobStart, JobEnd).
One model is trained at a time: the lease of the trainer is everybody's, and those that wait for it go by their age,
after the platform's model.
"""

from __future__ import annotations

import time

from django.conf import settings
from django.db.models import QuerySet

from accounts.models import User
from aiops import lifecycle
from aiops.judging import own_models, watching
from aiops.models import ENDED, ModelVersion, State, TrainingRun
from aiops.wire import folders, lease, subjects, watchlist
from kernel import bus
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message
from kernel.outcomes import Outcome
from resources.models import Tenant

from . import decisions, training_data

OWNER = "training queue"
OTHERS = Message("another log model is being trained")
NOTHING_WATCHED = Message("no workload of the tenant's own model is watched")
SWITCHED_OFF = Message("the tenant has no log model of its own any more")


def find(user: User, name: str) -> Tenant:
    """Return the tenant of that name with a model of its own whose trainings the user may start. Raises Missing."""
    tenant = own_models.led_by(user).filter(name=name).first() if "\x00" not in name else None
    if tenant is None:
        raise Missing("log model")
    return tenant


def workloads_of(tenant: Tenant) -> set[watchlist.Triple]:
    """Return what the tenant's model learns from. Raises Fault."""
    return own_models.those_of(watching.triples(), tenant.pk)


def request(user: User, name: str) -> TrainingRun:
    """Create a queued training of the tenant's model. Raises Missing, Refused, Fault."""
    tenant = find(user, name)
    if not workloads_of(tenant):
        raise Refused(NOTHING_WATCHED, field="tenant")
    return lifecycle.create_own(tenant=tenant, by=user.username)


def take_turn(run: TrainingRun) -> bool:
    """Let the training begin when nobody else trains; return whether it may. Called again until it may."""
    uuid = str(run.uuid)
    mine = _holds(uuid)  # killed after it took the lease
    if not mine and (_first() != run.pk or decisions.is_pending() or not lease.acquire(uuid, OWNER)):
        lifecycle.note_wait(run.pk, OTHERS)
        return False
    tenant = Tenant.objects.filter(pk=run.tenant_id, log_model=True).first()
    wanted = watchlist.tree(workloads_of(tenant)) if tenant is not None else {}
    if not wanted:
        lifecycle.fail(run.pk, NOTHING_WATCHED if tenant is not None else SWITCHED_OFF, OWNER)
        return False
    order = training_data.order(
        uuid, wanted, window_s=settings.AIOPS_TRAINING_WINDOW_S, now_s=time.time(), count=0,
        folder=folders.folder(), model=tenant.pk,
    )  # fmt: skip
    bus.send([(subjects.GPU_JOB_STATUS, subjects.JOB_START)])
    lifecycle.leave_queue(run.pk, training_data.internal(order), wanted)
    return True


def _holds(uuid: str) -> bool:
    current = lease.current()
    return lease.is_live(current) and current.get("uuid") == uuid


def _first() -> int | None:
    return _waiting().values_list("pk", flat=True).first()


def _waiting() -> QuerySet:
    return TrainingRun.objects.filter(state=State.TRAINING, queued=True).order_by("pk")


def waiting() -> list[int]:
    """Return the trainings that wait for their turn, the first one first."""
    return list(_waiting().values_list("pk", flat=True))


def clean() -> None:
    """Cancel the trainings, and remove the versions, of tenants that have no model of their own any more. Called by
    reconcile; the versions' files are removed by `versions.prune`.
    """
    there = own_models.all_own()
    gone = TrainingRun.objects.filter(state=State.TRAINING, tenant__isnull=False).exclude(tenant_id__in=there)
    for pk in gone.values_list("pk", flat=True):
        lifecycle.fail(pk, SWITCHED_OFF, OWNER, Outcome.CANCELLED)
    ModelVersion.objects.filter(tenant__isnull=False).exclude(tenant_id__in=there).delete()
    for number, path in folders.drain_files().items():
        if number not in there:
            path.unlink(missing_ok=True)


# --- state ---------------------------------------------------------------------------------------------------------
def states(user: User) -> list[dict]:
    """Return the state of each own model whose trainings the user may start, by the tenant's name. Raises Fault."""
    tenants = list(own_models.led_by(user))
    if not tenants:
        return []
    watched, known, places = watching.triples(), own_models.owners(), waiting()
    return [_state(tenant, own_models.those_of(watched, tenant.pk, known), places) for tenant in tenants]


def state(user: User, name: str) -> dict:
    """Return the state of the tenant's model, as `states`. Raises Missing, too."""
    tenant = find(user, name)
    return _state(tenant, workloads_of(tenant), waiting())


def _state(tenant: Tenant, workloads: set[watchlist.Triple], places: list[int]) -> dict:
    serving = lifecycle.serving(tenant.pk)
    run = TrainingRun.objects.select_related("tenant").filter(tenant_id=tenant.pk).first()
    return {
        "tenant": tenant.name,
        "version": serving.version if serving else "",
        "since": serving.served if serving else None,
        "workloads": len(workloads),
        "status": _status(run, serving),
        "place": places.index(run.pk) + 1 if run is not None and run.pk in places else None,
        "run": run,
    }


def _status(run: TrainingRun | None, serving: ModelVersion | None) -> str:
    if run is not None and run.state not in ENDED:
        return "queued" if run.queued else subjects.TRAINING
    if run is not None and run.state == State.ERROR:
        return subjects.FAILED
    return subjects.COMPLETED if serving else subjects.NO_MODEL
