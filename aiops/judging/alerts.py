"""Alert rules: checks whether one fires, and notifies those whom it concerns. `check` is called by the housekeeping
service.

The log store is queried before the rule's row is locked; the lock then decides which of several replicas notifies.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils.http import urlencode

from accounts import notices
from aiops import logstore
from aiops.models import Alert, AlertRule, LogLine, Template
from kernel.errors import Fault, Refused
from kernel.locking import lock_row
from kernel.messages import Message, under, with_lines

from . import log_search, rate_alerts, rules, session_alerts, watching
from .findings import Finding

log = logging.getLogger(__name__)

MAX_LOOKED_AT = 100  # workloads with the most anomalies, of which the first with all its names is used
SETTLED = timedelta(seconds=30)  # a template's first line has its verdict by then, and so a workload
SAMPLES, SAMPLE = 5, 300  # lines in an alert, characters of each
LOOKS_A_WINDOW = 60  # how often a rule is checked within its time window, at most
UNEVEN_S = 1.0  # by which two checks may follow each other sooner than planned: a rule that was due then is not late


def check(now: datetime) -> int:
    """Notify the owners and recipients of all rules that fire and are neither muted nor in their cooldown; return how
    many fired.

    A rule that cannot be checked is logged and tried again; the others are still checked. One whose owner may no
    longer see the lines is not checked.
    """
    fired = 0
    AlertRule.objects.filter(muted_until__gt=now, checked__lt=now - SETTLED).update(checked=now - SETTLED)
    due = AlertRule.objects.filter(enabled=True).exclude(Q(next_check__gt=now) | Q(muted_until__gt=now))
    for rule in due.select_related("owner", "search"):
        if _quiet(rule, now) or not rules.allowed(rule):
            continue
        try:
            finding = LOOKS[rule.kind](rule, now)
            samples = _samples(rule, finding)
        except (Fault, Refused) as problem:
            log.warning("alert rule %s could not be checked: %s", rule.name, problem)
            continue
        fired += _settle(rule, now, finding, samples)
    return fired


def _quiet(rule: AlertRule, now: datetime) -> bool:
    return rule.last_fired is not None and now < rule.last_fired + timedelta(seconds=rule.quiet_s)


def _settle(seen: AlertRule, now: datetime, finding: Finding | None, samples: list[dict]) -> bool:
    with transaction.atomic():
        rule = lock_row(AlertRule, pk=seen.pk)
        if rule is None or not rule.enabled or _quiet(rule, now) or rules.muted(rule, now):
            return False
        rule.owner = seen.owner
        rule.checked = max(rule.checked, now - SETTLED)
        rule.next_check = now + timedelta(seconds=rule.window_s / LOOKS_A_WINDOW - UNEVEN_S)
        if finding is not None:
            rule.last_fired = now
            _notify(rule, now, finding, samples)
        rule.save(update_fields=["checked", "next_check", "last_fired"])
        return finding is not None


def _notify(rule: AlertRule, now: datetime, finding: Finding, samples: list[dict]) -> None:
    link = _link(finding)
    alert = Alert.objects.create(
        rule=rule, at=now, words=finding.words, workload=finding.workload, count=finding.count, samples=samples,
        link=link,
    )  # fmt: skip
    if finding.rates:
        alert.rates.set(finding.rates)
    reason = with_lines(under(finding.workload, finding.words), [sample["log"] for sample in samples])
    for user in rules.audience(rule):
        notices.notify(user=user, kind="alert", name=rule.name, event="alert", reason=reason, link=link)


def _samples(rule: AlertRule, finding: Finding | None) -> list[dict]:
    """Return the newest lines of the finding, as far as the rule's owner may see them."""
    if finding is None or not finding.filters:
        return []
    rows, _more = logstore.get().search(log_search.body(rule.owner, **finding.filters), SAMPLES)
    return [{"id": row["_id"], "time": row["time"], "log": row["log"][:SAMPLE]} for row in rows]


def _link(finding: Finding) -> str:
    if finding.link:
        return finding.link
    address = reverse("aiops") if finding.filters else reverse("aiops_alerts")
    return f"{address}?{urlencode(finding.filters)}" if finding.filters else address


def _names(rule: AlertRule) -> tuple[str, str, str]:
    return rule.cluster, rule.namespace, rule.deployment


