"""The background tasks of datasets. A message may arrive twice or late: the lifecycle verb decides what to do."""

from __future__ import annotations

import dramatiq

from kernel.broker import broker

from . import lifecycle


@dramatiq.actor(actor_name="datasets.erase", queue_name="files", broker=broker(), max_retries=5)
def erase(pk: int) -> None:
    lifecycle.erase(pk)
