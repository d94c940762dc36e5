"""Periodic work of one replica: log counts, lines without a verdict, lines that nobody judges, old lines, alerts.

The counts go to the key `aggregation` every 30 s, in the form that Opni's gateway reads.
"""

from __future__ import annotations

import logging
import threading
import time

from django.conf import settings
from django.db import DatabaseError, connections
from django.utils import timezone

from aiops import logstore
from aiops.intake import accept, quota
from aiops.judging import alerts, own_models, watching
from aiops.training import unjudged
from aiops.wire import kv
from kernel import clock
from kernel.database import reachable
from kernel.errors import Fault
from kernel.singleton import Holder

log = logging.getLogger(__name__)

COUNT_EVERY_S = 30
SWEEP_EVERY_S = 15
ALERT_EVERY_S = 15
TELL_EVERY_S = 60
RETAIN_EVERY_S = 60
UPKEEP_EVERY_S = 10
STOP_S = 5  # for which an index that is being built is waited for
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
            (TELL_EVERY_S, self.tell),
            (RETAIN_EVERY_S, self.retain),
            (UPKEEP_EVERY_S, self.upkeep),
        )
        self.keeper: threading.Thread | None = None

    def stop(self) -> None:
        if self.keeper:
            self.keeper.join(STOP_S)
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
            watched = watching.triples()
            with reachable():
                groups = own_models.judged(watched)
            before = int((time.time() - UNJUDGED_AFTER_S) * 1000)
            lines = []
            for names in groups:  # each model has its share: the lines of one that does not judge hold up no others
                found, _more = logstore.get().search(unjudged.query(names, before), SWEPT_AT_ONCE // len(groups) or 1)
                lines += found
        except Fault as problem:
            log.warning("lines without a verdict could not be queried: %s", problem)
            return 0
        if lines:
            accept.forward(lines)
        return len(lines)

    def alert(self) -> None:
        if self.active.hold():
            alerts.check(timezone.now())

    def tell(self) -> None:
        """Tell administrators of lines that nobody can judge."""
        if not self.active.hold():
            return
        try:
            with reachable():
                unjudged.count()
        except Fault as problem:
            log.warning("lines that nobody can judge could not be counted: %s", problem)

    def upkeep(self) -> None:
        """Let the store order its tables, beside everything else: an index may take minutes. Most times there is
        nothing to do, which does not need a thread with a new connection to find out.
        """
        if not self.active.hold() or (self.keeper and self.keeper.is_alive()):
            return
        try:
            due = logstore.get().is_upkeep_due()
        except Fault as problem:
            log.warning("the log store could not be kept in order: %s", problem.msg)
            return
        if due:
            self.keeper = threading.Thread(target=_upkeep, name="log store", daemon=True)
            self.keeper.start()

    def retain(self) -> None:
        """Remove the lines that are too old or too many, of all users or of one."""
        if not self.active.hold():
            return
        try:
            gone = logstore.get().retain(
                clock.settled_days(settings.AIOPS_RETENTION_DAYS), settings.AIOPS_RETENTION_MIB
            )
            shares = logstore.get().retain_shares(settings.AIOPS_USER_MIB)
        except Fault as problem:
            log.warning("old log lines could not be removed: %s", problem.msg)
            return
        if gone:
            log.info("%s old log lines were removed", gone)
        for name, share in shares.items():
            if share.removed:
                log.info("%s of the oldest log lines of %s were removed: there were too many", share.removed, name)
        quota.measured(shares)


def _upkeep() -> None:
    try:
        logstore.get().upkeep()
    except Fault as problem:
        log.warning("the log store could not be kept in order: %s", problem.msg)
    except DatabaseError:
        log.exception("the log store could not be kept in order")
    finally:
        connections.close_all()  # this thread's
