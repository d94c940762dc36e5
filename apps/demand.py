"""How many requests an application with several replicas has in work and waiting, and when it was last asked.

Each process that routes requests publishes its figures in Valkey once a second; what is older than FRESH_S does not
count. Read by apps.scaling. While Valkey does not respond nothing is known, and nothing changes.
"""

from __future__ import annotations

import contextlib
import json
import time

from redis.exceptions import RedisError

from kernel.broker import broker

KEY, LAST, WOKEN = "mlp:app-demand:{pk}", "mlp:app-asked:{pk}", "mlp:app-woken:{pk}"
FRESH_S = 5
AGAIN_S = 1
KEPT_S = 7 * 86_400


def publish(pk: int, process: str, running: int, waiting: int) -> None:
    """Store the most requests that were in work since the last call, and those that wait in this process."""
    now = time.time()
    with contextlib.suppress(RedisError):  # the next second repeats it
        pipe = broker().client.pipeline(transaction=False)
        pipe.hset(KEY.format(pk=pk), process, json.dumps([now, running, waiting]))
        pipe.expire(KEY.format(pk=pk), 10 * FRESH_S)
        if running or waiting:
            pipe.set(LAST.format(pk=pk), now, ex=KEPT_S)
        pipe.execute()


def note_request(pk: int) -> None:
    """Store that the application was asked just now."""
    with contextlib.suppress(RedisError):
        broker().client.set(LAST.format(pk=pk), time.time(), ex=KEPT_S)


def may_ask(pk: int) -> bool:
    """Return whether this is the first request in AGAIN_S that has the application woken."""
    try:
        return bool(broker().client.set(WOKEN.format(pk=pk), 1, nx=True, ex=AGAIN_S))
    except RedisError:
        return False


def read(pk: int) -> tuple[int, float | None] | None:
    """Return the requests in work and waiting, and the seconds since the last request (None: none is known); None while
    Valkey does not respond.

    Each process reports all requests that are in work at the replicas, so the largest figure counts; those that wait
    are its own, so they are added.
    """
    try:
        rows, last = broker().client.hvals(KEY.format(pk=pk)), broker().client.get(LAST.format(pk=pk))
    except RedisError:
        return None
    now = time.time()
    fresh = [row for row in map(json.loads, rows) if abs(now - row[0]) < FRESH_S]
    demand = max((running for _at, running, _waiting in fresh), default=0) + sum(row[2] for row in fresh)
    return demand, max(now - float(last), 0.0) if last is not None else None
