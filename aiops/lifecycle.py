"""Every change of a training and of the serving version. Called by services, decisions, training, pages.

A training's resources are those of the default tenant, as a job's are: reserved when its run is ordered, which waits
until they are free, and released when the run is cleaned up. A GPU is used where one is free, and not waited for.
Order of locks: the training's row, then the tenant's.

A training, and a version, is of the platform's model or of a tenant's own (`tenant`), which uses the same resources.
"""

from __future__ import annotations

import logging
import uuid as uuids
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

import runners
from kernel import after_commit
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, locked
from kernel.messages import Message
from kernel.models import record_change, record_created
from kernel.outcomes import Outcome
from resources import lending, tcc
from resources.models import ResourceRequest, Tenant

from .models import ModelVersion, State, TrainingRun
from .wire.subjects import FETCHING

log = logging.getLogger(__name__)

APPLIER = "jm"
OWNER = "platform"
LEAST_CPU = Decimal("0.5")
LEASE_S = 300  # without progress of the trainer
QUEUE = "gpu"
CURVE = 500  # points kept of the loss


def request_id(uuid) -> str:
    return f"aiops:{uuid}"


def uuid_of(payload: dict) -> str:
    """Return the request's uuid; without a proper one, a uuid that is always the same for the same payload."""
    asked = payload.get("parameters")
    given = asked.get("uuid") if isinstance(asked, dict) else None
    try:
        return str(uuids.UUID(str(given)))
    except ValueError:
        return str(uuids.uuid5(uuids.NAMESPACE_OID, repr(given or sorted(payload.items()))))


def find(uuid: str) -> TrainingRun | None:
    try:
        return TrainingRun.objects.filter(uuid=uuids.UUID(str(uuid))).first()
    except ValueError:
        return None


def create_run(*, order: dict, by: str) -> tuple[TrainingRun, bool]:
    """Return the training for an order (`gpu_service_training_internal`), and whether it is new. Idempotent."""
    payload = order["payload"]
    uuid = uuid_of(payload)
    workloads = (payload.get("parameters") or {}).get("workloads") or {}
    try:
        with transaction.atomic():
            run = TrainingRun.objects.create(
                uuid=uuid, workloads=workloads, payload=order, by=by, stage=FETCHING,
                heartbeat=timezone.now(), lease_until=_lease(),
            )  # fmt: skip
            record_created(run, by=by)
            after_commit.enqueue("aiops.train", run.pk, queue=QUEUE)
            after_commit.wake("aiops", 0)
    except IntegrityError:
        return TrainingRun.objects.get(uuid=uuid), False
    return run, True


def create_own(*, tenant: Tenant, by: str) -> TrainingRun:
    """Create a queued training of the tenant's own model. Raises Refused while there is one already."""
    try:
        with transaction.atomic():
            run = TrainingRun.objects.create(
                tenant=tenant, queued=True, by=by, stage=FETCHING, heartbeat=timezone.now(), lease_until=_lease()
            )
            record_created(run, by=by, reason=_whose(tenant))
            after_commit.enqueue("aiops.train", run.pk, queue=QUEUE)
            after_commit.wake("aiops", 0)
    except IntegrityError:
        raise Refused("a training of this model is queued or running already", field="tenant") from None
    return run


def leave_queue(pk: int, order: dict, workloads: dict) -> None:
    """Let a training of a tenant's model begin, with what it learns from."""
    with suppress(Missing), locked(TrainingRun, pk=pk) as run:
        if run.queued and not run.has_ended:
            run.queued, run.reason, run.payload, run.workloads = False, "", order, workloads
            run.lease_until = _lease()
            run.save(update_fields=["queued", "reason", "payload", "workloads", "lease_until"])


def order_run(pk: int, attempt: int) -> TrainingRun | None:
    """Name the next run of a training and reserve its resources. Return None when it must not start, or not yet."""
    most = _most()
    try:
        with locked(TrainingRun, pk=pk) as run:
            if run.has_ended or run.attempt >= attempt:
                return run if not run.has_ended and run.attempt == attempt and not run.run_started else None
            if not run.reserved and (refused := _reserve(run, most)) is not None:
                _wait(run, Message("waiting for resources: %(problem)s", problem=refused.msg))
                return None
            run.attempt = attempt
            run.run_name, run.run_started = f"aiops-{run.pk}-{attempt}", False
            run.save(update_fields=["attempt", "run_name", "run_started"])
            return run
    except Missing:
        return None


