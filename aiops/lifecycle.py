"""Every change of a training and of what serves goes through here. Called by services, decisions, training, pages.

A training's resources (one GPU where there is one) are tried when its run is ordered and given back when the run is
cleaned away, as a job's are. Order of locks: the training's row, then the tenant's.
"""

from __future__ import annotations

import uuid as uuids
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.utils import timezone

from kernel import after_commit
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, locked
from kernel.models import record_created
from resources import tcc
from resources.models import Tenant

from .models import ModelVersion, State, TrainingRun
from .wire.subjects import FETCHING

APPLIER = "jm"
OWNER = "platform"
LEASE_S = 300  # without a sign of life of the trainer
QUEUE = "gpu"
CURVE = 500  # points kept of the loss


def request_id(uuid) -> str:
    return f"aiops:{uuid}"


def uuid_of(payload: dict) -> str:
    """The request's uuid; for one that has none, or no proper one, always the same for the same payload."""
    asked = payload.get("parameters")
    given = asked.get("uuid") if isinstance(asked, dict) else None
    try:
        return str(uuids.UUID(str(given)))
    except ValueError:
        return str(uuids.uuid5(uuids.NAMESPACE_OID, repr(given or sorted(payload.items(), key=str))))


def find(uuid: str) -> TrainingRun | None:
    try:
        return TrainingRun.objects.filter(uuid=uuids.UUID(str(uuid))).first()
    except ValueError:
        return None


def create_run(*, order: dict, by: str) -> tuple[TrainingRun, bool]:
    """The training for an order (`gpu_service_training_internal`), and whether it is new. Any number of times."""
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


def order_run(pk: int, attempt: int) -> TrainingRun | None:
    """Names the next run of a training and reserves a GPU for it when one is free. None when it is not to be begun."""
    try:
        with locked(TrainingRun, pk=pk) as run:
            if run.has_ended or run.attempt >= attempt:
                return run if not run.has_ended and run.attempt == attempt and not run.run_started else None
            run.attempt = attempt
            run.run_name, run.run_started = f"aiops-{run.pk}-{attempt}", False
            run.save(update_fields=["attempt", "run_name", "run_started"])
            if not run.reserved:
                _reserve(run)
            return run
    except Missing:
        return None


def _reserve(run: TrainingRun) -> None:
    """One GPU of the default tenant when it has one free; the CPU does as well, so nothing is refused."""
    if not Tenant.objects.filter(name="default", gpu__gt=0).exists():
        return
    try:
        with transaction.atomic():
            tcc.try_(id=request_id(run.uuid), applier=APPLIER, request_type="request", owner=OWNER, gpu=1)
    except Refused:
        return
    run.reserved, run.gpu = True, 1
    run.save(update_fields=["reserved", "gpu"])


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
    """Why the training has not begun yet; no sign of life."""
    with locked(TrainingRun, pk=pk) as run:
        if not run.has_ended and run.reason != reason:
            run.reason = reason
            run.save(update_fields=["reason"])


def order_again(pk: int, after_s: float) -> bool:
    """Whether a training that has not begun is to be handed to a worker again: at most once in that time."""
    now = timezone.now()
    waiting = TrainingRun.objects.filter(pk=pk, state=State.TRAINING, run_started=False)
    return bool(waiting.filter(heartbeat__lt=now - timedelta(seconds=after_s)).update(heartbeat=now))


def beat(pk: int, **fields) -> None:
    """A sign of life, with what it says (stage, percent, elapsed, eta, epoch, epochs, loss). Progress never falls."""
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
    """training > completed, with the version that now serves. False when it has ended before, or is gone."""
    try:
        with locked(TrainingRun, pk=pk) as run:
            run.complete(by=by)
            _end(run)
            _serve(version, manifest, run)
    except (Missing, WrongState):
        return False
    return True


def fail(pk: int, reason: str, by: str) -> None:
    """training > error. One that has ended is left alone."""
    try:
        with locked(TrainingRun, pk=pk) as run:
            run.fail(by=by, reason=reason)
            _end(run)
    except (Missing, WrongState):
        return


def cancel_running(reason: str, by: str) -> None:
    for pk in TrainingRun.objects.filter(state=State.TRAINING).values_list("pk", flat=True):
        fail(pk, reason, by)


def note_told(pk: int, **flags) -> None:
    """Which messages about the end are out (job_end_sent, announced)."""
    TrainingRun.objects.filter(pk=pk).update(**flags)


def give_back(run: TrainingRun) -> None:
    """Release the GPU of a locked training whose run is gone."""
    run.run_name, run.run_started = "", False
    if run.reserved:
        run.reserved = False
        tcc.release(id=request_id(run.uuid), applier=APPLIER)
    run.save(update_fields=["run_name", "run_started", "reserved"])


# --- versions ------------------------------------------------------------------------------------------------------
def serving() -> ModelVersion | None:
    return ModelVersion.objects.filter(serving=True).first()


def serve_version(version: str) -> ModelVersion:
    """Marks another version as the serving one (rolling back, or forward again). Raises Missing."""
    with transaction.atomic():
        found = ModelVersion.objects.filter(version=version).first()
        if found is None:
            raise Missing("version")
        return _serve(version, found.manifest, None)


def serve_nothing() -> None:
    ModelVersion.objects.filter(serving=True).update(serving=False)
    after_commit.wake("aiops", 0)


def _serve(version: str, manifest: dict, run: TrainingRun | None) -> ModelVersion:
    """Within the caller's transaction; two at once meet in the lock on all versions' rows."""
    list(ModelVersion.objects.select_for_update(no_key=True).order_by("pk"))
    ModelVersion.objects.filter(serving=True).exclude(version=version).update(serving=False)
    found, _ = ModelVersion.objects.get_or_create(version=version, defaults={"manifest": manifest, "run": run})
    if not found.serving:
        found.serving, found.served = True, timezone.now()
        found.save(update_fields=["serving", "served"])
    after_commit.wake("aiops", 0)
    return found


def _end(run: TrainingRun) -> None:
    run.ended, run.eta = timezone.now(), None
    run.save()
    after_commit.enqueue("aiops.settle", run.pk, queue="default")
    after_commit.wake("aiops", 0)


def _lease():
    return timezone.now() + timedelta(seconds=LEASE_S)
