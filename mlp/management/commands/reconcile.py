"""`manage.py reconcile`: the loop that recovers from lost, duplicate or late messages; only one instance is active.

Each round runs every app's reconcile.py; a failure of one does not stop the others. The loop sends its own heartbeat,
and the messages to which the workers answer with theirs.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial

from django.core.management.base import BaseCommand
from django.db import close_old_connections, connection
from django.db.models import QuerySet

import accounts.reconcile
import aiops.reconcile
import apps.reconcile
import automation.reconcile
import datasets.reconcile
import jobs.reconcile
import models_app.reconcile
import resources.reconcile
import runners
import tracking.reconcile
import workspaces.reconcile
from kernel import after_commit, clock, healing, heartbeats, probes
from kernel.singleton import Held, only_one
from kernel.telemetry import meters

log = logging.getLogger(__name__)

ROUND_S = 2.0
SHORTEST_S = 0.5  # at least this long between two rounds, however often the runner reports changes
MOST_ENDS = 100  # of runs that are looked at between two rounds; the next round finds the others
STEPS = (
    jobs.reconcile,
    models_app.reconcile,
    apps.reconcile,
    workspaces.reconcile,
    datasets.reconcile,
    resources.reconcile,
    aiops.reconcile,
    tracking.reconcile,
    automation.reconcile,
    accounts.reconcile,
)
# In every round in which something of theirs is due; what the others have to do makes the round whole.
OFTEN = {automation.reconcile, resources.reconcile, accounts.reconcile}
QUIET_ROUNDS = 30  # of which one is whole, while nothing is under way: what is done for its age has time
WORKERS = {"default": "worker", "gpu": "worker-gpu"}


class Look:
    """The question that begins each round: is something under way, and is something due?

    One prepared statement on the connection that holds the lock: building the queries and planning them in each
    round would cost an idle machine many times as much.
    """

    def __init__(self, lock: Held):
        self.lock = lock
        under_way = [rows for step in STEPS if step not in OFTEN for rows in step.pending()]
        due = [rows for step in OFTEN for rows in step.pending()]
        self.question = f"SELECT {_any(under_way)}, {_any(due)}"

    def __call__(self) -> tuple[bool, bool]:
        """Return both answers. Raises psycopg.Error when the connection, and with it the lock, was lost."""
        return self.lock.ask(self.question)


def _any(tables: list[QuerySet]) -> str:
    """Return SQL that is true while any of the querysets has a row."""
    parts = [rows.order_by().values("pk").query.sql_with_params() for rows in tables]
    connection.ensure_connection()  # it knows how values are written
    return " OR ".join(f"EXISTS ({connection.ops.compose_sql(sql, values)})" for sql, values in parts)


class Rounds:
    """Says which rounds are whole. While nothing is under way most of them are not, which spares an idle machine."""

    def __init__(self):
        self.skipped = QUIET_ROUNDS  # the first one is whole

    def is_whole(self, changed: bool, under_way: bool) -> bool:
        """Return whether all steps take part in the next round. `changed`: the runner has reported something;
        `under_way`: there is an object whose lost message should be found soon.
        """
        if changed or under_way or self.skipped >= QUIET_ROUNDS - 1 or runners.get().names():
            self.skipped = 0
            return True
        self.skipped += 1
        return False


class Pause:
    """The time between two rounds. A job whose run ends is looked at in it, at once: its owner does not wait for the
    next round, which is not sooner because there was one just now.
    """

    def __init__(self):
        self.changed = threading.Event()
        self.ended: deque[str] = deque(maxlen=MOST_ENDS)

    def last(self, stop: threading.Event) -> bool:
        """Wait for the next round; return whether the runner has reported a change. `stop` ends it, with `changed`."""
        begun, changed = time.monotonic(), False
        while not stop.is_set():
            rest_s = begun + (SHORTEST_S if changed else ROUND_S) - time.monotonic()
            if rest_s <= 0 or not self.changed.wait(rest_s):
                break
            self.changed.clear()
            changed = True
            if names := [self.ended.popleft() for _ in range(len(self.ended))]:
                close_old_connections()
                healing.attempt(jobs.reconcile.look_at, names)
        return changed


class Command(BaseCommand):
    help = "Compares the rows in transitional states with the actual state and corrects them, every few seconds."
    requires_system_checks = ()  # the set-up runs them, once for all parts

    def add_arguments(self, parser):
        parser.add_argument("--once", action="store_true", help="run one round, then exit")

    def handle(self, *args, once: bool = False, **options):
        stop = threading.Event()
        pause, rounds = Pause(), Rounds()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: (stop.set(), pause.changed.set()))
        with contextlib.ExitStack() as stack:
            stack.enter_context(runners.get().watch_nodes())  # also while it stands by: the other may be on that node
            lock = stack.enter_context(only_one("reconcile", stop.is_set, partial(probes.alive, "reconcile")))
            if lock is None:
                return
            stack.enter_context(runners.get().watch(pause.changed.set, pause.ended.append))
            look, last_beat, changed = Look(lock), float("-inf"), True
            while not stop.is_set():
                self._round(rounds, changed, *look())
                if time.monotonic() - last_beat >= heartbeats.EVERY_S:
                    last_beat = time.monotonic()
                    heartbeats.beat("reconcile")
                    if not once:
                        self._request_heartbeats()
                if once:
                    return
                changed = pause.last(stop)

    def _round(self, rounds: Rounds, changed: bool, under_way: bool, due: bool) -> None:
        whole = True
        clock.check()
        with suppress(Exception):  # the runner does not answer: then all steps are tried
            whole = rounds.is_whole(changed, under_way)
        for step in STEPS:
            if not whole and not (due and step in OFTEN):
                continue
            app = step.__name__.partition(".")[0]
            close_old_connections()
            failures = meters.RECONCILE_FAILURES.labels(app)  # is there, with 0, before the first one
            try:
                with meters.RECONCILE_SECONDS.labels(app).time():
                    step.run()
            except Exception:  # of any kind: the next round may succeed, and the other steps must run
                failures.inc()
                log.exception("%s failed; trying again in %s s", step.__name__, ROUND_S)

    @staticmethod
    def _request_heartbeats() -> None:
        for queue, part in WORKERS.items():
            after_commit.enqueue(f"kernel.beat.{queue}", part, queue=queue)