def admit() -> None:
    """Reserve the resources of trainings that wait for them, before the jobs that wait (resources.admission_hooks)."""
    waiting = TrainingRun.objects.filter(state=State.TRAINING, queued=False, attempt=0, reserved=False)
    for pk in waiting.values_list("pk", flat=True):
        most = _most()
        with suppress(Missing), locked(TrainingRun, pk=pk) as run:
            if not (run.has_ended or run.attempt or run.reserved) and _reserve(run, most) is None:
                after_commit.enqueue("aiops.train", pk, queue=QUEUE)


def _reserve(run: TrainingRun, most: dict[int, dict | None]) -> Refused | None:
    """Reserve what the training may use, with a GPU if one is free; return the refusal when the rest is not."""
    whole = needs()
    refused = None
    for gpu in (1, 0):
        node = most[gpu]
        if gpu and node is not None and node["cpu"] < LEAST_CPU:
            continue
        wanted = {kind: min(amount, node[kind] or amount) if node else amount for kind, amount in whole.items()}
        try:
            with transaction.atomic():
                tcc.try_(
                    id=request_id(run.uuid), applier=APPLIER, request_type="request", owner=OWNER, gpu=gpu, **wanted
                )
        except Refused as problem:
            refused = problem
            lending.recall(problem)
            continue
        run.reserved, run.gpu = True, gpu
        run.save(update_fields=["reserved", "gpu"])
        return None
    return refused


def needs() -> dict:
    """Return {"cpu", "ram"} of a training: the settings', or all of a default tenant that has less.

    Where jobs and applications hold so many CPUs that the rest is less, but half a core or more, it is that rest:
    applications run for ever, and a slow training is worth more than none.
    """
    wanted = {"cpu": Decimal(settings.AIOPS_TRAINING_CPU), "ram": settings.AIOPS_TRAINING_RAM_MIB}
    tenant = Tenant.objects.filter(name="default").first()
    if tenant is None:
        return wanted
    whole = {kind: getattr(tenant, kind) or amount for kind, amount in wanted.items()}
    rest = tenant.left("cpu") + tenant.lent("cpu")  # what is lent is recalled
    if rest >= LEAST_CPU:
        whole["cpu"] = min(whole["cpu"], rest)
    return {kind: min(amount, whole[kind]) for kind, amount in wanted.items()}


def _most() -> dict[int, dict | None]:
    """Return what a single node of a cluster has for a training, which may be less than the tenant has, with a GPU and
    without; None elsewhere, and where it cannot be determined now. Asks the cluster: call it without a lock.
    """
    try:
        return {gpu: runners.get().largest("training", gpu) for gpu in (1, 0)}
    except runners.RunnerError as problem:
        log.warning("how large a training may be cannot be determined now: %s", problem)
        return {1: None, 0: None}


def held(run: TrainingRun) -> dict:
    """Return {"cpu", "ram"} that are reserved for the training."""
    row = ResourceRequest.objects.filter(pk=request_id(run.uuid)).first()
    return {kind: getattr(row, kind, 0) or amount for kind, amount in needs().items()}


def note_wait(pk: int, reason: str) -> None:
    """Record what a training waits for that would go on at once: its time does not run out meanwhile."""
    with suppress(Missing), locked(TrainingRun, pk=pk) as run:
        if not run.has_ended:
            _wait(run, reason)


def _wait(run: TrainingRun, reason: str) -> None:
    changed = run.reason != reason
    run.reason, run.lease_until = reason, _lease()
    run.save(update_fields=["reason", "lease_until"])
    if changed:
        after_commit.wake("aiops", 0)


def note_start(pk: int, run_name: str, lines: int) -> None:
    with locked(TrainingRun, pk=pk) as run:
        if run.run_name != run_name or run.has_ended:
            return
        run.run_started, run.lines, run.reason = True, lines, ""
        run.owner, run.heartbeat, run.lease_until = run_name, timezone.now(), _lease()
        run.save()
        if run.reserved:
            tcc.confirm(id=request_id(run.uuid), applier=APPLIER)
        after_commit.wake("aiops", 0)


def note_trouble(pk: int, reason: str) -> None:
    """Record why the training has not started yet. Does not renew its lease."""
    with locked(TrainingRun, pk=pk) as run:
        if not run.has_ended and run.reason != reason:
            run.reason = reason
            run.save(update_fields=["reason"])


def order_again(pk: int, after_s: float) -> bool:
    """Return whether to hand a training that has not started to a worker again: once in that time at most."""
    now = timezone.now()
    waiting = TrainingRun.objects.filter(pk=pk, state=State.TRAINING, run_started=False)
    return bool(waiting.filter(heartbeat__lt=now - timedelta(seconds=after_s)).update(heartbeat=now))


