"""What watches and heals applications: looks at each that should be up, and does again what a lost message should have.

Called by `manage.py reconcile` each round and at its start, so an application whose run ended while the platform was
down is found then. One that cannot be looked at does not keep the others from it.
"""

from __future__ import annotations

from django.utils import timezone

from kernel import after_commit, healing

from . import launching, request_rates
from .models import Application, State

_told: dict[int, float] = {}  # application > when it last told of its requests, as this process has passed it on


def _tell_of_traffic(app: Application) -> None:
    """The open pages look again where requests have been counted since the last round."""
    at = request_rates.told_at(app)
    if _told.get(app.pk, at) != at:
        after_commit.changed(app.user.username, "application", app.name, moving=True)
    _told[app.pk] = at


def run() -> None:
    should_be_up = Application.objects.select_related("user", "model").filter(state__in=[State.CREATING, State.READY])
    for app in should_be_up:
        if not app.run_name and app.not_before and app.not_before > timezone.now():
            continue
        healing.attempt(launching.look, app)
        healing.attempt(_tell_of_traffic, app)
    healing.attempt(launching.sweep)
    for pk in Application.objects.filter(state=State.DELETING).values_list("pk", flat=True)[:200]:
        after_commit.enqueue("apps.erase", pk, False)
