"""The verbs of applications: every change of state is made here. Called by api, pages, admin, launching and reconcile.

The tenant's cpu, gpu and ram are tried when the application is created, confirmed when it is first up, and released
when it is erased or has failed, always after its run is gone. Its port belongs to the row until that is removed.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.tenancy import members
from kernel import after_commit, broker
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, lock_row, locked
from kernel.messages import Message, word
from kernel.models import record_created
from models_app.models import Alias, Model
from models_app.models import State as ModelState
from resources import lending, tcc
from runners import owned

from . import ports
from .models import Application, Rollout, State

APPLIER = "am"
CANCELLED = Message("cancelled")
PORT_TRIES = 20
PORT_IS_UNIQUE = "app_group_port_key"
BACKOFF_S = (0.5, 1, 2, 5, 10, 20, 40)
STEADY_AFTER_S = 60  # after this uptime earlier failures no longer count
PLACE_REMEMBERED_S = 1.0  # how long the gateway caches the address of an application, which stays taken meanwhile


def request_id(pk: int) -> str:
    """Return the id of the application's resource request."""
    return f"app:{pk}"


@lending.recalling
def create_app(
    *, user, name: str, model_name: str = "", follows: str = "", gpu: int = 0, cpu: float = 1, ram: int = 512,
    public: bool = False, may_restart: bool = False, tenant: str | None = None, by: str,
) -> Application:  # fmt: skip
    """Create the row with a free port, reserve its resources and enqueue its start.

    Without a `model_name` it serves the model that the alias `follows` names, such as models:/churn@champion, and
    moves with it.

    Raises Refused: the name is taken, no such ready model, not enough resources, no free port. Raises Fault, with
    nothing stored, when the task queue is not available.
    """
    broker.require()
    try:
        with transaction.atomic():
            held = members.hold(user, tenant)
            alias = alias_named(user, follows) if follows else None
            model_name = alias.version.model.name if alias and not model_name else model_name
            model = lock_row(Model, user=user, name=model_name)  # so that it is not deleted meanwhile
            if model is None:
                raise Refused("you have no model named %(name)s", field="model_name", name=model_name)
            if model.state != ModelState.READY:
                raise Refused(
                    "the model %(name)s is %(state)s; it can be served once it is ready",
                    field="model_name", name=model_name, state=word(model.state),
                )  # fmt: skip
            values = {"gpu": gpu, "cpu": cpu, "ram": ram}
            app = _insert(
                user=user, tenant=held, model=model, name=name, public=public, alias=alias,
                may_restart=may_restart, **values,
            )  # fmt: skip
            record_created(app, by=by)
            tcc.try_(
                id=request_id(app.pk), applier=APPLIER, request_type="request", tenant=held.name,
                owner=user.username, **values,
            )  # fmt: skip
            after_commit.enqueue("apps.launch", app.pk)
    except IntegrityError as problem:
        if violated(problem) == "application_name_once_per_user":
            raise Refused("you already have an application named %(name)s", field="name", name=name)
        raise
    return app


def alias_named(user, uri: str) -> Alias:
    """Return the user's alias of a URI such as models:/churn@champion. Raises Refused."""
    name, _at, alias = uri.removeprefix("models:/").rpartition("@")
    rows = Alias.objects.select_related("version__model").filter(registered__user=user, registered__name=name)
    row = rows.filter(name=alias).first() if "\x00" not in uri else None
    if row is None:
        raise Refused("you have no alias %(alias)s", field="follows", alias=uri)
    if row.version.model is None:
        raise Refused("the files of version %(number)s are not on this platform", field="follows",
                      number=row.version.number)  # fmt: skip
    return row


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


def run_name_of(app: Application) -> str:
    """Return the name of the application's current attempt."""
    return f"app-{app.pk}-{app.attempt}"


