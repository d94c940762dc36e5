"""The runs of rollouts: start the new one, look whether it is up, stop the other. Called by actors and reconcile.

Every step may be repeated, and no lock is held while a runner or the application is asked. What a killed process has
left is continued by reconcile: the rollout's row says which run is whose (apps.rollouts).
"""

from __future__ import annotations

import contextlib
import copy
import logging

from django.conf import settings
from django.db.models import F, Q

import runners
from jobs.packages import building
from kernel import after_commit, sockets, storage
from kernel.errors import Fault, Refused
from kernel.locking import Missing
from kernel.messages import Message
from models_app.models import Alias
from runners import owned

from . import canaries, launching, proof, request_rates, rollouts
from .models import Application, Rollout, State

log = logging.getLogger(__name__)
Phase = Rollout.Phase
BY = "alias"


def follow_registered(registered: int) -> None:
    """Let the applications that follow an alias of this registered model follow it."""
    for pk in Application.objects.filter(alias__registered=registered).values_list("pk", flat=True):
        with contextlib.suppress(Missing):
            rollouts.follow(pk, BY)


def follow_all() -> None:
    """Let every application follow its alias whose version has another model."""
    failed = Q(followers__rollout__phase=Phase.FAILED, followers__rollout__model=F("version__model"))
    aliases = Alias.objects.filter(followers__isnull=False).exclude(failed)
    behind = aliases.values_list("followers", "version__model")
    serves = dict(Application.objects.filter(alias__isnull=False).values_list("pk", "model"))
    for pk, model in behind:
        if model is not None and serves.get(pk) != model:
            with contextlib.suppress(Missing):
                rollouts.follow(pk, BY)


def step(pk: int, follow: bool = True) -> None:
    """Do what is next for a rollout; look at it again soon if `follow`."""
    rollout = Rollout.objects.select_related("app__user", "app__tenant", "model__user").filter(pk=pk).first()
    if rollout is None or rollout.app.state == State.DELETING:
        return
    with contextlib.suppress(Missing):
        STEPS[rollout.phase](rollout)
    left = Rollout.objects.filter(pk=pk).exclude(phase__in=[Phase.WAITING, Phase.CANARY, Phase.FAILED]).exists()
    if follow and left:
        after_commit.enqueue("apps.rollout", pk, delay_ms=launching.LOOK_AGAIN_MS)


def as_rolled_out(rollout: Rollout) -> Application:
    """Return the application as it will be: with the model, the run and the files of the rollout. Not to be saved."""
    app = copy.copy(rollout.app)
    app.model, app.run_name, app.slot = rollout.model, rollout.run_name, rollouts.slot_of(rollout)
    app.ordered = rollout.ordered
    return app


def _starting(rollout: Rollout) -> None:
    runner, coming = runners.get(), as_rolled_out(rollout)
    status = runner.poll(rollout.run_name)
    too_old = owned.seconds_run(status, rollout.ordered) > settings.APP_START_S
    if status.state == "unknown" and not too_old:
        try:
            if not launching.has_packages(coming):
                rollouts.note_installing(rollout.pk, rollout.run_name)
                return
            earlier = launching.log_path(coming)
            storage.clear(earlier.parent, only={earlier.name})  # the old run may have put a link in the folder's place
            runner.start(launching.spec_of(coming))
        except building.Failed as problem:
            rollouts.fail(rollout.pk, rollout.run_name, problem.reason)
        except (Refused, ValueError) as problem:
            rollouts.fail(rollout.pk, rollout.run_name, _not_started(problem))
        except (Fault, runners.RunnerError, OSError):
            log.warning("the run %s could not be started; it is tried again", rollout.run_name, exc_info=True)
    elif status.state == "running" or too_old:
        address = runner.address(rollout.run_name)
        if address and proof.is_given(address, rollout.run_name, launching.PROBE_S):
            canaries.begin(rollout.pk, rollout.run_name, sockets.text(address), alias=BY)
        elif too_old:
            reason = Message("did not answer within %(seconds)s s", seconds=settings.APP_START_S)
            rollouts.fail(rollout.pk, rollout.run_name, reason)
    else:
        reason = status.reason or Message("the run no longer exists")
        rollouts.fail(rollout.pk, rollout.run_name, owned.with_log(reason, launching.log_path(coming)))


def _not_started(problem: Exception) -> str:
    return storage.without_root(Message("could not be started: %(problem)s", problem=problem))


def _canary(rollout: Rollout) -> None:
    """End the canary where its run has ended or breaks a rule, else begin the next step when its time has come."""
    coming = as_rolled_out(rollout)
    status = runners.get().poll(rollout.run_name)
    if status.state != "running":
        reason = status.reason or Message("the run no longer exists")
        if reason.startswith(runners.STOPPED):
            canaries.restart(rollout.pk, rollout.run_name)
        else:
            rollouts.fail(rollout.pk, rollout.run_name, owned.with_log(reason, launching.log_path(coming)))
        return
    traffic = request_rates.read_run(coming)
    found = (traffic.requests, traffic.errors, traffic.slow) if traffic is not None else (0, 0, None)
    problem = canaries.broken_rule(rollout.app.canary, *found)
    if problem is not None:
        rollouts.fail(rollout.pk, rollout.run_name, problem)
    else:
        canaries.advance(rollout, BY)


def _restarting(rollout: Rollout) -> None:
    if rollout.app.run_name == rollout.run_name:
        runners.get().stop(rollout.run_name, launching.STOP_GRACE_S)
    else:
        rollouts.take_over(rollout.pk, rollout.by or BY)


def _ending(rollout: Rollout) -> None:
    if not owned.has_come(rollout.not_before):
        return
    if not rollout.run_name or owned.stop(rollout.run_name, launching.STOP_GRACE_S):
        rollouts.end(rollout.pk, rollout.run_name)


def _waiting(rollout: Rollout) -> None:
    if rollout.by:
        rollouts.proceed(rollout.pk)
    else:
        rollouts.follow(rollout.app_id, BY)


def _failed(rollout: Rollout) -> None:
    """Do nothing: the owner decides."""


STEPS = {
    Phase.WAITING: _waiting,
    Phase.STARTING: _starting,
    Phase.CANARY: _canary,
    Phase.RESTARTING: _restarting,
    Phase.ENDING: _ending,
    Phase.FAILED: _failed,
}
