"""Which templates come too often, or are silent: counts each watched workload's lines by minute, and compares them with
what is usual (usual_rates). `advance` is called by the service of the rates, of which one replica is active.

Lines are counted by their own time, a minute after it: each minute once, so that a restart counts none twice. Lines
that arrive later, or are sent again, change nothing. After a time in which nobody counted, lines may still arrive late,
and neither is anything learned nor judged for as long. What a workload's minutes give is written in one transaction.
"""

from __future__ import annotations

import logging
from datetime import datetime

from django.db import transaction
from django.db.models import F

from aiops import logstore
from aiops.logstore.base import MINUTE_MS, Names
from aiops.models import RateAnomaly, RateClock, TemplateRate
from kernel.database import reachable
from kernel.errors import Fault
from kernel.locking import lock_row

from . import suppressions, watching
from .rate_minutes import FIELDS, Minutes, names_of
from .usual_rates import DAY, Usual

log = logging.getLogger(__name__)

Kind = RateAnomaly.Kind
SETTLED = 1  # minutes after which a minute's lines are stored and judged
LAG = 5  # minutes; who is further behind has not counted for that long
CALM, MAX_CALM = 10, 60  # minutes after that in which nothing is judged
AT_ONCE = 60  # minutes that are counted together, of a workload that is new here
JUDGED = 0.95  # of the lines of a workload's last day, before it is counted
MAX_WORKLOADS = 1000  # that are counted
OVER = 10  # minutes as usual after which a template no longer comes too often
KEPT_MS = 30 * DAY * MINUTE_MS  # for which ended anomalies, and templates that do not come, are kept


def advance(now: datetime) -> None:
    """Count the minutes that are over, of all watched workloads. Raises Fault."""
    until = int(now.timestamp()) // 60 - SETTLED
    watched = sorted(watching.triples())[:MAX_WORKLOADS]
    with reachable():
        due = [clock for clock in _clocks(watched, until) if clock.minute < until]
    if not due:
        return
    current = [clock for clock in due if until - clock.minute <= LAG]
    busy = _busy(min((clock.minute for clock in current), default=until), until)
    idle = {clock.pk for clock in current if names_of(clock) not in busy}
    for clock in due:
        try:
            with reachable():
                if clock.pk in idle or not (clock.active or _begin(clock, until)):
                    continue
                while _count(clock, until):
                    pass
        except Fault as problem:
            log.warning("the lines of %s could not be counted by template: %s", clock, problem)
    with reachable():
        RateClock.objects.filter(pk__in=idle).update(minute=until)
        _end_bursts()
        _clean(until)


def forget(names: Names) -> None:
    """Forget what is usual in a workload whose lines are removed."""
    RateClock.objects.filter(**dict(zip(("cluster", "namespace", "deployment"), names, strict=True))).delete()


def _clocks(watched: list[Names], until: int) -> list[RateClock]:
    """Return the clocks of the watched workloads. Those of others are deleted, those that stood still are set."""
    known = {names_of(clock): clock for clock in RateClock.objects.all()}
    wanted = set(watched)
    RateClock.objects.filter(pk__in=[clock.pk for names, clock in known.items() if names not in wanted]).delete()
    for clock in known.values():
        behind = until - clock.minute
        if not clock.active:
            clock.minute = min(clock.minute, until - 1)
        elif behind > LAG or behind < -CALM:  # nobody counted, or the machine's clock was set back
            clock.minute, clock.calm_until = until, until + min(max(CALM, behind), MAX_CALM)
        else:
            continue
        RateClock.objects.filter(pk=clock.pk).update(minute=clock.minute, calm_until=clock.calm_until)
    fresh = [
        RateClock(cluster=cluster, namespace=namespace, deployment=deployment, minute=until - 1)
        for cluster, namespace, deployment in watched
        if (cluster, namespace, deployment) not in known
    ]
    RateClock.objects.bulk_create(fresh)
    return [*(known[names] for names in watched if names in known), *fresh]


def _busy(since: int, until: int) -> set[Names]:
    """Return the workloads with lines in these minutes."""
    if since >= until:
        return set()
    body = {"query": {"range": {"time": {"gte": since * MINUTE_MS, "lt": until * MINUTE_MS}}}}
    return {row[:3] for row in logstore.get().by_workload(body, 10 * MAX_WORKLOADS)}


def _begin(clock: RateClock, until: int) -> bool:
    """Let the first day count from its beginning, once almost all of its lines are judged; return whether they are.

    A workload is watched before a model is trained, and its stored lines are judged then, the newest first.
    """
    filters = [{"term": {field: name}} for field, name in zip(FIELDS, names_of(clock), strict=True)]
    filters.append({"range": {"time": {"gte": (until - DAY) * MINUTE_MS, "lt": until * MINUTE_MS}}})
    judged = [*filters, {"exists": {"field": "template_cluster_id"}}]
    store = logstore.get()
    lines = store.count({"query": {"bool": {"filter": judged}}})
    ready = lines > 0 and lines >= JUDGED * store.count({"query": {"bool": {"filter": filters}}})
    clock.minute = until - DAY if ready else until
    RateClock.objects.filter(pk=clock.pk).update(minute=clock.minute)
    return ready


def _count(clock: RateClock, until: int) -> bool:
    """Count the next minutes of a workload; return whether there are more."""
    end = min(until, clock.minute + AT_ONCE)
    minutes = Minutes(clock, end)
    minutes.run(judged_from=until - CALM)
    with transaction.atomic():
        row = lock_row(RateClock, pk=clock.pk)
        if row is None or row.minute != clock.minute:  # watched no longer, or counted by another
            return False
        if suppressions.Rates(names_of(clock)) != minutes.marked:  # somebody has marked one meanwhile
            return False
        row.minute, row.active = end, minutes.active
        row.save(update_fields=["minute", "active"])
        minutes.save()
    clock.minute, clock.active = end, minutes.active
    return end < until


def _end_bursts() -> None:
    """End the anomalies of templates that come as usual again, and those that have become usual."""
    bursts = RateAnomaly.objects.filter(kind=Kind.OFTEN, until__isnull=True).select_related("clock")
    over = bursts.filter(last__lte=(F("clock__minute") - OVER) * MINUTE_MS)
    lasting = bursts.filter(since__lte=(F("clock__minute") - DAY) * MINUTE_MS)
    for burst in over | lasting:
        recovered = burst.last <= (burst.clock.minute - OVER) * MINUTE_MS
        with transaction.atomic():
            if rate := TemplateRate.objects.filter(clock=burst.clock, template_id=burst.template_id).first():
                usual = Usual.of(rate.state)
                usual.remember(burst.since // MINUTE_MS, burst.lines)
                if not recovered:
                    usual.accept(burst.lines)
                rate.state = usual.dump()
                rate.save(update_fields=["state"])
            RateAnomaly.objects.filter(pk=burst.pk).update(until=burst.last, recovered=recovered)


def _clean(until: int) -> None:
    oldest = until * MINUTE_MS - KEPT_MS
    RateAnomaly.objects.filter(until__lt=oldest).delete()
    if until % DAY == 0:
        TemplateRate.objects.filter(last__lt=oldest).delete()
