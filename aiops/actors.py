"""AIOps tasks of a worker. A message may arrive twice or late: the row decides. Torch never runs here."""

from __future__ import annotations

import dramatiq

from kernel.broker import broker

from .judging import feedback
from .training import erasing, launching

HOUR_MS = 3_600_000


# The retries end before reconcile enqueues the next ones (training.AGAIN_AFTER_S), so that they do not pile up.
@dramatiq.actor(
    actor_name="aiops.train", queue_name="gpu", broker=broker(), max_retries=2, min_backoff=2000, time_limit=2 * HOUR_MS
)
def train(pk: int) -> None:
    launching.launch(pk)


@dramatiq.actor(actor_name="aiops.settle", broker=broker(), max_retries=3, min_backoff=1000)
def settle(pk: int) -> None:
    launching.settle(pk)


@dramatiq.actor(actor_name="aiops.erase_models", broker=broker(), max_retries=0)
def erase_models() -> None:
    """Erase the models of tenants that have none any more. Reconcile tries again."""
    erasing.erase()


@dramatiq.actor(actor_name="aiops.feedback", broker=broker(), max_retries=0, time_limit=HOUR_MS)
def settle_feedback() -> None:
    feedback.settle()
