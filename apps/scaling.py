"""Between the rows of replicas and their runs: how many there should be, and what is next for each.

Called by actors and by reconcile each round; no lock is held while a runner or a replica is asked.
"""

from __future__ import annotations

import contextlib
import copy
import http.client
import logging

from django.conf import settings
from django.db.models import Q, QuerySet

import runners
from jobs.packages import building
from kernel import after_commit, healing, outbound, sockets, storage
from kernel.errors import Fault, Refused
from kernel.locking import Missing
from kernel.messages import Message
from runners import STOPPED, owned

from . import demand, launching, proof, replicas, sleeping
from .models import Application, Replica, State

log = logging.getLogger(__name__)
Phase = Replica.Phase
BY = "scaling"
MOVING = (Phase.STARTING, Phase.ENDING)


def scaled() -> QuerySet:
    """Return the applications with other than one run at all times, or with replicas that are left, or asleep."""
    several = Q(replicas_max__gt=1) | Q(replicas_min=0) | Q(replicas__isnull=False) | Q(asleep=True)
    return Application.objects.filter(several).distinct()


def run() -> None:
    """Do one round."""
    for pk in scaled().values_list("pk", flat=True):
        healing.attempt(step, pk, False)


def step(pk: int, follow: bool = True) -> None:
    """Order or end replicas of an application, do what is next for each, and let it sleep; look at it again soon if
    `follow`.
    """
    app = Application.objects.select_related("user", "tenant", "model").filter(pk=pk).first()
    if app is None:
        return
    figures = demand.read(pk)
    if figures is not None and app.state == State.READY:
        with contextlib.suppress(Missing):
            if not app.asleep:
                replicas.order(pk, replicas.wanted(app, figures[0]))
            elif figures[0] or app.replicas_min > 0:
                sleeping.wake(pk, BY)
    for replica in Replica.objects.filter(app=pk).order_by("pk"):
        with contextlib.suppress(Missing):
            STEPS[replica.phase](app, replica)
    if figures is not None and _is_unused(app, figures):
        if _has_work(app):  # of a visitor with a session, whose requests are not in the figures
            demand.note_request(pk)
        else:
            with contextlib.suppress(Missing):
                sleeping.rest(pk, app.run_name, BY)
    if follow and Replica.objects.filter(app=pk, phase__in=MOVING).exists():
        after_commit.enqueue("apps.scale", pk, delay_ms=launching.LOOK_AGAIN_MS)


def _is_unused(app: Application, figures: tuple[int, float | None]) -> bool:
    """Return whether nobody has asked an application that may sleep since MLP_APP_IDLE_S."""
    if app.replicas_min > 0 or app.state != State.READY or app.asleep or app.ready_since is None:
        return False
    in_work, asked_s = figures
    up_s = owned.seconds_since(app.ready_since)
    return not in_work and min(up_s, up_s if asked_s is None else asked_s) >= settings.APP_IDLE_S


def as_replica(app: Application, replica: Replica) -> Application:
    """Return the application as this replica runs it: with its run and its files. Not to be saved."""
    other = copy.copy(app)
    other.run_name, other.slot, other.ordered = replica.run_name, replica.slot, replica.ordered
    return other


def _waiting(app: Application, replica: Replica) -> None:
    """Do nothing: `replicas.order` tries again."""


def _starting(app: Application, replica: Replica) -> None:
    runner, coming = runners.get(), as_replica(app, replica)
    status = runner.poll(replica.run_name)
    too_old = owned.seconds_run(status, replica.ordered) > settings.APP_START_S
    if status.state == "unknown" and not too_old:
        try:
            if not launching.has_packages(coming):
                replicas.note_installing(replica.pk, replica.run_name)
                return
            earlier = launching.log_path(coming)
            storage.clear(earlier.parent, only={earlier.name})  # another run may have put a link in its place
            runner.start(launching.spec_of(coming))
        except building.Failed as problem:
            _lose(replica, problem.reason)
        except (Refused, ValueError) as problem:
            _lose(replica, storage.without_root(Message("could not be started: %(problem)s", problem=problem)))
        except (Fault, runners.RunnerError, OSError):
            log.warning("the run %s could not be started; it is tried again", replica.run_name, exc_info=True)
    elif status.state == "running" or too_old:
        address = runner.address(replica.run_name)
        if address and proof.is_given(address, replica.run_name, launching.PROBE_S):
            replicas.ready(replica.pk, replica.run_name, sockets.text(address))
        elif too_old:
            _lose(replica, Message("did not answer within %(seconds)s s", seconds=settings.APP_START_S))
    else:
        _ended(coming, replica, status)


def _ready(app: Application, replica: Replica) -> None:
    status = runners.get().poll(replica.run_name)
    if status.state != "running":
        _ended(as_replica(app, replica), replica, status)


def _ended(coming: Application, replica: Replica, status: runners.RunStatus) -> None:
    reason = status.reason or Message("the run no longer exists")
    requested = replica.phase == Phase.READY and reason.startswith(STOPPED)
    _lose(replica, owned.with_log(reason, launching.log_path(coming)), requested)


def _lose(replica: Replica, reason: str, requested: bool = False) -> None:
    """Record the end of a run, once it is gone."""
    if owned.stop(replica.run_name, 0):
        replicas.lose(replica.pk, replica.run_name, reason, requested)


def _ending(app: Application, replica: Replica) -> None:
    """Stop the run once it has answered what it had, at the latest after the longest time of an answer."""
    if not owned.has_come(replica.not_before):
        return
    late = owned.seconds_since(replica.not_before) > settings.APP_ANSWER_S
    if replica.run_name and not late and app.state == State.READY and _has_work(replica):
        return
    if not replica.run_name or owned.stop(replica.run_name, launching.STOP_GRACE_S):
        replicas.end(replica.pk, replica.run_name)


def _has_work(replica: Replica | Application) -> bool:
    """Return whether requests are in work at a replica or the application's own run; False where it does not say so."""
    if not replica.address:
        return False
    headers = proof.headers(replica.run_name)
    try:
        address = sockets.parse(replica.address)
        status, body = outbound.exchange(
            address, "GET", proof.LOAD, headers=headers, limit_s=launching.PROBE_S, most=100
        )
        return status == 200 and int(body.split()[0]) > 0
    except (OSError, ValueError, IndexError, http.client.HTTPException):
        return False


STEPS = {Phase.WAITING: _waiting, Phase.STARTING: _starting, Phase.READY: _ready, Phase.ENDING: _ending}
