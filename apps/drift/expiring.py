"""Deletes what drift has kept of records: for as long as records are kept themselves."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Min

from kernel import clock

from ..models import DriftCheck, DriftWindow
from ..records import plan, retention


def run(now: datetime) -> None:
    """Delete windows whose records are too old, and references that were made of such. Called by reconcile."""
    settled = clock.settled(now)
    checks = DriftCheck.objects.select_related("app__tenant", "app__recording").defer("profile")
    for check in checks.annotate(oldest=Min("app__drift_windows__end")):
        row = getattr(check.app, "recording", None)
        until = settled - timedelta(days=plan.kept_days(row) if row is not None else plan.MAX_DAYS)
        if check.oldest is not None and check.oldest < until:
            DriftWindow.objects.filter(app=check.app_id, end__lt=until).delete()
        if check.until is not None and check.profiled is not None and check.until < until:
            mine = DriftCheck.objects.filter(pk=check.pk, changes=check.changes)
            mine.update(profile=None, profiled=None, problem=retention.GONE)
