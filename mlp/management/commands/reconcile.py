"""`manage.py reconcile`: the loop that heals every lost, doubled or late message, one instance at a time.

Each round asks every app's reconcile.py; one app's failure does not keep the others from theirs. The loop beats for
itself, and sends the workers the messages by which they beat.
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
import datasets.reconcile
import jobs.reconcile
import models_app.reconcile
import resources.reconcile
import runners
from kernel import after_commit, heartbeats
from kernel.singleton import only_one

log = logging.getLogger(__name__)

ROUND_S = 2.0
SHORTEST_S = 0.5  # between two rounds, however much moves
BEAT_EVERY_S = 4.0
STEPS = (
    jobs.reconcile.run,
    models_app.reconcile.run,
    apps.reconcile.run,
    datasets.reconcile.run,
    resources.reconcile.run,
    aiops.reconcile.run,
    accounts.reconcile.run,
)
WORKERS = {"default": "worker", "gpu": "worker-gpu"}


class Command(BaseCommand):
    help = "Compares every unsteady row with the world and puts it right, every two seconds, until told to stop."

    def add_arguments(self, parser):
        parser.add_argument("--once", action="store_true", help="one round, then end")

    def handle(self, *args, once: bool = False, **options):
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        moved = threading.Event()
        with only_one("reconcile") as held, runners.get().watch(moved.set):
            beaten = 0.0
            while not stop.is_set():
                held.check()
                self._round()
                if once:
                    return
                if time.monotonic() - beaten >= BEAT_EVERY_S:
                    beaten = time.monotonic()
                    self._ask_workers()
                self._pause(stop, moved)

    @staticmethod
    def _pause(stop: threading.Event, moved: threading.Event) -> None:
        """A round's time, or less when the runner says that something moved."""
        end = time.monotonic() + ROUND_S
        stop.wait(SHORTEST_S)
        while not stop.is_set() and not moved.is_set() and time.monotonic() < end:
            stop.wait(0.1)
        moved.clear()

    def _round(self) -> None:
        for step in STEPS:
            close_old_connections()
            try:
                step()
            except Exception:  # whatever it is, the next round may find it healed; the others must go on
                log.exception("%s failed; trying again in %s s", step.__module__, ROUND_S)
        heartbeats.beat("reconcile")

    @staticmethod
    def _ask_workers() -> None:
        for queue, part in WORKERS.items():
            after_commit.enqueue(f"kernel.beat.{queue}", part, queue=queue)
