"""The verbs of rollouts: an application moves to another model without a refused request.

A rollout begins when an alias names another version (`follow`), or when the owner requests it (`move`), who may name
the same model: that is a restart. The new run starts beside the old one; its cpu, gpu and ram are tried for the time
that there are two. When it is up the application's row names it, so that requests go there; the other run is stopped
once no gateway remembers its address, and the resources of the second run are released after that. Each verb holds the
application's lock.
"""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from kernel import after_commit, trash
from kernel.errors import Refused
from kernel.locking import WrongState, lock_row, locked
from kernel.messages import Message, word
from kernel.models import record_change
from models_app.models import Alias, Model
from models_app.models import State as ModelState
from resources import tcc
from runners import owned

from . import runs, second_runs, slots
from .lifecycle import APPLIER, PLACE_REMEMBERED_S, request_id
from .models import Application, Rollout, State
from .second_runs import WAIT_S, locked_run
from .shadows import rows as shadow_rows
from .versions import alias_named

Phase = Rollout.Phase
SECOND_RUN = Rollout.SECOND_RUN
Outcome = shadow_rows.Outcome
REPLACED = (Phase.WAITING, Phase.FAILED)  # what another rollout takes the place of
REMEMBERED_S = PLACE_REMEMBERED_S + 0.5


def target_of(app: Application) -> Model | None:
    """Return the model that the application's alias names, if it can be served."""
    alias = Alias.objects.select_related("version__model").filter(pk=app.alias_id).first() if app.alias_id else None
    model = alias.version.model if alias is not None else None
    return model if model is not None and model.state == ModelState.READY else None


def move(
    *, user, name: str, by: str, model_name: str = "", follows: str = "", may_restart: bool = False
) -> Application:  # fmt: skip
    """Move an application to another of its owner's models, to the model of an alias, which it follows from then on, or
    without both to a new run of the model that it serves.

    Without room for two runs it waits, unless it `may_restart`. One without a run has the model at once. Raises
    Missing; Refused for a model that cannot be served; WrongState while it is moving already or is being deleted.
    """
    with locked(Application, user=user, name=name) as app:
        alias = alias_named(user, follows) if follows else None
        target = model_to_serve(app, model_name or (alias.version.model.name if alias else app.model.name))
        lock_row(Rollout, app=app)
        require_movable(app, restarts=not (model_name or follows))
        forget_replaced(app, by)
        if is_approved(app, target):
            _require_run(app)
        if model_name or follows:
            app.served_as = app.served_name
            app.alias = alias
            app.save(update_fields=["served_as", "alias"])
        if _has_no_run(app):
            if app.state == State.CREATING:
                app.failures, app.not_before = 0, None
                after_commit.enqueue("apps.launch", app.pk)
            _serve(app, target, by)
        else:
            rollout = Rollout(app=app, model=target, may_restart=may_restart, by=by)
            start(app, rollout, by)
    return app


def forget_replaced(app: Application, by: str) -> None:
    """Forget what waits or has failed: another rollout takes its place."""
    for rollout in Rollout.objects.filter(app=app, phase__in=REPLACED):
        shadow_rows.close(app, rollout, Outcome.ENDED, by)
        rollout.delete()


def is_approved(app: Application, model: Model) -> bool:
    """Return whether the tenant approves the application's move to this model (apps.approvals)."""
    return app.tenant.approves_rollouts and model.pk != app.model_id


def _has_no_run(app: Application) -> bool:
    """Return whether the application has no run, or one that is being stopped."""
    return app.state == State.ERROR or not app.run_name or app.asleep


def _require_run(app: Application) -> None:
    """Raise WrongState where there is no run beside which another model waits for its approval."""
    if _has_no_run(app):
        raise WrongState(
            "moves to another model are approved in the tenant %(tenant)s, so the application has to be up",
            tenant=app.tenant.name,
        )


def model_to_serve(app: Application, name: str) -> Model:
    """Return a ready model of the application's owner, locked, so that it is not deleted meanwhile. Raises Refused."""
    model = lock_row(Model, user=app.user, name=name)
    if model is None:
        raise Refused("you have no model named %(name)s", field="model_name", name=name)
    trash.require_kept(model)
    if model.state == ModelState.ERROR:
        raise Refused(
            "the model %(name)s cannot be served here: %(reason)s",
            field="model_name", name=name, reason=model.reason,
        )  # fmt: skip
    if model.state != ModelState.READY:
        raise Refused(
            "the model %(name)s is %(state)s; it can be served once it is ready",
            field="model_name", name=name, state=word(model.state),
        )  # fmt: skip
    return model


