"""What a worker does for users: notices are delivered. Each message may come twice or late."""

from __future__ import annotations

import dramatiq

from kernel.broker import broker

from . import delivery


@dramatiq.actor(actor_name="accounts.deliver", queue_name="default", broker=broker(), max_retries=0)
def deliver(pk: int) -> None:
    delivery.deliver(pk)
