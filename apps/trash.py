"""Applications in the trash: they are stopped, so they hold no resources, and their keys open nothing. Restored, one
that was up starts again, and its callers' keys work again.
"""

from __future__ import annotations

from datetime import datetime

from accounts.tenancy import members
from kernel import healing
from kernel import trash as bin
from kernel.locking import lock_row, locked
from models_app.models import Model
from resources import retention

from . import lifecycle
from .models import Application, State

STEADY = (State.READY, State.ERROR)


def trash(*, user, name: str, by: str) -> Application:
    """Move an application in ready or error to the trash and stop it; one that is there is not changed.

    Raises Fault; WrongState while it is starting.
    """
    with locked(Application, user=user, name=name) as app:
        if not bin.put(app, by):
            return app
        app.resumes = app.state == State.READY
        app.save(update_fields=["resumes"])
        return lifecycle.stop_app(user=user, name=name, by=by) if app.resumes else app


def require_restorable(app: Application) -> None:
    """Raise WrongState or Refused for an application in the trash that cannot be restored now."""
    bin.require_kept(app.model)
    if app.resumes and app.tenant in members.open_to(app.user):
        lifecycle.require_startable(app)


def restore(*, user, name: str, by: str) -> Application:
    """Restore an application from the trash; one that was up is started again, or queued, if its owner is still a
    member of its tenant.

    Raises WrongState for one that is not there, whose model is in the trash, or whose run is still being stopped.
    """
    with locked(Application, user=user, name=name) as app:
        bin.restore(app, by)
        model = lock_row(Model, pk=app.model_id)  # so that it is not moved there meanwhile
        if model is not None:
            bin.require_kept(model)
        resumes, app.resumes = app.resumes, False
        app.save(update_fields=["resumes"])
        resumes = resumes and app.tenant in members.open_to(user)
        return lifecycle.start_app(user=user, name=name, by=by) if resumes else app


def delete(row: Application, by: str) -> None:
    """Delete an application from the trash. Raises WrongState if it has been restored since the row was read."""
    lifecycle.delete_app(user=row.user, name=row.name, by=by, trashed=row.trashed)


def purge(now: datetime) -> None:
    """Delete what has been in the trash for long enough; called by reconcile in each round."""
    rows = (
        Application.objects.filter(retention.trash_due(now), state__in=STEADY)
        .select_related("user")
        .order_by("trashed")
    )
    healing.each(lambda row: delete(row, "reconcile"), rows[: bin.PURGED])