def require_movable(app: Application, restarts: bool) -> None:
    """Raise WrongState where no rollout can begin now; `restarts`: to a new run of the same model."""
    if app.state == State.DELETING:
        raise WrongState("the application is already being deleted")
    trash.require_kept(app)
    if app.tenant.approves_rollouts and not restarts:
        _require_run(app)
    if app.state == State.ERROR and restarts:
        raise WrongState("the application is not running; start it")
    if app.state == State.CREATING and not app.reserved and restarts:
        raise WrongState("the application is queued; it starts when there is room")
    rollout = Rollout.objects.select_related("model").filter(app=app).exclude(phase__in=REPLACED).first()
    if rollout is None:
        return
    if rollout.phase == Phase.ENDING:
        raise WrongState("the other run of the application is being stopped; try again in a few seconds")
    if rollout.shadow_id is not None:
        raise WrongState("the model %(name)s is a shadow of the application; promote or end it first",
                         name=rollout.model.name)  # fmt: skip
    raise WrongState("the application is moving to the model %(name)s already", name=rollout.model.name)


def cancel(*, user, name: str, by: str) -> Application:
    """End a rollout that was requested, or forget a failed one: the application serves what it serves. Idempotent.

    Raises WrongState for one that an alias has caused: that is ended by the alias.
    """
    with locked(Application, user=user, name=name) as app:
        rollout = lock_row(Rollout, app=app)
        if rollout is None or rollout.phase == Phase.ENDING:
            return app
        if not rollout.by:
            raise WrongState("the application follows %(alias)s; let the alias name another version", alias=app.follows)
        if rollout.phase in SECOND_RUN:
            end_second(app, rollout, Outcome.ENDED, by)
        else:
            shadow_rows.close(app, rollout, Outcome.ENDED, by)
            rollout.delete()
            _changed(app)
    return app


def end_second(app: Application, rollout: Rollout, outcome: str, by: str) -> None:
    """End the second run of a locked rollout, of a shadow with this outcome."""
    runs.end(app, rollout.run_name, runs.Outcome.STOPPED)
    shadow_rows.close(app, rollout, outcome, by)
    _end(rollout)
    _changed(app)


def again(pk: int, by: str, may_restart: bool = False) -> None:
    """Try a rollout again that has failed or waits, or move to what the application's alias names now.

    Raises Missing; Refused where there is neither.
    """
    rollout = Rollout.objects.filter(app=pk).first()
    if rollout is not None and rollout.by:
        if may_restart:
            Rollout.objects.filter(pk=rollout.pk).update(may_restart=True)
        proceed(rollout.pk, again=True)
    elif Application.objects.filter(pk=pk, alias=None).exists():
        raise Refused("give a model, or an alias in follows", field="model_name")
    else:
        follow(pk, by, again=True)


def proceed(pk: int, again: bool = False) -> None:
    """Continue a requested rollout that waits for room; `again` at once, and also after it has failed."""
    with locked_run(Rollout, pk) as (app, rollout):
        if rollout is None or app.state not in (State.READY, State.CREATING):
            return
        due = again or owned.has_come(rollout.not_before)
        if (rollout.phase == Phase.WAITING and due) or (rollout.phase == Phase.FAILED and again):
            start(app, rollout, rollout.by)


def follow(pk: int, by: str, again: bool = False) -> None:
    """Start the move to the model that the application's alias names now; `again` also after that has failed.

    Nothing happens where it is served, on the way, or not ready. Raises Missing.
    """
    with locked(Application, pk=pk) as app:
        target = target_of(app)
        rollout = lock_row(Rollout, app=app)
        if target is None or app.state not in (State.READY, State.CREATING):
            return
        if rollout is not None and not _may_begin(app, rollout, target, by, again):
            return
        if target.pk == app.model_id:
            return
        if lock_row(Model, pk=target.pk, state=ModelState.READY) is None:  # so that it is not deleted meanwhile
            return
        if is_approved(app, target) and _has_no_run(app):
            return  # it follows once it is up
        if _has_no_run(app):
            _serve(app, target, by)
            return
        start(app, Rollout.objects.create(app=app, model=target), by)


def _may_begin(app: Application, rollout: Rollout, target: Model, by: str, again: bool) -> bool:
    """Continue or end the rollout that there is; return whether another one may be created."""
    same = rollout.model_id == target.pk
    if rollout.shadow_id is not None:
        return target.pk != app.model_id and _end_shadow(app, rollout, by)
    if rollout.phase in SECOND_RUN and not same:
        runs.end(app, rollout.run_name, runs.Outcome.REPLACED)
        _end(rollout)  # the alias has moved on
    elif rollout.phase == Phase.WAITING and same and owned.has_come(rollout.not_before):
        start(app, rollout, by)
    elif rollout.phase == Phase.FAILED:
        if again or not same:
            rollout.delete()
            return True
    elif rollout.phase in (Phase.WAITING, Phase.RESTARTING) and not same:
        rollout.delete()
        return True
    return False


