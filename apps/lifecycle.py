"""The verbs of applications: every change of state is made here. Called by api, pages, admin, launching and reconcile.

The tenant's cpu, gpu and ram are tried when the application is created or started, as soon as they are free
(apps.queueing); confirmed when it is first up, and released when it is stopped, erased or has failed, always after its
run is gone. Its port belongs to the row until that is removed.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.tenancy import members
from jobs.packages.named import references
from kernel import after_commit, broker, trash
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, lock_row, locked
from kernel.messages import Message, word
from kernel.models import record_created
from kernel.outcomes import Outcome
from models_app.models import Model
from models_app.models import State as ModelState
from resources import lending, products, tcc
from runners import owned

from . import keys, ports, runs
from .models import Application, Replica, Rollout, State
from .replica_range import COLUMNS, configure
from .shadows import rows as shadow_rows
from .versions import alias_named

APPLIER = "am"
STOPPED = Message("stopped")
QUEUED = Message("queued: not enough free resources")
PORT_TRIES = 20
PORT_IS_UNIQUE = "app_group_port_key"
BACKOFF_S = (0.5, 1, 2, 5, 10, 20, 40)
STEADY_AFTER_S = 60  # after this uptime earlier failures no longer count
PLACE_REMEMBERED_S = 1.0  # how long the gateway caches the address of an application, which stays taken meanwhile


def request_id(pk: int) -> str:
    """Return the id of the application's resource request."""
    return f"app:{pk}"


def create_app(
    *, user, name: str, title: str = "", model_name: str = "", follows: str = "", gpu: int = 0, cpu: float = 1,
    ram: int = 512, public: bool = False, may_restart: bool = False, tenant: str | None = None,
    environment: str = "", replicas: dict[str, int] | None = None, gpu_type: str = "", by: str,
) -> Application:  # fmt: skip
    """Create the row with a free port, reserve its resources and enqueue its start; without free ones it is queued.

    Without a `model_name` it serves the model that the alias `follows` names, such as models:/churn@champion, and
    moves with it. `environment` names packages of the tenant to serve it with, in place of the model's.
    `replicas` may have `min`, `max` and `target` (replica_range). `gpu_type` is one of the runner's
    (resources.products).

    Raises Refused: the name is taken, no such ready model, more than the tenant has, no free port. Raises Fault, with
    nothing stored, when the task queue is not available.
    """
    broker.require()
    try:
        with transaction.atomic():
            tenant_row = members.hold(user, tenant)
            alias = alias_named(user, follows) if follows else None
            model_name = alias.version.model.name if alias and not model_name else model_name
            model = lock_row(Model, user=user, name=model_name)  # so that it is not deleted meanwhile
            if model is None:
                raise Refused("you have no model named %(name)s", field="model_name", name=model_name)
            trash.require_kept(model)
            if model.state == ModelState.ERROR:
                raise Refused(
                    "the model %(name)s cannot be served here: %(reason)s",
                    field="model_name", name=model_name, reason=model.reason,
                )  # fmt: skip
            if model.state != ModelState.READY:
                raise Refused(
                    "the model %(name)s is %(state)s; it can be served once it is ready",
                    field="model_name", name=model_name, state=word(model.state),
                )  # fmt: skip
            values: dict = {"gpu": gpu, "cpu": cpu, "ram": ram}
            products.need_possible(gpu_type, gpu)
            tcc.never_fits(tenant_row, user.username, **values)
            if environment:
                values |= references.columns(tenant_row, environment)
            app = _insert(
                user=user, tenant=tenant_row, model=model, name=name, title=title, public=public, alias=alias,
                may_restart=may_restart, reserved=False, queued=timezone.now(), gpu_type=gpu_type,
                **values,
            )  # fmt: skip
            if replicas:
                configure(app, replicas)
                app.save(update_fields=COLUMNS)
            record_created(app, by=by)
            reserve(app)
    except IntegrityError as problem:
        if violated(problem) == "application_name_once_per_user":
            raise Refused(_taken(user, name), field="name")
        raise
    return app


