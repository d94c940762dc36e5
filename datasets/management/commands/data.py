"""`manage.py data`: the process that takes uploads from nginx (datasets/webdav/server.py)."""

from __future__ import annotations

import asyncio
import signal

from django.conf import settings
from django.core.management.base import BaseCommand

from datasets.webdav.server import serve


class Command(BaseCommand):
    help = "Store the uploads that nginx has spooled, until SIGTERM or SIGINT."

    def add_arguments(self, parser):
        parser.add_argument("--port", type=int, default=settings.DATA_PORT)

    def handle(self, *args, port: int, **options):
        asyncio.run(self._run(port))

    async def _run(self, port: int) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve(settings.INTERNAL_HOST, port, stop)
