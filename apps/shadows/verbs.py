"""The verbs of shadows: an application has another model beside it, which gets copies of its requests.

A shadow is a rollout that stops before the first request: its run is ordered, reserved and watched like that of any
move (apps.rollouts), and from the phase `shadow` it is promoted, or ended. Its answers are only compared
(apps.shadows.copying). Each verb holds the application's lock.
"""

from __future__ import annotations

from kernel.errors import Refused
from kernel.locking import WrongState, lock_row, locked
from kernel.messages import Message

from .. import canaries, rollouts, second_runs
from ..models import Application, Rollout, Shadow, State
from . import rows

Phase = Rollout.Phase
MAX_MINUTES = 30 * 24 * 60
MAX_IGNORED, MAX_FIELD = 30, 100
MAX_TOLERANCE = 1.0


def begin(
    *, user, name: str, by: str, model_name: str, percent: int = 100, minutes: int = 0, tolerance: float = 1e-6,
    ignore: list[str] | None = None,
) -> Application:  # fmt: skip
    """Let another of the owner's models get copies of the application's requests, once it is up; without room for two
    runs it waits.

    Raises Missing; Refused for a model that cannot be served, or a value that cannot be; WrongState for an application
    that is not up, or moves.
    """
    fields = _checked(percent, minutes, tolerance, ignore or [])
    with locked(Application, user=user, name=name) as app:
        model = rollouts.model_to_serve(app, model_name)
        lock_row(Rollout, app=app)
        rollouts.require_movable(app, restarts=True)
        if app.state != State.READY or app.asleep:
            raise WrongState("the application is not up, so there are no requests to be copied")
        if model.pk == app.model_id:
            raise Refused("the application serves the model %(name)s itself", field="model_name", name=model.name)
        rollouts.forget_replaced(app, by)
        app.served_as = app.served_name  # the new run answers at the addresses that callers use
        app.save(update_fields=["served_as"])
        shadow = Shadow.objects.create(app=app, model_name=model.name, serves=app.model.name, by=by, **fields)
        older = Shadow.objects.filter(app=app).order_by("-pk").values_list("pk", flat=True)[rows.KEPT :]
        Shadow.objects.filter(pk__in=list(older)).delete()
        rollouts.start(app, Rollout(app=app, model=model, by=by, shadow=shadow), by)
    return app


def _checked(percent: int, minutes: int, tolerance: float, ignore: list[str]) -> dict:
    for field, value, first, last in (
        ("percent", percent, 1, 100),
        ("minutes", minutes, 0, MAX_MINUTES),
        ("tolerance", tolerance, 0, MAX_TOLERANCE),
    ):
        if value is None or not first <= value <= last:
            raise Refused("must be from %(first)s to %(last)s", field=field, first=first, last=f"{last:g}")
    if len(ignore) > MAX_IGNORED:
        raise Refused("at most %(limit)s are allowed", field="ignore", limit=MAX_IGNORED)
    for field in ignore:
        if not 0 < len(field) <= MAX_FIELD:
            raise Refused(
                "must be names of fields, each with 1 to %(limit)s characters", field="ignore", limit=MAX_FIELD
            )
    return {"percent": percent, "minutes": minutes, "tolerance": tolerance, "ignore": list(dict.fromkeys(ignore))}


def promote(*, user, name: str, by: str) -> Application:
    """Let all requests go to the shadow's run, which becomes the application's own; it follows no alias from then on.
    Where the tenant approves rollouts, that waits for the approval, and nothing is copied meanwhile.

    Raises Missing; WrongState without a shadow that is up.
    """
    with locked(Application, user=user, name=name) as app:
        rollout = lock_row(Rollout, app=app)
        if rollout is None or rollout.phase != Phase.SHADOW:
            raise WrongState("the application has no shadow that is up")
        app.alias = None
        app.save(update_fields=["alias"])
        if app.tenant.approves_rollouts:
            rollout.share(rollout.address)
            canaries.offer_all(app, rollout, by)
            rollout.save()
            return app
        found = (rollout.pk, rollout.run_name, rollout.address)
        Rollout.objects.filter(pk=rollout.pk).update(by=by)
    rollouts.switch(*found, alias=by)
    return app


def end(*, user, name: str, by: str) -> Application:
    """End the application's shadow; what was compared is kept. Idempotent. Raises Missing."""
    with locked(Application, user=user, name=name) as app:
        rollout = lock_row(Rollout, app=app)
        if rollout is None or rollout.shadow_id is None or rollout.phase == Phase.ENDING:
            return app
    return rollouts.cancel(user=user, name=name, by=by)


def end_over(rollout: Rollout) -> None:
    """End a shadow whose time is over."""
    with second_runs.locked_run(Rollout, rollout.pk, run_name=rollout.run_name) as (app, row):
        if row is not None and row.phase == Phase.SHADOW and rows.is_over(row.shadow):
            rollouts.end_second(app, row, rows.Outcome.OVER, rollout.by)


def reason_of(app: Application, shadow: Shadow) -> str:
    """Return why a shadow that has not ended gets no copies now; empty where it does."""
    rollout = Rollout.objects.filter(app=app, shadow=shadow).first()
    if shadow.ended is not None or rollout is None or rollout.phase == Phase.SHADOW:
        return ""
    return rollout.reason or Message("its run is not up yet")
