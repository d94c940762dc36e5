"""The reconciliation of applications: polls each that should be up, and repeats what a lost message should have done.

Called by `manage.py reconcile` each round and at its start, so that an application whose run ended while the platform
was down is restarted. An error with one application does not affect the others.
"""

from __future__ import annotations

from django.db.models import Q, QuerySet
from django.utils import timezone

from kernel import after_commit, healing
from runners import owned

from . import key_tokens, keys, launching, queueing, request_rates, scaling, switching, trash
from .drift import expiring
from .drift import plan as looking
from .models import Application, AppRun, Replica, Rollout, State
from .records import collecting, retention
from .shadows import copying

_announced: dict[int, float] = {}  # application > the time of the request rates that open pages were refreshed for


def _announce_requests(app: Application) -> None:
    """Refresh the open pages if the request rates have changed since the last round."""
    at = request_rates.changed_at(app)
    if _announced.get(app.pk, at) != at:
        after_commit.changed(app.user.username, "application", app.name, moving=True)
    _announced[app.pk] = at


def run() -> None:
    """Do one round."""
    healing.attempt(queueing.admit)
    should_be_up = Application.objects.select_related("user", "model").filter(state__in=[State.CREATING, State.READY])
    for app in should_be_up.filter(reserved=True, asleep=False):
        if not app.run_name and not owned.has_come(app.not_before):
            continue
        healing.attempt(launching.poll, app)
        healing.attempt(_announce_requests, app)
    healing.attempt(switching.follow_all)
    healing.attempt(scaling.run)
    for pk in _rollouts().values_list("pk", flat=True):
        healing.attempt(switching.step, pk, False)
    # In any order: those whose models are slow must not always come first.
    for pk in Rollout.objects.filter(phase=Rollout.Phase.SHADOW).order_by("?").values_list("shadow", flat=True):
        after_commit.enqueue("apps.shadow", pk)
    healing.attempt(launching.sweep)
    healing.attempt(keys.collect)
    healing.attempt(key_tokens.collect)
    healing.attempt(collecting.collect)
    healing.attempt(retention.run, timezone.now())
    healing.attempt(copying.expire)
    healing.attempt(looking.look_all, timezone.now())
    healing.attempt(expiring.run, timezone.now())
    healing.attempt(keys.warn, timezone.now())
    healing.attempt(trash.purge, timezone.now())
    for pk, run_name in _stopping().values_list("pk", "run_name"):
        healing.attempt(launching.stop, pk, run_name, False)
    for pk in Application.objects.filter(state=State.DELETING).values_list("pk", flat=True)[:200]:
        after_commit.enqueue("apps.erase", pk, False)


def pending() -> list[QuerySet]:
    """Return what a round is needed for: applications that should be up, and what a lost message may have left."""
    states = Application.objects.filter(state__in=[State.CREATING, State.READY, State.DELETING])
    return [states, _rollouts(), _stopping(), Replica.objects.all(), looking.due(timezone.now()), _counting()]


def _counting() -> QuerySet:
    return AppRun.objects.filter(Q(tokens__isnull=False) | Q(records__isnull=False))


def _rollouts() -> QuerySet:
    return Rollout.objects.exclude(phase=Rollout.Phase.FAILED)


def _stopping() -> QuerySet:
    return Application.objects.filter(Q(state=State.ERROR) | Q(asleep=True)).exclude(run_name="")
