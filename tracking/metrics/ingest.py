"""JetStream to metrics: pulls the stream, records, and only then acknowledges. Run by `manage.py ingest`.

It also answers the server's authorization requests for jobs that connect to NATS.

When it is killed between recording and acknowledging, the messages come again and their ids make that a no-op.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.utils import timezone

from kernel import bus, consuming, heartbeats
from kernel.telemetry import meters

from . import nats_auth, recording


async def run(stop: asyncio.Event, check: Callable[[], None] = lambda: None) -> None:
    """Work until `stop` is set. `check` is called each second, waits for nothing, and raises when this process must not
    go on.
    """

    meters.REPORT_LAG_SECONDS.labels(recording.STREAM.name)  # is there, with 0, before the first report

    beaten = float("-inf")

    async def idle() -> None:
        nonlocal beaten
        check()
        if time.monotonic() - beaten >= heartbeats.EVERY_S:
            beaten = time.monotonic()
            await sync_to_async(heartbeats.beat)("ingest")

    await asyncio.gather(
        consuming.consume(
            recording.STREAM,
            recording.DURABLE,
            sync_to_async(_record),
            stop,
            idle,
            sync_to_async(_crowded),
        ),
        bus.answer(nats_auth.SUBJECT, "ingest", sync_to_async(nats_auth.answer), stop),
    )


def _crowded(subject: str) -> None:
    recording.note_crowded(subject)


def _record(deliveries: list[bus.Delivery]) -> None:
    close_old_connections()
    recording.record(deliveries)
    now = timezone.now()
    lag = meters.REPORT_LAG_SECONDS.labels(recording.STREAM.name)
    for delivery in deliveries:
        lag.observe(max(0.0, (now - delivery.sent).total_seconds()))
