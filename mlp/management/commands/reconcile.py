"""`manage.py reconcile`: the loop that recovers from lost, duplicate or late messages; only one instance is active.

Each round runs every app's reconcile.py; a failure of one does not stop the others. The loop sends its own heartbeat,
and the messages to which the workers answer with theirs.
"""

from __future__ import annotations

import logging
import signal
import threading
import time

from django.core.management.base import BaseCommand
from django.db import close_old_connections

import accounts.reconcile
import aiops.reconcile
import apps.reconcile
import automation.reconcile
import datasets.reconcile
import jobs.reconcile
import models_app.reconcile
import resources.reconcile
import runners
from kernel import after_commit, heartbeats
from kernel.singleton import only_one
from kernel.telemetry import meters

log = logging.getLogger(__name__)

ROUND_S = 2.0
SHORTEST_S = 0.5  # at least this long between two rounds, however often the runner reports changes
BEAT_EVERY_S = 4.0
STEPS = (
    jobs.reconcile.run,
    models_app.reconcile.run,
    apps.reconcile.run,
    datasets.reconcile.run,
    resources.reconcile.run,
    aiops.reconcile.run,
    automation.reconcile.run,
    accounts.reconcile.run,
)
WORKERS = {"default": "worker", "gpu": "worker-gpu"}


class Command(BaseCommand):
    help = "Compares the rows in transitional states with the actual state and corrects them, every two seconds."

    def add_arguments(self, parser):
        parser.add_argument("--once", action="store_true", help="run one round, then exit")

    def handle(self, *args, once: bool = False, **options):
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        runs_changed = threading.Event()
        with only_one("reconcile") as lock, runners.get().watch(runs_changed.set):
            last_beat = 0.0
            while not stop.is_set():
                lock.check()
                self._round()
                if once:
                    return
                if time.monotonic() - last_beat >= BEAT_EVERY_S:
                    last_beat = time.monotonic()
                    self._request_heartbeats()
                self._pause(stop, runs_changed)

    @staticmethod
    def _pause(stop: threading.Event, runs_changed: threading.Event) -> None:
        """Wait for the next round, less long when the runner reports a change."""
        end = time.monotonic() + ROUND_S
        stop.wait(SHORTEST_S)
        while not stop.is_set() and not runs_changed.is_set() and time.monotonic() < end:
            stop.wait(0.1)
        runs_changed.clear()

    def _round(self) -> None:
        for step in STEPS:
            close_old_connections()
            app = step.__module__.partition(".")[0]
            failures = meters.RECONCILE_FAILURES.labels(app)  # is there, with 0, before the first one
            try:
                with meters.RECONCILE_SECONDS.labels(app).time():
                    step()
            except Exception:  # of any kind: the next round may succeed, and the other steps must run
                failures.inc()
                log.exception("%s failed; trying again in %s s", step.__module__, ROUND_S)
        heartbeats.beat("reconcile")

    @staticmethod
    def _request_heartbeats() -> None:
        for queue, part in WORKERS.items():
            after_commit.enqueue(f"kernel.beat.{queue}", part, queue=queue)
