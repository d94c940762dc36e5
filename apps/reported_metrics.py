"""The metric that callers report of answers while a canary is up, such as whether a recommendation was clicked.

They report a value of the model that answered, at the application gateway (gateway_access.metric). Count and sum of
each model are kept in Valkey for one step of the canary; while it does not respond nothing is counted, and nothing is
known, which ends no canary.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from redis.exceptions import RedisError

from kernel.broker import broker

from .models import Rollout

KEY = "mlp:app-metric:{pk}:{since}"
KEPT_S = 8 * 86_400  # longer than a step may last
MOST = 1e12  # a value, so that sums stay numbers
NEW, OLD = "new", "old"


@dataclass(frozen=True)
class Reported:
    """What was reported of one model in a step."""

    count: int = 0
    mean: float | None = None


def key(pk: int, since: datetime | None) -> str:
    """Return where a step of a rollout is counted: that which was begun then."""
    return KEY.format(pk=pk, since=int(since.timestamp() * 1000) if since is not None else 0)


def checked(value) -> float | None:
    """Return a reported value as a number; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST <= value <= MOST:
        return None
    return float(value)


def add(place: str, model: str, value: float) -> bool:
    """Count a value of the NEW or OLD model; return whether it was."""
    with contextlib.suppress(RedisError):
        pipe = broker().client.pipeline(transaction=True)
        pipe.hincrby(place, f"{model}:count", 1)
        pipe.hincrbyfloat(place, f"{model}:sum", value)
        pipe.expire(place, KEPT_S)
        pipe.execute()
        return True
    return False


def read(rollout: Rollout) -> Mapping[str, Reported]:
    """Return what was reported of the NEW and the OLD model in the present step."""
    found: dict[bytes, bytes] = {}
    with contextlib.suppress(RedisError):
        found = broker().client.hgetall(key(rollout.pk, rollout.step_since))
    return {model: _read(found, model.encode()) for model in (NEW, OLD)}


def _read(found: dict[bytes, bytes], model: bytes) -> Reported:
    count, total = int(found.get(model + b":count", 0)), float(found.get(model + b":sum", 0))
    return Reported(count, total / count) if count and math.isfinite(total) else Reported()
