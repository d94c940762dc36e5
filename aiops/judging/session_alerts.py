"""Alerts about unusual sessions: enough of them in one workload within the rule's time window."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Count
from django.urls import reverse
from django.utils.http import urlencode

from aiops.models import AlertRule, SessionAnomaly
from kernel.messages import Message

from . import rules, session_table
from .findings import Finding


def find(rule: AlertRule, now: datetime) -> Finding | None:
    """Return the workload with the most sessions that were found in the window, and after the last alert, if they are
    enough.
    """
    since = max(now - timedelta(seconds=rule.window_s), rule.last_fired or rule.created)
    names = {f"clock__{name}": getattr(rule, name) for name in rules.NAMED if getattr(rule, name)}
    rows = SessionAnomaly.objects.filter(suppression=None, found__gt=since, found__lte=now, **names)
    counts = rows.order_by().values_list("clock").annotate(n=Count("pk")).order_by("-n", "clock")
    clock, count = counts.first() or (None, 0)
    if clock is None or count < rule.threshold:
        return None
    newest = rows.filter(clock=clock).select_related("clock").order_by("-since", "-pk").first()
    if newest is None:  # removed meanwhile
        return None
    why = session_table.describe(newest.reasons[0]) if newest.reasons else ""
    if count == 1:
        words = Message("unusual session %(value)s: %(why)s", value=newest.value, why=why)
    else:
        words = Message("%(count)s unusual sessions within %(seconds)s s, for example %(value)s: %(why)s",
                        count=count, seconds=rule.window_s, value=newest.value, why=why)  # fmt: skip
    filters = session_table.filters(newest)
    page = f"{reverse('aiops_workload')}?{urlencode({name: filters[name] for name in rules.NAMED})}"
    return Finding(words, str(newest.clock), count, filters, page)
