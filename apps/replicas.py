"""The verbs of replicas: an application has more runs than its own one, each with resources of its own.

`order` makes them as many as are wanted (apps.scaling says how many), `take_over` lets one become the application's own
when that has ended by itself. Each holds the application's lock. The resources of a replica are tried when its run is
ordered, confirmed when that is up, and released when it is gone; what does not fit waits, with the reason.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from accounts.tenancy import members
from kernel import after_commit, trash
from kernel.locking import locked
from kernel.messages import Message
from resources import tcc
from runners import owned

from . import runs, second_runs, slots
from .lifecycle import APPLIER, BACKOFF_S, STEADY_AFTER_S
from .models import Application, Replica, Rollout, State
from .replica_range import COLUMNS, configure
from .rollouts import REMEMBERED_S
from .second_runs import WAIT_S, locked_run
from .sleeping import wake_locked

Phase = Replica.Phase


def set_replicas(*, user, name: str, by: str, **given: int) -> Application:
    """Set how many replicas an application has: from `min` to `max` of them, so that each has at most `target` requests
    at once. With `min` 0 it sleeps while nobody asks. What is not given stays as it is.

    Raises Missing, also for more than there may be now where the owner is not in the tenant any more; Refused for
    numbers that do not go together, and for more than the tenant has.
    """
    with locked(Application, user=user, name=name) as app:
        trash.require_kept(app)
        if given.get("min", 0) > app.replicas_min or given.get("max", 0) > app.replicas_max:
            members.chosen(user, app.tenant.name)  # who has left the tenant uses no more of it
        configure(app, given)
        app.save(update_fields=COLUMNS)
        if app.asleep and app.replicas_min > 0:
            wake_locked(app, by)
        after_commit.enqueue("apps.scale", app.pk)
        _changed(app)
    return app


def wanted(app: Application, demand: int) -> int:
    """Return how many runs the application should have while `demand` requests are in work or wait."""
    least, most = max(app.replicas_min, 1), app.replicas_max
    if app.target is None:
        return least
    return min(max(math.ceil(demand / app.target), least), most)


def order(pk: int, count: int) -> bool:
    """Make the replicas of a ready application so many that it has `count` runs with its own; return whether something
    has changed.

    More are ordered at once, fewer are ended when fewer would have been enough for MLP_APP_SCALE_IN_S. Those of an
    earlier model are replaced one after the other.
    """
    with locked(Application, pk=pk) as app:
        if app.state != State.READY or app.asleep or app.trashed is not None:
            return False
        rows = list(Replica.objects.filter(app=app).exclude(phase=Phase.ENDING).order_by("pk"))
        current = [row for row in rows if row.generation == app.generation]
        missing = count - 1 - len(current)
        ended = _replace(app, [row for row in rows if row.generation != app.generation], current, count - 1)
        for _number in range(missing):
            _start(app, Replica(app=app, slot=slots.free(app), generation=app.generation))
        for row in current:
            if missing >= 0 and row.phase == Phase.WAITING and owned.has_come(row.not_before):
                _start(app, row)
        ended += _shrink(app, current, -missing)
    return missing > 0 or bool(ended)


def _replace(app: Application, earlier: list[Replica], current: list[Replica], count: int) -> list[Replica]:
    """End replicas of an earlier model: those that are not ready, and as many as there are ready ones of the new model;
    one more where the new ones find no room.
    """
    ready = sum(row.phase == Phase.READY for row in current)
    kept = max(count - ready - any(row.phase == Phase.WAITING and row.reason for row in current), 0)
    ending = [row for row in earlier if row.phase != Phase.READY]
    ending += [row for row in earlier if row.phase == Phase.READY][kept:]
    for row in ending:
        _drain(app, row)
    return ending


def _shrink(app: Application, current: list[Replica], surplus: int) -> list[Replica]:
    """End surplus replicas once they have been surplus for long enough; those that serve, last."""
    if surplus <= 0:
        if app.fewer_since is not None:
            app.fewer_since = None
            app.save(update_fields=["fewer_since"])
        return []
    if app.fewer_since is None:
        app.fewer_since = timezone.now()
        app.save(update_fields=["fewer_since"])
    if (timezone.now() - app.fewer_since).total_seconds() < settings.APP_SCALE_IN_S:
        return []
    app.fewer_since = None
    app.save(update_fields=["fewer_since"])
    rank = {Phase.WAITING: 0, Phase.STARTING: 1, Phase.READY: 2}
    ending = sorted(current, key=lambda row: (rank[row.phase], -row.pk))[:surplus]
    for row in ending:
        _drain(app, row)
    return ending


def _start(app: Application, replica: Replica) -> None:
    """Reserve what the replica needs and order its run; without room it waits."""
    replica.save()
    refused = second_runs.reserve(app, replica)
    if refused is not None:
        replica.wait(_after(WAIT_S), reason=Message("there is no room: %(reason)s", reason=refused.msg))
    else:
        second_runs.order(app, replica, app.model)
    replica.save()
    _changed(app)


def ready(pk: int, run_name: str, address: str) -> None:
    """Record that a replica's run is up at `address`: requests go there, too."""
    with locked_run(Replica, pk, run_name=run_name) as (app, replica):
        if replica is not None and replica.phase == Phase.STARTING:
            replica.up(address)
            replica.save()
            runs.come_up(app, run_name)
            tcc.confirm(id=second_runs.resources_id(replica), applier=APPLIER)
            _changed(app)


