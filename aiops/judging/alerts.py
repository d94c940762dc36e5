"""Alert rules: checks whether one fires, and notifies its owner. `check` is called by the housekeeping service.

The log store is queried before the rule's row is locked; the lock then decides which of several replicas notifies.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction

from accounts import notices
from aiops import logstore
from aiops.models import Alert, AlertRule, LogLine, Template
from aiops.wire import kv, watchlist
from kernel.errors import Fault
from kernel.locking import lock_row
from kernel.messages import Message, under

from .log_search import NAMES

log = logging.getLogger(__name__)

MOST_LOOKED_AT = 100  # workloads with the most anomalies, of which the first with all its names is used
SETTLED = timedelta(seconds=30)  # a template's first line has its verdict by then, and so a workload


@dataclass(frozen=True)
class Finding:
    """What a rule fires about."""

    words: Message
    workload: str
    count: int


def check(now: datetime) -> int:
    """Notify the owners of all rules that fire and are not in their cooldown; return how many.

    A rule that cannot be checked is logged and tried again; the others are still checked.
    """
    fired = 0
    for rule in AlertRule.objects.filter(enabled=True):
        if _quiet(rule, now):
            continue
        try:
            finding = LOOKS[rule.kind](rule, now)
        except (Fault, ValueError) as problem:  # ValueError: the watchlist in the key-value store is invalid
            log.warning("alert rule %s could not be checked: %s", rule.name, problem)
            continue
        fired += _settle(rule, now, finding)
    return fired


def _quiet(rule: AlertRule, now: datetime) -> bool:
    return rule.last_fired is not None and now < rule.last_fired + timedelta(seconds=rule.quiet_s)


def _settle(seen: AlertRule, now: datetime, finding: Finding | None) -> bool:
    with transaction.atomic():
        rule = lock_row(AlertRule, pk=seen.pk)
        if rule is None or not rule.enabled or _quiet(rule, now):
            return False
        rule.checked = max(rule.checked, now - SETTLED)
        if finding is not None:
            rule.last_fired = now
            Alert.objects.create(rule=rule, at=now, words=finding.words, workload=finding.workload, count=finding.count)
            reason = under(finding.workload, finding.words)
            notices.notify(user=rule.owner, kind="alert", name=rule.name, event="alert", reason=reason)
        rule.save(update_fields=["checked", "last_fired"])
        return finding is not None


def _names(rule: AlertRule) -> tuple[str, str, str]:
    return rule.cluster, rule.namespace, rule.deployment


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _rate(rule: AlertRule, now: datetime) -> Finding | None:
    """Return the workload with the most anomalies in the window, if they are enough; a line without names belongs to
    none.
    """
    bounds = {"gte": _ms(now - timedelta(seconds=rule.window_s)), "lt": _ms(now)}
    wanted: list[dict] = [{"range": {"time": bounds}}, {"term": {"anomaly_level": "Anomaly"}}]
    wanted += [{"term": {field: name}} for field, name in zip(NAMES.values(), _names(rule), strict=True) if name]
    rows = logstore.get().by_workload({"query": {"bool": {"filter": wanted}}}, MOST_LOOKED_AT)
    names, count = next(((row[:3], row[3]) for row in rows if row[1] and row[2]), (None, 0))
    if names is None or count < rule.threshold:
        return None
    words = Message("%(count)s anomalies within %(seconds)s s", count=count, seconds=rule.window_s)
    return Finding(words, "/".join(names), count)


def _new_template(rule: AlertRule, now: datetime) -> Finding | None:
    after, until = _ms(rule.checked), _ms(now - SETTLED)
    fresh = Template.objects.filter(first__gt=after, first__lte=until)
    texts = {int(one.template_id): one.text for one in fresh if one.template_id.isdigit()}
    if not texts:
        return None
    watched = watchlist.triples(kv.watched() or {})
    asked = {"cluster": rule.cluster, "namespace": rule.namespace, "deployment": rule.deployment}
    lines = LogLine.objects.filter(template_id__in=texts, **{name: value for name, value in asked.items() if value})
    rows = lines.order_by().values_list("cluster", "namespace", "deployment", "template_id").distinct()
    new = sorted((row[:3], row[3]) for row in rows if row[:3] in watched)
    if not new:
        return None
    count = len({number for _names, number in new})
    names, number = new[0]
    words = Message("%(count)s new templates, for example: %(template)s", count=count, template=texts[number][:500])
    return Finding(words, "/".join(names), count)


def _missing(rule: AlertRule, now: datetime) -> Finding | None:
    """Return workloads with lines since the last alert (or the rule's start) and none in the window: one alert for each
    silence.
    """
    window = timedelta(seconds=rule.window_s)
    since, begin = now - window, (rule.last_fired or rule.created) - window
    silent = logstore.get().gone_quiet(_names(rule), _ms(begin), _ms(since), _ms(now))
    if not silent:
        return None
    shown = ", ".join("/".join(names) for names in silent[:10])
    words = Message("no log lines for %(seconds)s s: %(workloads)s", seconds=rule.window_s, workloads=shown)
    return Finding(words, "/".join(silent[0]), len(silent))


LOOKS = {"rate": _rate, "new_template": _new_template, "missing": _missing}
