"""Background tasks of sweeps, pipelines and schedules. A message may arrive twice or late."""

from __future__ import annotations

import dramatiq

from kernel.broker import broker

from .pipelines import progress as pipelines
from .sweeps import progress as sweeps


@dramatiq.actor(actor_name="automation.sweep", broker=broker(), max_retries=0)
def sweep(pk: int) -> None:
    sweeps.advance(pk)


@dramatiq.actor(actor_name="automation.pipeline", broker=broker(), max_retries=0)
def pipeline(pk: int) -> None:
    pipelines.advance(pk)