def lose(pk: int, run_name: str, reason: str, requested: bool = False) -> None:
    """Record that a replica's run has ended, and is gone: its resources are released, and it is started again; at once
    where the end was `requested`, as with the platform, else after a pause, which grows with the failures.
    """
    with locked_run(Replica, pk, run_name=run_name) as (app, replica):
        if replica is None or replica.phase not in (Phase.STARTING, Phase.READY):
            return
        runs.end(app, run_name, runs.Outcome.RESTARTED if requested else runs.Outcome.FAILED, reason)
        if replica.ready_since and owned.seconds_since(replica.ready_since) > STEADY_AFTER_S:
            replica.failures = 0
        replica.failures = min(replica.failures + (not requested), len(BACKOFF_S))
        _wait_again(replica, "" if requested else reason)
        _changed(app)


def _wait_again(replica: Replica, reason: str) -> None:
    """Let a replica without a run wait for its next one."""
    pause = BACKOFF_S[min(replica.failures, len(BACKOFF_S)) - 1] if reason else 0
    replica.wait(_after(pause), reason=reason)
    second_runs.release(replica)
    replica.save()


def take_over(pk: int, run_name: str, reason: str) -> bool:
    """Let a ready replica become the application's own run, which has ended by itself; return whether one has.

    So the application stays ready. What has ended becomes a replica that is started again after a pause.
    """
    with locked(Application, pk=pk) as app:
        if app.run_name != run_name or app.state != State.READY or app.asleep:
            return False
        if Rollout.objects.filter(app=app, phase=Rollout.Phase.RESTARTING).exists():
            return False
        rows = Replica.objects.filter(app=app, phase=Phase.READY, generation=app.generation)
        replica = rows.order_by("pk").select_for_update(no_key=True).first()
        if replica is None:
            return False
        runs.end(app, run_name, runs.Outcome.FAILED, reason)
        slot = app.slot
        app.run_name, app.address, app.slot = replica.run_name, replica.address, replica.slot
        app.ordered, app.ready_since = replica.ordered, replica.ready_since
        app.save()
        replica.slot, replica.failures = slot, min(replica.failures + 1, len(BACKOFF_S))
        _wait_again(replica, reason)
        _changed(app)
    after_commit.enqueue("apps.scale", pk)
    return True


def _drain(app: Application, replica: Replica) -> None:
    """Send no more requests to a replica; it ends when it has answered those that it has."""
    runs.end(app, replica.run_name, runs.Outcome.SCALED_IN)
    replica.drain(_after(REMEMBERED_S))
    replica.save()
    _changed(app)


def end(pk: int, run_name: str) -> None:
    """Remove a replica whose run is gone, and release its resources."""
    with locked_run(Replica, pk, run_name=run_name) as (app, replica):
        if replica is not None and replica.phase == Phase.ENDING:
            _forget(replica)
            _changed(app)


def abandon(app_id: int) -> None:
    """Remove the replicas of an application that is being deleted; their runs are gone."""
    with locked(Application, pk=app_id) as app:
        if app.state == State.DELETING:
            for replica in Replica.objects.filter(app=app):
                _forget(replica)


def _forget(replica: Replica) -> None:
    second_runs.release(replica)
    replica.delete()


def _changed(app: Application) -> None:
    after_commit.changed(app.user.username, "application", app.name)


def _after(seconds: float) -> datetime:
    return timezone.now() + timedelta(seconds=seconds)