def _taken(user, name: str) -> Message:
    """Return why the name is not free."""
    if Application.objects.filter(user=user, name=name).exclude(trashed=None).exists():
        return Message("you already have an application named %(name)s; it is in the trash", name=name)
    return Message("you already have an application named %(name)s", name=name)


def _insert(**values) -> Application:
    """Create the row with a free port. The database's constraint decides between two that chose the same.

    Raises Refused when there is none.
    """
    for _ in range(PORT_TRIES):
        port = ports.choose(set(Application.objects.values_list("port", flat=True)))
        if port is None:
            raise Refused("all application ports of the platform are in use", field="port")
        try:
            with transaction.atomic():
                return Application.objects.create(port=port, **values)
        except IntegrityError as problem:
            if violated(problem) != PORT_IS_UNIQUE:
                raise
    raise Refused("no free port was found; try again", field="port")


def reserve(app: Application) -> Refused | None:
    """Reserve the resources of a locked application and enqueue its start. Return the refusal, None when they are
    reserved.
    """
    try:
        with transaction.atomic():
            products.require(app.gpu_type, app.gpu)
            tcc.try_(
                id=request_id(app.pk), applier=APPLIER, request_type="request", tenant=app.tenant.name,
                owner=app.user.username, gpu=app.gpu, cpu=app.cpu, ram=app.ram,
            )  # fmt: skip
    except Refused as refused:
        lending.recall(refused)
        of_type = isinstance(refused, products.NoneLeft)
        reason = Message("queued: %(reason)s", reason=refused.problem) if of_type else QUEUED
        if app.reason != reason:
            app.reason = reason
            app.save(update_fields=["reason"])
        return refused
    app.reserved, app.reason = True, ""
    app.save(update_fields=["reserved", "reason"])
    after_commit.enqueue("apps.launch", app.pk)
    after_commit.changed(app.user.username, "application", app.name)
    return None


def run_name_of(app: Application) -> str:
    """Return the name of the application's current attempt."""
    return f"app-{app.pk}-{app.attempt}"


def note_order(pk: int) -> Application | None:
    """Name the next run of an application that waits for one and return it; None when there is nothing to start now."""
    with locked(Application, pk=pk) as app:
        if app.state != State.CREATING or not app.reserved or not owned.has_come(app.not_before):
            return None
        if not app.run_name:
            _take_over(app)
            app.attempt += 1
            app.run_name, app.ordered, app.address = run_name_of(app), timezone.now(), ""
            app.save(update_fields=["attempt", "run_name", "ordered", "address"])
            runs.begin(app, app.run_name, app.model)
        return app


def note_wait(app: Application, waits_for: str, again: bool = False) -> None:
    """Record what the run of an application waits for before it starts; `again`: its time begins again."""
    reason = Message("waiting to start: %(reason)s", reason=waits_for) if waits_for else app.reason
    if app.reason != reason or again:
        with suppress(Missing), locked(Application, pk=app.pk) as row:
            if row.state == State.CREATING and row.run_name == app.run_name:
                row.reason, row.ordered = reason, timezone.now() if again else row.ordered
                row.save(update_fields=["reason", "ordered"])
                after_commit.changed(row.user.username, "application", row.name)


def _take_over(app: Application) -> None:
    """Let the next run serve the model for which the owner has allowed a restart (apps.rollouts)."""
    rollout = Rollout.objects.filter(app=app, phase=Rollout.Phase.RESTARTING).select_related("model").first()
    if rollout is not None:
        app.model = rollout.model
        app.save(update_fields=["model"])
        rollout.delete()


def up(pk: int, run_name: str, address: str, by: str) -> None:
    """Move an application from creating to ready: this run answers at `address`."""
    with locked(Application, pk=pk) as app:
        if app.state != State.CREATING or app.run_name != run_name:
            return
        app.up(by=by)
        app.address, app.ready_since = address, timezone.now()
        app.save()
        runs.come_up(app, run_name)
        tcc.confirm(id=request_id(pk), applier=APPLIER)


