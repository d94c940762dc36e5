"""`manage.py worker QUEUE …`: runs the background tasks of these queues until a signal comes."""

from __future__ import annotations

from django.core.management.base import BaseCommand

from kernel import worker
from mlp.worker import broker

QUEUES = ("launches", "default", "files", "gpu")


class Command(BaseCommand):
    help = "Runs the background tasks of the named queues; any number of workers, on any number of machines."
    requires_system_checks = ()  # the set-up runs them, once for all parts

    def add_arguments(self, parser):
        parser.add_argument("queues", nargs="+", choices=QUEUES, metavar="queue", help=", ".join(QUEUES))
        parser.add_argument("--threads", type=int, default=8, help="how many tasks run at the same time (8)")

    def handle(self, *args, queues: list[str], threads: int, **options):
        worker.run(broker, queues, threads)
