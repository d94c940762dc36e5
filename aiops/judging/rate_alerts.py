"""Alerts about templates that come too often or are silent: one for each anomaly, and one when it has ended."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils.http import urlencode

from accounts import notices
from aiops.models import Alert, AlertRule, RateAnomaly
from kernel.locking import lock_row
from kernel.messages import Message, under

from . import rules
from .findings import Finding
from .rate_minutes import names_of
from .usual_rates import WINDOW

Kind, Direction = RateAnomaly.Kind, AlertRule.Direction
MAX = 100  # anomalies of an alert
SHOWN = 300  # characters of a template


def find(rule: AlertRule, now: datetime) -> Finding | None:
    """Return the anomalies of one workload that go on and that the rule has not fired about."""
    rows = RateAnomaly.objects.filter(until__isnull=True).exclude(alerts__rule=rule).select_related("clock")
    often, silent = Q(kind=Kind.OFTEN, lines__gte=rule.threshold), Q(kind=Kind.SILENT)
    rows = rows.filter({Direction.UP: often, Direction.DOWN: silent}.get(rule.direction, often | silent))
    names = {f"clock__{name}": getattr(rule, name) for name in rules.NAMED if getattr(rule, name)}
    first = rows.filter(**names).order_by("pk").first()
    if first is None:
        return None
    anomalies = list(rows.filter(clock=first.clock).order_by("pk")[:MAX])
    workload = dict(zip(rules.NAMED, names_of(first.clock), strict=True))
    lines = {**workload, "template": str(first.template_id)}
    words = describe(first)
    if len(anomalies) > 1:
        words = Message(
            "%(count)s templates with unusual rates, for example: %(what)s", count=len(anomalies), what=words
        )
    return Finding(words, str(first.clock), len(anomalies), lines, page_of(first), anomalies)


def page_of(anomaly: RateAnomaly) -> str:
    """Return the address of the page about the template in its workload."""
    workload = dict(zip(rules.NAMED, names_of(anomaly.clock), strict=True))
    return f"{reverse('aiops_workload')}?{urlencode({**workload, 'template': anomaly.template_id})}"


def describe(anomaly: RateAnomaly) -> Message:
    """Return what was unusual, as a sentence."""
    since = datetime.fromtimestamp(anomaly.since / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    said = {"since": since, "template": anomaly.template[:SHOWN], "lines": anomaly.lines, "high": anomaly.high}
    if anomaly.kind == Kind.SILENT:
        return Message(
            "silent for %(lines)s active minutes, usually for %(high)s at most, since %(since)s UTC: %(template)s",
            **said,
        )
    return Message(
        "%(lines)s lines in %(minutes)s minutes, usually %(low)s to %(high)s, since %(since)s UTC: %(template)s",
        **said, low=anomaly.low, minutes=WINDOW,
    )  # fmt: skip


def tell_ends(now: datetime) -> None:
    """Notify those who had an alert when all that it was about has ended."""
    over = Alert.objects.filter(ended__isnull=True, rates__isnull=False).exclude(rates__until__isnull=True)
    for seen in over.distinct().select_related("rule__owner"):
        with transaction.atomic():
            alert = lock_row(Alert, pk=seen.pk)
            if alert is None or alert.ended is not None:
                continue
            alert.ended = now
            alert.save(update_fields=["ended"])
            rule = seen.rule
            notifies = rule.enabled and not rules.muted(rule, now) and rules.allowed(rule)
            if notifies and seen.rates.filter(recovered=True).exists():
                words = under(alert.workload, Message("ended, as usual again: %(what)s", what=alert.words))
                for user in rules.audience(rule):
                    notices.notify(
                        user=user, kind="alert", name=rule.name, event="alert", reason=words, link=alert.link
                    )