def end_run(pk: int, run_name: str, reason: str, by: str) -> None:
    """Record that a run ended by itself: restart after a pause, or creating > error after too many failures."""
    with locked(Application, pk=pk) as app:
        if app.run_name != run_name or app.state not in (State.CREATING, State.READY) or app.asleep:
            return
        if app.ready_since and (timezone.now() - app.ready_since).total_seconds() > STEADY_AFTER_S:
            app.failures = 0
        if app.state == State.READY:
            app.lose(by=by, reason=reason)
            app.not_before = _when_forgotten()
        app.failures += 1
        runs.end(app, run_name, runs.Outcome.FAILED, reason)
        app.run_name, app.address, app.ready_since, app.reason = "", "", None, reason
        if app.failures >= settings.APP_MAX_FAILURES and not _is_moving(app):
            app.fail(
                by=by, reason=Message("stopped after %(count)s failures: %(reason)s", count=app.failures, reason=reason)
            )
            app.reserved = False
            _end_replicas(app)
            app.save()
            tcc.release(id=request_id(pk), applier=APPLIER)
            return
        pause = BACKOFF_S[min(app.failures, len(BACKOFF_S)) - 1]
        app.not_before = timezone.now() + timedelta(seconds=pause)
        app.save()
        after_commit.enqueue("apps.launch", pk, delay_ms=int(pause * 1000) + 50)
        after_commit.changed(app.user.username, "application", app.name)


def _is_moving(app: Application) -> bool:
    """Return whether another run is starting, or up as a canary, which may be better than the one that failed."""
    return Rollout.objects.filter(app=app, phase__in=Rollout.SECOND_RUN, shadow=None).exists()


def end_requested(pk: int, run_name: str, reason: str, by: str) -> None:
    """Record that a run was stopped with the platform or by an administrator: restart it at once."""
    with locked(Application, pk=pk) as app:
        if app.run_name != run_name or app.state != State.READY or app.asleep:
            return
        app.renew(by=by, reason=reason)
        runs.end(app, run_name, runs.Outcome.RESTARTED)
        app.run_name, app.address, app.ready_since, app.not_before = "", "", None, None
        app.save()
        after_commit.enqueue("apps.launch", pk)


def stop_app(*, user, name: str, by: str) -> Application:
    """Move an application from creating or ready to error, stopped: a task stops its run and releases its resources.

    Its requests are refused at once; those in flight are answered.
    """
    with locked(Application, user=user, name=name) as app:
        was_ready = app.state == State.READY
        app.stop(by=by, reason=STOPPED)
        app.not_before = _when_forgotten() if was_ready else None
        app.address, app.ready_since, app.failures, app.queued = "", None, 0, None
        runs.end(app, app.run_name, runs.Outcome.STOPPED)
        _end_others(app)
        if not app.run_name and app.reserved:
            app.reserved = False
            tcc.release(id=request_id(app.pk), applier=APPLIER)
        app.save()
        if app.run_name:
            after_commit.enqueue("apps.stop", app.pk, app.run_name, delay_ms=int(PLACE_REMEMBERED_S * 1000) + 50)
    return app


def _end_others(app: Application) -> None:
    """End the replicas of a stopped or failed application, and its move to another model: what has started is stopped,
    too.
    """
    _end_replicas(app)
    rollout = lock_row(Rollout, app=app)
    if rollout is None or rollout.phase == Rollout.Phase.ENDING:
        return
    shadow_rows.close(app, rollout, shadow_rows.Outcome.ENDED, APPLIER)
    if rollout.phase not in Rollout.SECOND_RUN:
        rollout.delete()
        return
    runs.end(app, rollout.run_name, runs.Outcome.STOPPED)
    rollout.end(None)
    rollout.save()
    after_commit.enqueue("apps.rollout", rollout.pk)


