"""Periodic work of one replica: log counts, lines without a verdict, old lines, alerts.

The counts go to the key `aggregation` every 30 s, in the form that Opni's gateway reads.
"""

from __future__ import annotations

import logging
import time

from django.conf import settings
from django.utils import timezone

from aiops import lifecycle, logstore
from aiops.intake import accept
from aiops.judging import alerts
from aiops.wire import kv, subjects, watchlist
from kernel.database import reachable
from kernel.errors import Fault
from kernel.singleton import Holder

log = logging.getLogger(__name__)

COUNT_EVERY_S = 30
SWEEP_EVERY_S = 15
ALERT_EVERY_S = 15
RETAIN_EVERY_S = 60
UNJUDGED_AFTER_S = 30  # a line without a verdict for longer is forwarded again
SWEPT_AT_ONCE = 2000


class Housekeeping:
    name = "housekeeping"
    subjects: dict = {}

    def __init__(self, active: Holder | None = None):
        self.active = active or Holder("aiops.housekeeping")
        self.ticks = (
            (COUNT_EVERY_S, self.count),
            (SWEEP_EVERY_S, self.resend),
            (ALERT_EVERY_S, self.alert),
            (RETAIN_EVERY_S, self.retain),
        )

    def stop(self) -> None:
        self.active.release()

    def count(self) -> None:
        """Count the lines of each workload. On any error the counts stay as they were."""
        if not self.active.hold():
            return
        try:
            rows = logstore.get().aggregate_workloads()
            counts: dict = {}
            for cluster, namespace, deployment, lines in rows:
                counts.setdefault(cluster, {}).setdefault(namespace, {})[deployment] = lines
            kv.put_aggregation(counts)
        except Fault as problem:
            log.warning("the lines could not be counted: %s", problem.msg)

    def resend(self) -> None:
        self.sweep()

    def sweep(self) -> int:
        """Forward stored lines of watched workloads that have no verdict again; return how many."""
        if not self.active.hold():
            return 0
        try:
            with reachable():
                if lifecycle.serving() is None:
                    return 0
            watched = watchlist.triples(kv.watched() or {})
            if not watched:
                return 0
            lines, _more = logstore.get().search(
                unjudged(watched, int((time.time() - UNJUDGED_AFTER_S) * 1000)), SWEPT_AT_ONCE
            )
        except (Fault, ValueError) as problem:
            log.warning("lines without a verdict could not be queried: %s", problem)
            return 0
        if lines:
            accept.forward(lines)
        return len(lines)

    def alert(self) -> None:
        if self.active.hold():
            alerts.check(timezone.now())

    def retain(self) -> None:
        """Remove old lines, if they are in our own database: OpenSearch has its own retention."""
        store = logstore.get()
        if not self.active.hold() or not hasattr(store, "retain"):
            return
        try:
            gone = store.retain(settings.AIOPS_RETENTION_DAYS, settings.AIOPS_RETENTION_MIB)
        except Fault as problem:
            log.warning("old log lines could not be removed: %s", problem.msg)
            return
        if gone:
            log.info("%s old log lines were removed", gone)


def unjudged(watched: set[watchlist.Triple], before_ms: int) -> dict:
    """Return the query for lines of those workloads with an earlier time and no verdict."""
    names = ("cluster_id", "namespace_name.keyword", "deployment.keyword")
    workloads = [
        {"bool": {"filter": [{"term": {name: value}} for name, value in zip(names, triple, strict=True)]}}
        for triple in sorted(watched)
    ]
    return {
        "query": {
            "bool": {
                "filter": [{"term": {"log_type": subjects.WORKLOAD}}, {"range": {"time": {"lte": before_ms}}}],
                "must_not": [{"exists": {"field": "anomaly_level"}}],
                "should": workloads,
                "minimum_should_match": 1,
            }
        }
    }
