"""Limits of tokens a day, for keys of language models.

What was counted today (key_tokens) is kept in Valkey for the gateway. A request is admitted while that is below the
limit, however many tokens it then takes. While Valkey does not respond nothing is limited.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from datetime import date

from django.utils import timezone
from redis.exceptions import RedisError

from kernel.broker import broker

from .keys import Caller
from .models import AppKeyUse

log = logging.getLogger(__name__)

USED = "mlp:app-key-tokens:{pk}:{day}"  # a string in Valkey: the tokens of the day
DAY_S = 86_400
KEPT_S = 2 * DAY_S


def wait_s(key: Caller) -> int:
    """Return after how many seconds a key that has used its tokens of the day may be used again; 0 while it has not."""
    if key.day_tokens is None:
        return 0
    try:
        used = _used(key.pk, timezone.now().date())
    except RedisError:
        log.warning("tokens are not limited: Valkey does not respond")
        return 0
    return math.ceil(DAY_S - time.time() % DAY_S) if used >= key.day_tokens else 0


def _used(pk: int, day: date) -> int:
    place = USED.format(pk=pk, day=day)
    text = broker().client.get(place)
    if text is None:
        text = stored(pk, day)
        broker().client.set(place, text, ex=KEPT_S, nx=True)  # what `publish` has set meanwhile stays
    return int(text)


def stored(pk: int, day: date) -> int:
    """Return the tokens of a key on a day (UTC) as the database has them."""
    counts = AppKeyUse.objects.filter(key=pk, day=day).values_list("prompt_tokens", "completion_tokens")
    return sum(counts.first() or ())


def publish(totals: Mapping[int, int], day: date) -> None:
    """Let the gateway know the tokens of keys on a day."""
    try:
        for pk, total in totals.items():
            broker().client.set(USED.format(pk=pk, day=day), total, ex=KEPT_S)
    except RedisError:
        log.warning("limits of tokens are late: Valkey does not respond")
