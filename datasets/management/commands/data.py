"""`manage.py data`: the process that takes uploads from nginx (datasets/webdav/server.py), and what runs beside."""

from __future__ import annotations

import asyncio
import signal

from django.conf import settings
from django.core.management.base import BaseCommand
from django.utils.module_loading import import_string

from datasets.webdav.server import serve
from kernel.inner_http import beside
from kernel.sockets import Address


class Command(BaseCommand):
    help = "Store the uploads that nginx has spooled, until SIGTERM or SIGINT."
    requires_system_checks = ()  # the set-up runs them, once for all parts

    def add_arguments(self, parser):
        parser.add_argument("--port", type=int, help="a port to listen on, instead of the settings' address")
        for name in beside:
            parser.add_argument(f"--{name}-port", type=int, help=f"the same for what listens beside: {name}")

    def handle(self, *args, port: int | None, **options):
        for name, start in beside.items():
            own = options[f"{name}_port"]
            if own or not port:
                import_string(start)((settings.INTERNAL_HOST, own) if own else None)
        asyncio.run(self._run((settings.INTERNAL_HOST, port) if port else settings.DATA_ADDRESS))

    async def _run(self, address: Address) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await serve(address, stop)
