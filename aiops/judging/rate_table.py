"""What is usual of the templates of a workload, and when it was not: for its page and for REST."""

from __future__ import annotations

import time

from django.db.models import QuerySet

from aiops import logstore
from aiops.logstore.base import Names
from aiops.models import RateAnomaly, TemplateRate

from . import log_search, scope
from .usual_rates import WINDOW, Usual

SHOWN = 200  # templates, those with the most lines of the last day
DAY_MS = 86_400_000


def anomalies(names: Names) -> QuerySet:
    """Return the unusual times of a workload that nobody has marked as usual, the newest first."""
    return of_clocks(RateAnomaly.objects.filter(suppression=None), names).select_related("clock")


def visible(user, names: Names | None = None) -> QuerySet:
    """Return the unusual times in the workloads that the user may see, of those names ("" is any), as `anomalies`;
    without names also those that are marked as usual.
    """
    rows = anomalies(names) if names is not None else RateAnomaly.objects.select_related("clock")
    mine = scope.namespaces(user)
    return rows if mine is None else rows.filter(clock__cluster=scope.LOCAL, clock__namespace__in=mine)


def of_clocks(rows: QuerySet, names: Names) -> QuerySet:
    fields = zip(("cluster", "namespace", "deployment"), names, strict=True)
    return rows.filter(**{f"clock__{field}": name for field, name in fields if name})


def templates(user, names: Names) -> list[dict]:
    """Return the workload's templates of the last day, the most frequent first, with what is usual of each.

    `low` and `high` are lines in `minutes` minutes, `most` is above how many they are too many, `gap` is the longest
    usual time without the template in active minutes, `silent_after` after how many it is silent; None while unknown.
    Raises Fault.
    """
    since = int(time.time() * 1000) - DAY_MS
    workload = dict(zip(("cluster", "namespace", "deployment"), names, strict=True))
    counted = logstore.get().templates(log_search.body(user, since=str(since), **workload), SHOWN)
    numbers = [row["template_cluster_id"] for row in counted]
    rows = of_clocks(TemplateRate.objects.filter(template_id__in=numbers), names).select_related("clock")
    known = {row.template_id: row for row in rows}
    open_now = set(anomalies(names).filter(until__isnull=True).values_list("template_id", "kind"))
    return [_row(row, known.get(row["template_cluster_id"]), open_now) for row in counted]


def _row(template: dict, rate: TemplateRate | None, open_now: set[tuple[int, str]]) -> dict:
    number = template["template_cluster_id"]
    text = template["newest"].get("template_matched", "")
    shown = {"number": number, "template": text, "log": template["newest"]["log"]}
    shown |= {"lines": template["lines"], "last": template["last"], "minutes": WINDOW}
    shown |= dict.fromkeys(("low", "high", "most", "gap", "silent_after"))
    shown["kinds"] = sorted(kind for other, kind in open_now if other == number)
    if rate is None:
        return shown
    usual, active = Usual.of(rate.state), rate.clock.active
    most, at = usual.most(active), usual.silent_at()
    if most is not None:
        shown["low"], shown["high"] = usual.range(active)
        shown["most"] = most
    if at is not None:
        shown |= {"gap": usual.longest_gap(), "silent_after": at - usual.last}
    return shown
