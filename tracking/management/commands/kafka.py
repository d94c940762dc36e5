"""`manage.py kafka`: metrics from a Kafka topic to JetStream, one instance at a time. Needs KAFKA_URL."""

from __future__ import annotations

import signal
import threading
from functools import partial

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from kernel import probes
from kernel.singleton import only_one
from tracking.metrics import kafka_source


class Command(BaseCommand):
    help = "Forwards metrics from the Kafka topic KAFKA_TOPIC to JetStream until it is stopped."
    requires_system_checks = ()  # the set-up runs them, once for all parts

    def handle(self, *args, **options):
        if not settings.KAFKA_URL:
            raise CommandError("KAFKA_URL is not set; an example is kafka://host:9092")
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        with only_one("kafka", stop.is_set, partial(probes.alive, "kafka")) as lock:
            if lock is not None:
                kafka_source.run(stop, lock.check)
