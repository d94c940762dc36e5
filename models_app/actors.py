"""The background tasks of models. A message may come twice or late; the verb that it calls decides."""

from __future__ import annotations

import dramatiq

from kernel.broker import broker

from . import launching
from .registry import webhooks


@dramatiq.actor(actor_name="models.copy", queue_name="files", broker=broker(), max_retries=3, time_limit=3_600_000)
def copy(pk: int, follow: bool = True) -> None:
    launching.copy(pk, follow)


@dramatiq.actor(actor_name="models.check", broker=broker(), max_retries=3, min_backoff=1000)
def check(pk: int) -> None:
    launching.check(pk)


@dramatiq.actor(actor_name="models.clean", queue_name="files", broker=broker(), max_retries=3, min_backoff=1000)
def clean(pk: int, follow: bool = True) -> None:
    launching.clean(pk, follow)


@dramatiq.actor(actor_name="models.erase", queue_name="files", broker=broker(), max_retries=5)
def erase(pk: int, follow: bool = True) -> None:
    launching.erase(pk, follow)


@dramatiq.actor(actor_name="models.webhook", broker=broker(), max_retries=0)
def webhook(pk: int) -> None:
    webhooks.deliver(pk)