def _end_replicas(app: Application) -> None:
    """Stop the other runs of a locked application (apps.scaling)."""
    rows = list(Replica.objects.filter(app=app).order_by("pk"))
    for replica in rows:
        runs.end(app, replica.run_name, runs.Outcome.STOPPED)
        if replica.phase != Replica.Phase.ENDING:
            replica.drain(_when_forgotten())
            replica.save()
    if rows:
        after_commit.enqueue("apps.scale", app.pk)


def note_stop(app: Application) -> None:
    """Release the resources of a locked application whose run is gone, and that is stopped or asleep."""
    app.reserved = False
    app.save(update_fields=["run_name", "reserved"])
    tcc.release(id=request_id(app.pk), applier=APPLIER)
    after_commit.changed(app.user.username, "application", app.name)


def require_startable(app: Application) -> None:
    """Raise for an application that is neither starting nor ready, and could not be started now."""
    if app.run_name:
        raise WrongState("the application is still being stopped; try again in a few seconds")
    members.chosen(app.user, app.tenant.name)  # who has left the tenant uses nothing of it any more
    products.need_possible(app.gpu_type, app.gpu)
    tcc.never_fits(app.tenant, app.user.username, gpu=app.gpu, cpu=app.cpu, ram=app.ram)


def start_app(*, user, name: str, by: str) -> Application:
    """Move a stopped or failed application from error to creating; without free resources it is queued.

    Raises WrongState while it is still being stopped; Missing when its owner is not in the tenant any more; Refused
    when it needs more than the tenant has now; Fault, with nothing stored, when the task queue is not available.
    """
    broker.require()
    with locked(Application, user=user, name=name) as app:
        trash.require_kept(app)
        app.start(by=by)
        require_startable(app)
        app.failures, app.not_before, app.queued = 0, None, timezone.now()
        app.save()
        tcc.withdraw(id=request_id(app.pk), applier=APPLIER)  # the settled request of its last time
        reserve(app)
    return app


def fail(pk: int, reason: str, by: str) -> None:
    """Move an application without a run from creating to error, for a reason that another try would not fix."""
    with locked(Application, pk=pk) as app:
        if app.state == State.CREATING:
            app.fail(by=by, reason=reason)
            runs.end(app, app.run_name, runs.Outcome.FAILED, reason)
            app.run_name, app.reserved = "", False
            _end_others(app)
            app.save()
            tcc.release(id=request_id(pk), applier=APPLIER)


def delete_app(*, user, name: str, by: str, trashed: datetime | None = None) -> Application:
    """Move an application from ready or error to deleting; a task stops its run and releases its resources.

    `trashed`: only if it has been in the trash since then.
    """
    with locked(Application, user=user, name=name) as app:
        trash.require_since(app, trashed)
        _erase(app, by)
    return app


def delete_all_of(user, by: str) -> None:
    """Delete all applications of a deregistered user, in that transaction."""
    rows = Application.objects.filter(user=user).exclude(state=State.DELETING).order_by("pk")
    for app in list(rows.select_for_update(no_key=True)):
        if app.state == State.CREATING:
            app.fail(by=by, reason=accounts.DEACTIVATED, outcome=Outcome.CANCELLED)
        _erase(app, by)


def forget(pk: int) -> None:
    """Remove the row of an application whose run is gone, and release its resources."""
    with suppress(Missing), locked(Application, pk=pk) as app:
        if app.state == State.DELETING:
            tcc.release(id=request_id(pk), applier=APPLIER)
            keys.hold(app)
            runs.hold(app)
            app.delete()
            after_commit.changed(app.user.username, "application", app.name)


def _when_forgotten() -> datetime:
    return timezone.now() + timedelta(seconds=PLACE_REMEMBERED_S)


def _erase(app: Application, by: str) -> None:
    if app.state == State.READY:
        app.not_before = _when_forgotten()
    app.erase(by=by)
    app.address = ""
    app.save()
    after_commit.enqueue("apps.erase", app.pk)