def note_order(pk: int) -> Application | None:
    """Name the next run of an application that waits for one and return it; None when there is nothing to start now."""
    with locked(Application, pk=pk) as app:
        if app.state != State.CREATING or not owned.has_come(app.not_before):
            return None
        if not app.run_name:
            _take_over(app)
            app.attempt += 1
            app.run_name, app.ordered, app.address = run_name_of(app), timezone.now(), ""
            app.save(update_fields=["attempt", "run_name", "ordered", "address"])
        return app


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
        tcc.confirm(id=request_id(pk), applier=APPLIER)


def end_run(pk: int, run_name: str, reason: str, by: str) -> None:
    """Record that a run ended by itself: restart after a pause, or creating > error after too many failures."""
    with locked(Application, pk=pk) as app:
        if app.run_name != run_name or app.state not in (State.CREATING, State.READY):
            return
        if app.ready_since and (timezone.now() - app.ready_since).total_seconds() > STEADY_AFTER_S:
            app.failures = 0
        if app.state == State.READY:
            app.lose(by=by, reason=reason)
            app.not_before = _when_forgotten()
        app.failures += 1
        app.run_name, app.address, app.ready_since, app.reason = "", "", None, reason
        if app.failures >= settings.APP_MOST_FAILURES:
            app.fail(
                by=by, reason=Message("stopped after %(count)s failures: %(reason)s", count=app.failures, reason=reason)
            )
            app.reserved = False
            app.save()
            tcc.release(id=request_id(pk), applier=APPLIER)
            return
        pause = BACKOFF_S[min(app.failures, len(BACKOFF_S)) - 1]
        app.not_before = timezone.now() + timedelta(seconds=pause)
        app.save()
        after_commit.enqueue("apps.launch", pk, delay_ms=int(pause * 1000) + 50)
        after_commit.changed(app.user.username, "application", app.name)


def end_requested(pk: int, run_name: str, reason: str, by: str) -> None:
    """Record that a run was stopped with the platform or by an administrator: restart it at once."""
    with locked(Application, pk=pk) as app:
        if app.run_name != run_name or app.state != State.READY:
            return
        app.renew(by=by, reason=reason)
        app.run_name, app.address, app.ready_since, app.not_before = "", "", None, None
        app.save()
        after_commit.enqueue("apps.launch", pk)


def restart(pk: int, by: str) -> None:
    """Stop the run of a ready application; like any run that ends it is then started again. Raises WrongState."""
    with locked(Application, pk=pk) as app:
        if app.state != State.READY:
            raise WrongState(
                "the application is %(state)s; it can be restarted once it is ready", state=word(app.state)
            )
        after_commit.enqueue("apps.stop", pk, app.run_name)


def fail(pk: int, reason: str, by: str) -> None:
    """Move an application without a run from creating to error, for a reason that another try would not fix."""
    with locked(Application, pk=pk) as app:
        if app.state == State.CREATING:
            app.fail(by=by, reason=reason)
            app.run_name, app.reserved = "", False
            app.save()
            tcc.release(id=request_id(pk), applier=APPLIER)


def delete_app(*, user, name: str, by: str) -> Application:
    """Move an application from ready or error to deleting; a task stops its run and releases its resources."""
    with locked(Application, user=user, name=name) as app:
        _erase(app, by)
    return app


def end(*, user, name: str, by: str) -> Application:
    """End an application in whatever state it is: a starting one fails, then it is deleted."""
    with locked(Application, user=user, name=name) as app:
        if app.state == State.CREATING:
            app.fail(by=by, reason=CANCELLED)
        _erase(app, by)
    return app


def delete_all_of(user, by: str) -> None:
    """Delete all applications of a deregistered user, in that transaction."""
    rows = Application.objects.filter(user=user).exclude(state=State.DELETING).order_by("pk")
    for app in list(rows.select_for_update(no_key=True)):
        if app.state == State.CREATING:
            app.fail(by=by, reason=accounts.DEACTIVATED)
        _erase(app, by)


def forget(pk: int) -> None:
    """Remove the row of an application whose run is gone, and release its resources."""
    with suppress(Missing), locked(Application, pk=pk) as app:
        if app.state == State.DELETING:
            tcc.release(id=request_id(pk), applier=APPLIER)
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
