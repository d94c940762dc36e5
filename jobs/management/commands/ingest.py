"""`manage.py ingest`: metrics from JetStream to the database, one instance at a time."""

from __future__ import annotations

import asyncio
import signal

from django.core.management.base import BaseCommand

from jobs.metrics import ingest
from kernel.singleton import Held, only_one


class Command(BaseCommand):
    help = "Reads job metrics from JetStream into the database until it is stopped."

    def handle(self, *args, **options):
        with only_one("ingest") as held:
            asyncio.run(self._run(held))

    async def _run(self, held: Held) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await ingest.run(stop, held.check)
