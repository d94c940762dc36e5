"""Which workloads a service judges: the watchlist, and what owners watch beside it."""

from __future__ import annotations

import logging

from aiops.judging import watching
from aiops.wire import kv, watchlist
from kernel.errors import Fault

from . import base

log = logging.getLogger(__name__)

LOOK_EVERY_S = 30


class Watched:
    """What is watched now: `poll` reads it, and each change of the watchlist is a message."""

    def __init__(self):
        self.watched: set[watchlist.Triple] = set()
        self.owned: set[watchlist.Triple] = set()  # watched by their owners

    def poll(self) -> None:
        """Read the watchlist, and what owners watch beside it."""
        try:
            watched = kv.watched()
            self.owned = watching.owned()
        except (Fault, ValueError) as problem:
            log.warning("the watchlist cannot be read now: %s", problem)
            return
        if watched is not None:
            self.watched = watchlist.triples(watched)

    def parameters(self, data: bytes) -> None:
        """Take the watchlist of `model_workload_parameters`."""
        self.watched = watchlist.triples(base.read_parameters(data)[0])

    def covers(self, names: watchlist.Triple) -> bool:
        return names in self.watched or names in self.owned
