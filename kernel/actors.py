"""The kernel's one actor: a heartbeat, by which a worker proves that it takes messages."""

from __future__ import annotations

import dramatiq

from .broker import broker
from .heartbeats import beat

for _queue, _part in (("default", "worker"), ("gpu", "worker-gpu")):
    dramatiq.actor(
        lambda part: beat(part),
        actor_name=f"kernel.beat.{_queue}",
        queue_name=_queue,
        broker=broker(),
        max_retries=0,
        max_age=20_000,
    )
