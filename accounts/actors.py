"""The accounts tasks of a worker: notices, links for new passwords. Each message may arrive twice or late."""

from __future__ import annotations

import dramatiq

from kernel.broker import broker

from . import delivery
from .signin import passwords


@dramatiq.actor(actor_name="accounts.deliver", queue_name="default", broker=broker(), max_retries=0)
def deliver(pk: int) -> None:
    delivery.deliver(pk)


@dramatiq.actor(actor_name=passwords.SEND, queue_name="default", broker=broker(), max_retries=3)
def send_reset(username: str, *rest: str) -> None:
    passwords.send(username, rest[-1])  # messages of earlier releases hold an address before the language
