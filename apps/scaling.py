"""Between the rows of replicas and their runs: how many there should be, and what is next for each.

Called by actors and by reconcile each round; no lock is held while a runner or a replica is asked.
"""

from __future__ import annotations

import contextlib

from django.conf import settings
from django.db.models import Q, QuerySet

from kernel import after_commit, healing
from kernel.locking import Missing
from runners import owned

from . import demand, launching, replicas, sleeping
from .models import Application, Replica, State
from .second_launching import SecondRuns

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
        replica.app = app
        with contextlib.suppress(Missing):
            STEPS[replica.phase](replica)
    if figures is not None and _is_unused(app, figures):
        if launching.has_work(
            app.run_name, app.address
        ):  # of a visitor with a session, whose requests are not in the figures
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


class ReplicaRuns(SecondRuns[Replica]):
    """The run of each replica, one after the other."""

    model = Replica

    def come_up(self, row: Replica, address: str) -> None:
        replicas.ready(row.pk, row.run_name, address)

    def lose(self, row: Replica, reason: str, requested: bool = False) -> None:
        """Record the end of a run, once it is gone."""
        if owned.stop(row.run_name, 0):
            replicas.lose(row.pk, row.run_name, reason, requested)


RUNS = ReplicaRuns()


def _waiting(replica: Replica) -> None:
    """Do nothing: `replicas.order` tries again."""


def _ending(replica: Replica) -> None:
    """Stop the run once it has answered what it had, at the latest after the longest time of an answer."""
    if not owned.has_come(replica.not_before):
        return
    late = owned.seconds_since(replica.not_before) > settings.APP_ANSWER_S
    if not late and replica.app.state == State.READY and launching.has_work(replica.run_name, replica.address):
        return
    if not replica.run_name or owned.stop(replica.run_name, launching.STOP_GRACE_S):
        replicas.end(replica.pk, replica.run_name)


STEPS = {Phase.WAITING: _waiting, Phase.STARTING: RUNS.poll, Phase.READY: RUNS.poll, Phase.ENDING: _ending}