def _filters(rule: AlertRule, begin: datetime, end: datetime) -> dict[str, str]:
    """Return the filters of the lines that the rule is about, those of its search among them."""
    named = dict(zip(rules.NAMED, _names(rule), strict=True))
    searched = rule.search.filters if rule.search is not None else {}
    for name, value in named.items():
        if value and searched.get(name, value) != value:
            raise Refused("the search is about another %(name)s than the rule", field="search", name=name)
    times = {"since": str(_ms(begin)), "until": str(_ms(end))}
    return {name: value for name, value in {**named, **searched, **times}.items() if value} | {
        name: value for name, value in named.items() if value
    }


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _rate(rule: AlertRule, now: datetime) -> Finding | None:
    """Return the workload with the most anomalies in the window, if they are enough; a line without names belongs to
    none.
    """
    filters = _filters(rule, now - timedelta(seconds=rule.window_s), now) | {"level": "Anomaly"}
    rows = logstore.get().by_workload(log_search.body(rule.owner, **filters), MAX_LOOKED_AT)
    names, count = next(((row[:3], row[3]) for row in rows if row[1] and row[2]), (None, 0))
    if names is None or count < rule.threshold:
        return None
    words = Message("%(count)s anomalies within %(seconds)s s", count=count, seconds=rule.window_s)
    if count == 1:
        words = Message("1 anomaly within %(seconds)s s", seconds=rule.window_s)
    return Finding(words, "/".join(names), count, filters | dict(zip(rules.NAMED, names, strict=True)))


def _new_template(rule: AlertRule, now: datetime) -> Finding | None:
    after, until = _ms(rule.checked), _ms(now - SETTLED)
    fresh = Template.objects.filter(first__gt=after, first__lte=until)
    texts = {int(template.template_id): template.text for template in fresh if template.template_id.isdigit()}
    if not texts:
        return None
    watched = watching.triples()
    asked = {"cluster": rule.cluster, "namespace": rule.namespace, "deployment": rule.deployment}
    lines = LogLine.objects.filter(template_id__in=texts, **{name: value for name, value in asked.items() if value})
    rows = lines.order_by().values_list("cluster", "namespace", "deployment", "template_id").distinct()
    new = sorted((row[:3], row[3]) for row in rows if row[:3] in watched)
    if not new:
        return None
    count = len({number for _names, number in new})
    names, number = new[0]
    words = Message("%(count)s new templates, for example: %(template)s", count=count, template=texts[number][:500])
    shown = dict(zip(rules.NAMED, names, strict=True)) | {"template": str(number), "since": str(after)}
    return Finding(words, "/".join(names), count, shown)


def _missing(rule: AlertRule, now: datetime) -> Finding | None:
    """Return workloads with lines since the last alert (or the rule's start) and none in the window: one alert for each
    silence.
    """
    window = timedelta(seconds=rule.window_s)
    since, begin = now - window, (rule.last_fired or rule.created) - window
    silent = logstore.get().silent_workloads(_names(rule), _ms(begin), _ms(since), _ms(now))
    if not silent:
        return None
    shown = ", ".join("/".join(names) for names in silent[:10])
    words = Message("no log lines for %(seconds)s s: %(workloads)s", seconds=rule.window_s, workloads=shown)
    return Finding(words, "/".join(silent[0]), len(silent), dict(zip(rules.NAMED, silent[0], strict=True)))


def _search(rule: AlertRule, now: datetime) -> Finding | None:
    """Return the lines of the saved search in the window, if they are enough."""
    filters = _filters(rule, now - timedelta(seconds=rule.window_s), now)
    count = logstore.get().count(log_search.body(rule.owner, **filters))
    if count < rule.threshold:
        return None
    words = Message("%(count)s lines of the search %(search)s within %(seconds)s s", count=count,
                    search=rule.search.name, seconds=rule.window_s)  # fmt: skip
    if count == 1:
        words = Message("1 line of the search %(search)s within %(seconds)s s",
                        search=rule.search.name, seconds=rule.window_s)  # fmt: skip
    return Finding(words, _about(rule), count, filters)


def _change(rule: AlertRule, now: datetime) -> Finding | None:
    """Return the lines in the window, if they are more or fewer than in the same time before by so many percent.

    Where neither of the two has `threshold` lines, nothing is said: a few lines vary by chance.
    """
    window = timedelta(seconds=rule.window_s)
    spans = _filters(rule, now - window, now), _filters(rule, now - 2 * window, now - window)
    count, before = (logstore.get().count(log_search.body(rule.owner, **filters)) for filters in spans)
    up, down = (
        rule.direction in (direction, rule.Direction.BOTH) for direction in (rule.Direction.UP, rule.Direction.DOWN)
    )
    rose = up and count > before and count * 100 >= before * (100 + rule.percent)
    fell = down and count < before and count * 100 <= before * (100 - rule.percent)
    if max(count, before) < rule.threshold or not (rose or fell):
        return None
    words = Message("%(count)s lines within %(seconds)s s, %(before)s in the same time before", count=count,
                    before=before, seconds=rule.window_s)  # fmt: skip
    if count == 1:
        words = Message("1 line within %(seconds)s s, %(before)s in the same time before",
                        before=before, seconds=rule.window_s)  # fmt: skip
    return Finding(words, _about(rule), count, spans[0] if rose else spans[1])


def _about(rule: AlertRule) -> str:
    return "/".join(name or "*" for name in _names(rule))


LOOKS = {
    "rate": _rate,
    "new_template": _new_template,
    "missing": _missing,
    "search": _search,
    "change": _change,
    "template_rate": rate_alerts.find,
    "session": session_alerts.find,
}
