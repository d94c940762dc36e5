"""Heartbeats of the parts that have no port to ask: worker, worker-gpu, ingest, reconcile, aiops. Read by /healthz."""

from __future__ import annotations

import logging
import time

from redis.exceptions import RedisError

from .broker import broker
from .probes import alive

log = logging.getLogger(__name__)

KEY = "mlp:beat:{part}"
EVERY_S = 5.0  # three within the time after which /healthz calls a part silent
TTL_S = 60


def beat(part: str) -> None:
    """Record that the part is at work. When Valkey is unavailable this is logged, and the part works on."""
    alive(part)
    try:
        broker().client.set(KEY.format(part=part), time.time(), ex=TTL_S)
    except RedisError as problem:
        log.warning("%s: the heartbeat could not be stored: %s", part, problem)


def age(part: str) -> float | None:
    """Return the seconds since the part's last heartbeat, or None when there was none within a minute."""
    value = broker().client.get(KEY.format(part=part))
    return None if value is None else max(0.0, time.time() - float(value))
