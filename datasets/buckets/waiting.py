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
SLOW_S = 1.0
_lock = threading.Lock()
_began: dict[str, list[float]] = {}  # by the address of the server


class Slow(Fault):
    """The server of a bucket does not answer soon."""

    is_logged = False  # for each file that is asked for


@contextmanager
def for_server(row: Bucket) -> Iterator[None]:
    """Wait for the server of a bucket as one of the few. Raises Slow where there are enough."""
    server = row.endpoint or row.region
    now = time.monotonic()
    with _lock:
        others = _began.setdefault(server, [])
        if len(others) >= MOST or (len(others) >= FEW and now - others[0] >= SLOW_S):
            raise Slow("the server of the bucket %(name)s is slow; try again in a few seconds", name=row.name)
        others.append(now)
    try:
        yield
    finally:
        with _lock:
            others.remove(now)
            if not others:
                _began.pop(server, None)