def beat(pk: int, **fields) -> None:
    """Record progress (stage, percent, elapsed, eta, epoch, epochs, loss) and renew the lease. Progress never
    decreases.
    """
    with locked(TrainingRun, pk=pk) as run:
        if run.has_ended:
            return
        for name, value in fields.items():
            setattr(run, name, max(run.percent, value) if name == "percent" else value)
        if fields.get("loss") is not None:
            run.losses = [*run.losses, [run.elapsed, round(fields["loss"], 5)]][-CURVE:]
        run.heartbeat, run.lease_until = timezone.now(), _lease()
        run.save()
        after_commit.wake("aiops", 0)


def complete(pk: int, *, version: str, manifest: dict, by: str) -> bool:
    """Move training > completed, with the version that now serves. Return False when it has ended
    before or is deleted.
    """
    try:
        with locked(TrainingRun, pk=pk) as run:
            run.complete(by=by)
            _end(run)
            _serve(version, manifest, run, run.tenant_id)
    except (Missing, WrongState):
        return False
    return True


def fail(pk: int, reason: str, by: str, outcome: str = "") -> None:
    """Move training > error. One that has ended is left as it is."""
    with suppress(Missing, WrongState), locked(TrainingRun, pk=pk) as run:
        run.fail(by=by, reason=reason, outcome=outcome)
        _end(run)


def cancel_running(reason: str, by: str) -> None:
    """Cancel what trains the platform's model."""
    for pk in TrainingRun.objects.filter(state=State.TRAINING, tenant=None).values_list("pk", flat=True):
        fail(pk, reason, by, Outcome.CANCELLED)


def note_sent(pk: int, **flags) -> None:
    """Record which messages about the end were sent (job_end_sent, announced)."""
    TrainingRun.objects.filter(pk=pk).update(**flags)


def give_back(run: TrainingRun) -> None:
    """Release the resources of a locked training whose run is gone."""
    run.run_name, run.run_started = "", False
    if run.reserved:
        run.reserved = False
        tcc.release(id=request_id(run.uuid), applier=APPLIER)
    run.save(update_fields=["run_name", "run_started", "reserved"])


# --- versions ------------------------------------------------------------------------------------------------------
def serving(tenant_id: int | None = None) -> ModelVersion | None:
    """Return the version that serves, of the platform's model or of a tenant's."""
    return ModelVersion.objects.filter(serving=True, tenant_id=tenant_id).first()


def serve_version(version: str, by: str) -> ModelVersion:
    """Make another version the serving one (an older or a newer one). Raises Missing."""
    with transaction.atomic():
        row = ModelVersion.objects.filter(version=version).first()
        if row is None:
            raise Missing("version")
        served = _serve(version, row.manifest, None, row.tenant_id)
        if not row.serving:
            whose = _whose(Tenant.objects.filter(pk=row.tenant_id).first())
            record_change(served, transition="serve", source="stored", target="active", by=by, reason=whose)
        return served


def _whose(tenant: Tenant | None) -> Message:
    """Return whose model it is, for the audit log."""
    return Message("log model of the tenant %(tenant)s", tenant=tenant.name) if tenant else Message("log model")


def serve_foreign(version: str, manifest: dict) -> ModelVersion:
    """Make a model that another service has trained the serving version."""
    with transaction.atomic():
        return _serve(version, manifest, None)


def deactivate() -> None:
    """Let no version of the platform's model serve."""
    ModelVersion.objects.filter(serving=True, tenant=None).update(serving=False)
    after_commit.wake("aiops", 0)


def _serve(version: str, manifest: dict, run: TrainingRun | None, tenant_id: int | None = None) -> ModelVersion:
    """Make the version the serving one of its model, within the caller's transaction; concurrent calls wait for the
    lock on all versions.
    """
    list(ModelVersion.objects.select_for_update(no_key=True).order_by("pk"))
    others = ModelVersion.objects.filter(serving=True, tenant_id=tenant_id).exclude(version=version)
    others.update(serving=False)
    made = {"manifest": manifest, "run": run, "tenant_id": tenant_id}
    row, _ = ModelVersion.objects.get_or_create(version=version, defaults=made)
    if not row.serving:
        row.serving, row.served = True, timezone.now()
        row.save(update_fields=["serving", "served"])
    after_commit.wake("aiops", 0)
    return row


def _end(run: TrainingRun) -> None:
    run.ended, run.eta = timezone.now(), None
    run.save()
    after_commit.enqueue("aiops.settle", run.pk)
    after_commit.wake("aiops", 0)


def _lease():
    return timezone.now() + timedelta(seconds=LEASE_S)
