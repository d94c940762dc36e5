"""The accounts tasks of a worker: deliver notices. Each message may arrive twice or late."""

from __future__ import annotations

import dramatiq

from kernel.broker import broker

from . import delivery


@dramatiq.actor(actor_name="accounts.deliver", queue_name="default", broker=broker(), max_retries=0)
def deliver(pk: int) -> None:
    delivery.deliver(pk)
