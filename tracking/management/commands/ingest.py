"""`manage.py ingest`: metrics from JetStream to the database, one instance at a time."""

from __future__ import annotations

import asyncio
import signal
import threading
from functools import partial

from django.core.management.base import BaseCommand

from kernel import probes
from kernel.singleton import Held, only_one
from tracking.metrics import ingest


class Command(BaseCommand):
    help = "Reads job metrics from JetStream into the database until it is stopped."
    requires_system_checks = ()  # the set-up runs them, once for all parts

    def handle(self, *args, **options):
        asked = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: asked.set())
        with only_one("ingest", asked.is_set, partial(probes.alive, "ingest")) as lock:
            if lock is not None:
                asyncio.run(self._run(lock, asked))

    async def _run(self, lock: Held, asked: threading.Event) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        if asked.is_set():  # by a signal that came just before
            stop.set()
        await ingest.run(stop, lock.check)