def _end_shadow(app: Application, rollout: Rollout, by: str) -> bool:
    """End a shadow, since the application moves; return whether another rollout may be created now."""
    if rollout.phase in SECOND_RUN:
        end_second(app, rollout, Outcome.ENDED, by)
    if rollout.phase not in REPLACED:
        return False
    shadow_rows.close(app, rollout, Outcome.ENDED, by)
    rollout.delete()
    return True


def start(app: Application, rollout: Rollout, by: str) -> None:
    """Reserve what a second run needs and order it; where there is no room, wait, or restart, as the owner allows for a
    move.
    """
    rollout.save()
    refused = second_runs.reserve(app, rollout)
    if refused is None:
        rollout.slot = slots.free(app)
        second_runs.order(app, rollout, rollout.model)
    elif _may_restart(app, rollout):
        rollout.restart(app.run_name)
    else:
        reason = Message("there is no room for a second run: %(reason)s", reason=refused.msg)
        rollout.wait(timezone.now() + timedelta(seconds=WAIT_S), reason=reason)
    rollout.save()
    _changed(app)
    if rollout.phase != Phase.WAITING:
        after_commit.enqueue("apps.rollout", rollout.pk)


def _may_restart(app: Application, rollout: Rollout) -> bool:
    """Return whether the application restarts with the other model where there is no room for two."""
    wanted = app.may_restart or rollout.may_restart
    return wanted and rollout.shadow_id is None and not is_approved(app, rollout.model)


def switch(pk: int, run_name: str, address: str, alias: str) -> None:
    """Let the application's requests go to the new run, which answers at `address`; the other one is stopped then."""
    with locked_run(Rollout, pk) as (app, rollout):
        if rollout is None or rollout.phase not in SECOND_RUN or rollout.run_name != run_name:
            return
        if app.state not in (State.READY, State.CREATING):
            return
        by, other = rollout.by or alias, app.run_name
        runs.come_up(app, run_name)
        runs.end(app, other, runs.Outcome.REPLACED if rollout.model_id != app.model_id else runs.Outcome.RESTARTED)
        app.run_name, app.address, app.slot, rollout.slot = run_name, address, second_runs.slot_of(rollout), app.slot
        app.ordered, app.ready_since, app.not_before, app.failures = rollout.ordered, timezone.now(), None, 0
        if app.state == State.CREATING:
            app.up(by=by)
            tcc.confirm(id=request_id(app.pk), applier=APPLIER)
        _serve(app, rollout.model, by)
        shadow_rows.close(app, rollout, Outcome.PROMOTED, by)
        rollout.run_name = other
        _end(rollout)


def fail(pk: int, run_name: str, reason: str) -> None:
    """Record that the new run did not come up: it is stopped, and the application serves what it served before."""
    with locked_run(Rollout, pk) as (app, rollout):
        if rollout is not None and rollout.phase in SECOND_RUN and rollout.run_name == run_name:
            rollout.reason = reason
            runs.end(app, run_name, runs.Outcome.FAILED, reason)
            shadow_rows.close(app, rollout, Outcome.FAILED, rollout.by or APPLIER, reason)
            _end(rollout)
            _changed(app)


def end(pk: int, run_name: str) -> None:
    """Release what the second run used, which is gone, and forget the rollout, unless it has failed."""
    with locked_run(Rollout, pk) as (app, rollout):
        if rollout is None or rollout.phase != Phase.ENDING or rollout.run_name != run_name:
            return
        second_runs.release(rollout)
        if rollout.reason:
            rollout.fail()
            rollout.save()
        else:
            rollout.delete()
        _changed(app)


def take_over(pk: int, by: str) -> None:
    """Let an application that restarts for a rollout start with the new model: its old run has ended."""
    with locked_run(Rollout, pk) as (app, rollout):
        if rollout is None or rollout.phase != Phase.RESTARTING or app.run_name == rollout.run_name:
            return
        if not app.run_name:
            _serve(app, rollout.model, by)
        rollout.delete()
        _changed(app)


def abandon(pk: int) -> None:
    """Forget the rollout of an application that is being deleted; its run is gone."""
    with locked_run(Rollout, pk) as (app, rollout):
        if rollout is not None and app.state == State.DELETING:
            second_runs.release(rollout)
            rollout.delete()


def _serve(app: Application, model: Model, by: str) -> None:
    """Store which model the application serves from now on."""
    same = app.model_id == model.pk
    app.model = model
    app.generation += 1
    if app.asleep:
        app.address = ""  # its last run, of the earlier model, is not used again
    app.save()
    reason = Message("restarted") if same else Message("now serves the model %(name)s", name=model.name)
    record_change(app, transition="switch", source=app.state, target=app.state, by=by, reason=reason)


def _end(rollout: Rollout) -> None:
    rollout.end(timezone.now() + timedelta(seconds=REMEMBERED_S))
    rollout.save()
    after_commit.enqueue("apps.rollout", rollout.pk, delay_ms=int(REMEMBERED_S * 1000))


def _changed(app: Application) -> None:
    after_commit.changed(app.user.username, "application", app.name)
