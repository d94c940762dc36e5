"""Trainings of tenants' own models: who starts one, when its turn comes, and how it goes.

Their requests are rows and no messages, so Opni's services notice nothing but that somebody trains (JobStart, JobEnd).
One model is trained at a time: the lease of the trainer is everybody's, and those that wait for it go by their age,
after the platform's model.

Everybody in a tenant may see its model; its administrators, and those of the platform, train it, cancel that, and
activate versions.
"""

from __future__ import annotations

import time

from django.conf import settings
from django.db.models import QuerySet

from accounts import notices
from accounts.models import Membership, Role, User
from accounts.models import State as AccountState
from aiops import lifecycle, logstore
from aiops.judging import own_models, scope, watching
from aiops.models import ENDED, ModelVersion, State, TrainingRun
from aiops.wire import folders, lease, subjects, watchlist
from kernel import bus
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, locked
from kernel.messages import Message
from kernel.models import history_of
from kernel.outcomes import Outcome
from resources.models import Tenant

from . import decisions, training_data, unjudged, versions
from .erasing import SWITCHED_OFF

OWNER = "training queue"
PAGE = "/aiops/watched"
COUNTED = 10_000  # lines that wait, at most
OTHERS = Message("another log model is being trained")
NOTHING_WATCHED = Message("no workload of the tenant's own model is watched")


def find(user: User, name: str) -> Tenant:
    """Return the tenant of that name with a model of its own that the user may know of. Raises Missing."""
    tenant = own_models.shown_to(user).filter(name=name).first() if "\x00" not in name else None
    if tenant is None:
        raise Missing("log model")
    return tenant


def led(user: User, name: str) -> Tenant:
    """Return the tenant whose model the user may change. Raises Missing, Refused."""
    tenant = find(user, name)
    if not user.administers(tenant.pk):
        raise Refused("only the tenant's administrators can do this", field="tenant")
    return tenant


def workloads_of(tenant: Tenant) -> set[watchlist.Triple]:
    """Return what the tenant's model learns from. Raises Fault."""
    return own_models.those_of(watching.triples(), tenant.pk)


def request(user: User, name: str) -> TrainingRun:
    """Create a queued training of the tenant's model. Raises Missing, Refused, Fault."""
    tenant = led(user, name)
    if not workloads_of(tenant):
        raise Refused(NOTHING_WATCHED, field="tenant")
    return lifecycle.create_own(tenant=tenant, by=user.username)


def cancel(user: User, name: str) -> TrainingRun:
    """Cancel the training of the tenant's model that is queued or runs. Raises Missing, Refused."""
    tenant = led(user, name)
    run = TrainingRun.objects.filter(tenant=tenant, state=State.TRAINING).first()
    if run is None:
        raise WrongState("no training of this model is queued or running")
    reason = Message("cancelled by %(user)s", user=user.username)
    lifecycle.fail(run.pk, reason, user.username, Outcome.CANCELLED)
    return TrainingRun.objects.select_related("tenant").get(pk=run.pk)


def versions_of(user: User, name: str) -> QuerySet:
    """Return the versions of the tenant's model, newest first. Raises Missing."""
    return ModelVersion.objects.select_related("tenant").filter(tenant=find(user, name))


def activate(user: User, name: str, version: str) -> ModelVersion:
    """Make a version of the tenant's model the one that serves. Raises Missing, Refused, Fault."""
    tenant = led(user, name)
    if "\x00" in version or not ModelVersion.objects.filter(tenant=tenant, version=version).exists():
        raise Missing("version")
    try:
        return versions.serve(version, user.username)
    except ValueError as problem:
        raise Refused("this version no longer exists") from problem


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


def notify_failed(pk: int) -> None:
    """Tell the tenant's administrators, once, that a training has failed or was cancelled, and why; not the one who has
    cancelled it.
    """
    with locked(TrainingRun, pk=pk) as run:
        tenant = Tenant.objects.filter(pk=run.tenant_id).first()
        if run.announced:
            return
        run.announced = True
        run.save(update_fields=["announced"])
        if tenant is None:
            return
        last = history_of(run).first()
        leads = Membership.objects.filter(tenant=tenant, role=Role.ADMIN).values("user_id")
        admins = User.objects.filter(pk__in=leads, state=AccountState.ACTIVED)
        reason = Message(
            "the training of the log model of %(tenant)s has ended: %(reason)s", tenant=tenant.name, reason=run.reason
        )
        for user in admins.exclude(username=last.by if last else ""):
            notices.notify(user=user, kind="alert", name="log model", event="alert", reason=reason, link=PAGE)


# --- state ---------------------------------------------------------------------------------------------------------
def states(user: User) -> list[dict]:
    """Return the state of each own model that the user may know of, by the tenant's name. Raises Fault."""
    tenants = list(own_models.shown_to(user))
    if not tenants:
        return []
    watched, known, places = watching.triples(), own_models.owners(), waiting()
    return [_state(user, tenant, own_models.those_of(watched, tenant.pk, known), places) for tenant in tenants]


def state(user: User, name: str) -> dict:
    """Return the state of the tenant's model, as `states`. Raises Missing, too."""
    tenant = find(user, name)
    return _state(user, tenant, workloads_of(tenant), waiting())


def _state(user: User, tenant: Tenant, workloads: set[watchlist.Triple], places: list[int]) -> dict:
    serving = lifecycle.serving(tenant.pk)
    run = TrainingRun.objects.select_related("tenant").filter(tenant_id=tenant.pk).first()
    may_change = user.administers(tenant.pk)
    if run is not None and not may_change:  # a member does not know of all others
        seen = watchlist.triples(run.workloads)
        run.workloads = watchlist.tree(names for names in seen if scope.may_see(user, *names[:2]))
    return {
        "tenant": tenant.name,
        "version": serving.version if serving else "",
        "since": serving.served if serving else None,
        "workloads": len(workloads),
        "unjudged": 0 if serving else _unjudged(workloads),
        "status": _status(run, serving),
        "place": places.index(run.pk) + 1 if run is not None and run.pk in places else None,
        "may_change": may_change,
        "run": run,
    }


def _unjudged(workloads: set[watchlist.Triple]) -> int:
    """Return how many lines wait for the first training, at most COUNTED."""
    if not workloads:
        return 0
    return logstore.get().count_up_to(unjudged.query(workloads, int(time.time() * 1000)), COUNTED)[0]


def _status(run: TrainingRun | None, serving: ModelVersion | None) -> str:
    if run is not None and run.state not in ENDED:
        return "queued" if run.queued else subjects.TRAINING
    if run is not None and run.state == State.ERROR:
        return subjects.FAILED
    return subjects.COMPLETED if serving else subjects.NO_MODEL
