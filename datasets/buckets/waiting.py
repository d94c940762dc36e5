"""How many requests of this process wait for the server of a bucket. One that is slow, or away, must not keep all
threads from the other visitors, so that a few wait for it and the others are answered at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kernel.errors import Fault

from ..models import Bucket

MOST, FEW = 5, 2  # at once; while one of them has waited for SLOW_S
SLOW_S = 1.0  # and as long waits for its turn at most who is one too many
_changed = threading.Condition()
_began: dict[str, list[float]] = {}  # by the address of the server


class Slow(Fault):
    """The server of a bucket does not answer soon."""

    is_logged = False  # for each file that is asked for


@contextmanager
def for_server(row: Bucket) -> Iterator[None]:
    """Wait for the server of a bucket as one of the few. Raises Slow where there are enough."""
    server = row.endpoint or row.region
    with _changed:
        came = time.monotonic()
        while not _may_ask(server, came):
            if _is_slow(server, came):
                raise Slow("the server of the bucket %(name)s is slow; try again in a few seconds", name=row.name)
            _changed.wait(SLOW_S / 10)
        now = time.monotonic()
        _began.setdefault(server, []).append(now)
    try:
        yield
    finally:
        with _changed:
            others = _began[server]
            others.remove(now)
            if not others:
                del _began[server]
            _changed.notify()


def _is_slow(server: str, came: float) -> bool:
    """Return whether one of enough requests, or who waits for its turn since then, has waited too long."""
    others, now = _began.get(server, []), time.monotonic()
    return len(others) >= FEW and now - min(others[0], came) >= SLOW_S


def _may_ask(server: str, came: float) -> bool:
    return len(_began.get(server, [])) < MOST and not _is_slow(server, came)
