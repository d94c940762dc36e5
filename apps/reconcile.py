"""What watches and heals applications: looks at each that should be up, and does again what a lost message should have.

Called by `manage.py reconcile` each round and at its start, so an application whose run ended while the platform was
down is found then. One that cannot be looked at does not keep the others from it.
"""

from __future__ import annotations

import logging

from django.utils import timezone

from mlp.kernel import after_commit

from . import launching
from .models import Application, State

log = logging.getLogger(__name__)


def run() -> None:
    should_be_up = Application.objects.select_related("user", "model").filter(state__in=[State.CREATING, State.READY])
    for app in should_be_up:
        if not app.run_name and app.not_before and app.not_before > timezone.now():
            continue
        try:
            launching.look(app)
        except Exception:  # the next round may find it healed
            log.exception("application %s could not be looked at", app)
    launching.sweep()
    for pk in Application.objects.filter(state=State.DELETING).values_list("pk", flat=True)[:200]:
        after_commit.enqueue("apps.erase", pk)
