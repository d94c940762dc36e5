"""The runs of rollouts: start the new one, look whether it is up, stop the other. Called by actors and reconcile.

Every step may be repeated, and no lock is held while a runner or the application is asked. What a killed process has
left is continued by reconcile: the rollout's row says which run is whose (apps.rollouts).
"""

from __future__ import annotations

import contextlib

from django.db.models import F, Q

import runners
from kernel import after_commit
from kernel.locking import Missing
from models_app.models import Alias
from runners import RunStatus, owned

from . import canaries, launching, reported_metrics, request_rates, rollouts, second_runs
from .models import Application, Rollout, State
from .second_launching import SecondRuns
from .shadows import rows, verbs

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
    rollout = Rollout.objects.select_related("app__user", "app__tenant", "model__user", "shadow").filter(pk=pk).first()
    if rollout is None or rollout.app.state == State.DELETING:
        return
    with contextlib.suppress(Missing):
        STEPS[rollout.phase](rollout)
    left = (
        Rollout.objects.filter(pk=pk)
        .exclude(phase__in=[Phase.WAITING, Phase.CANARY, Phase.SHADOW, Phase.FAILED])
        .exists()
    )
    if follow and left:
        after_commit.enqueue("apps.rollout", pk, delay_ms=launching.LOOK_AGAIN_MS)


class RolloutRuns(SecondRuns[Rollout]):
    """The run of a rollout, of another model or of the same one again."""

    model = Rollout

    def come_up(self, row: Rollout, address: str) -> None:
        canaries.begin(row.pk, row.run_name, address, alias=BY)

    def running(self, row: Rollout, status: RunStatus, follow: bool) -> None:
        """End a canary that breaks a rule, else begin its next step when its time has come; end a shadow whose time is
        over.
        """
        super().running(row, status, follow)
        if row.phase == Phase.SHADOW and rows.is_over(row.shadow):
            verbs.end_over(row)
        if row.phase != Phase.CANARY:
            return
        traffic = request_rates.read_run(second_runs.as_application(row))
        counts = (traffic.requests, traffic.failures) if traffic is not None else (0, 0)
        requests, failures = canaries.in_step(row, *counts)
        problem = canaries.broken_rule(row.app.canary, requests, failures, traffic.slow if traffic else None)
        if problem is None and row.app.canary.get("metric"):
            problem = canaries.broken_metric(row.app.canary, reported_metrics.read(row)[reported_metrics.NEW])
        if problem is not None:
            self.lose(row, problem)
        else:
            canaries.advance(row, BY, judged=canaries.is_judged(row, requests))

    def lose(self, row: Rollout, reason: str, requested: bool = False) -> None:
        if requested:
            canaries.restart(row.pk, row.run_name)
        else:
            rollouts.fail(row.pk, row.run_name, reason)


RUNS = RolloutRuns()


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
    Phase.STARTING: RUNS.poll,
    Phase.CANARY: RUNS.poll,
    Phase.SHADOW: RUNS.poll,
    Phase.RESTARTING: _restarting,
    Phase.ENDING: _ending,
    Phase.FAILED: _failed,
}
