"""An application that nobody asks may sleep, as its owner allows: without a run and resources until the next request.

It stays `ready`, since that request is answered: the gateway keeps it until the application is up (apps.balancing).
"""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from accounts.tenancy import members
from kernel import after_commit
from kernel.errors import Refused
from kernel.locking import Missing, locked
from kernel.messages import Message
from resources import tcc

from . import lifecycle, runs
from .models import Application, Replica, Rollout, State


def rest(pk: int, run_name: str, by: str) -> bool:
    """Let a ready application without other runs sleep, as its owner allows; return whether it does from now on.

    A task stops its run once no gateway remembers the address and it has answered what it has, and releases its
    resources. The next request wakes it; until the run is stopped, it is used again.
    """
    with locked(Application, pk=pk) as app:
        moving = Rollout.objects.filter(app=app).exclude(phase=Rollout.Phase.FAILED).exists()
        if app.state != State.READY or app.asleep or app.run_name != run_name or app.replicas_min > 0 or moving:
            return False
        if Replica.objects.filter(app=app).exists():
            return False
        app.rest(by=by)
        app.not_before = timezone.now() + timedelta(seconds=lifecycle.PLACE_REMEMBERED_S)
        app.ready_since, app.failures = None, 0
        runs.end(app, run_name, runs.Outcome.SCALED_IN)
        app.save()
        after_commit.enqueue("apps.stop", app.pk, run_name, delay_ms=int(lifecycle.PLACE_REMEMBERED_S * 1000) + 50)
    return True


def close(pk: int, run_name: str) -> bool:
    """Let the last run of an application that sleeps not be used again, since it is stopped now; return whether the
    application still sleeps. Raises Missing.
    """
    with locked(Application, pk=pk) as app:
        if not app.asleep or app.run_name != run_name:
            return False
        app.address = ""
        app.save(update_fields=["address"])
    return True


def wake(pk: int, by: str) -> None:
    """Start an application that sleeps: a request has come. While its last run is being stopped nothing happens.

    Raises Missing.
    """
    with locked(Application, pk=pk) as app:
        wake_locked(app, by)


def wake_locked(app: Application, by: str) -> None:
    """Start a locked application that sleeps; without free resources it is queued. Where `start_app` would refuse it
    fails with that reason, so that the request which has come is refused with it, too.
    """
    if app.state != State.READY or not app.asleep or app.trashed is not None:
        return
    if app.run_name:
        _use_again(app, by)
        return
    app.wake(by=by)
    app.not_before, app.queued = None, timezone.now()
    app.save()
    tcc.withdraw(id=lifecycle.request_id(app.pk), applier=lifecycle.APPLIER)  # the settled request of its last time
    try:
        lifecycle.require_startable(app)
    except Missing:
        reason = Message("its owner is not in the tenant %(tenant)s any more", tenant=app.tenant.name)
        lifecycle.fail(app.pk, reason, by)
    except Refused as refused:
        lifecycle.fail(app.pk, refused.msg, by)
    else:
        lifecycle.reserve(app)


def _use_again(app: Application, by: str) -> None:
    """Use the last run of a locked application that sleeps again, unless it is being stopped, or may not be used."""
    try:
        members.chosen(app.user, app.tenant.name)  # who has left the tenant uses nothing of it any more
    except Refused:
        return
    if app.address:
        app.wake(by=by)
        app.up(by=by)
        app.not_before, app.ready_since = None, timezone.now()
        app.save()
        runs.go_on(app, app.run_name)
