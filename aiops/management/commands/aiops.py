"""`manage.py aiops [service …]`: runs the named AIOps services, or all of them, until a signal comes."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from asgiref.sync import sync_to_async
from django.core.management.base import BaseCommand, CommandError

from aiops.services.registry import SERVICES, make
from kernel import heartbeats
from kernel.serve import serve

PART = "aiops"


class Command(BaseCommand):
    help = "Runs AIOps services on the message bus; any number of replicas, on any number of machines."
    requires_system_checks = ()  # the set-up runs them, once for all parts

    def add_arguments(self, parser):
        parser.add_argument("services", nargs="*", help=f"which: {', '.join(SERVICES)}; all when none is named")

    def handle(self, *args, services: list[str], **options):
        unknown = [name for name in services if name not in SERVICES]
        if unknown:
            raise CommandError(f"no service is called {unknown[0]}; there are {', '.join(SERVICES)}")
        wanted = list(dict.fromkeys(services)) or list(SERVICES)
        asyncio.run(self._run(wanted))

    async def _run(self, names: list[str]) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        served = asyncio.Event()
        beating = asyncio.create_task(self._beat(served)) if set(names) == set(SERVICES) else None
        try:
            await serve([make(name) for name in names], stop, served.set)
        finally:
            if beating is not None:
                beating.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await beating

    @staticmethod
    async def _beat(served: asyncio.Event) -> None:
        await served.wait()
        while True:
            await sync_to_async(heartbeats.beat)(PART)
            await asyncio.sleep(heartbeats.EVERY_S)
