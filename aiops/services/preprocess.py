"""Preprocessing: masks lines and passes on those of watched workloads, and all lines of other log types.

Receives Opni's `raw_logs` (one Payload a message) and our own intake's lists of stored lines. Replicas share the lines,
but each receives every change of the watchlist, and reads it again every LOOK_EVERY_S seconds.
"""

from __future__ import annotations

import logging

from aiops.judging import watching
from aiops.wire import kv, subjects, watchlist
from kernel.errors import Fault
from kernel.serve import Route
from opnilog.masking import mask_many

from . import base

log = logging.getLogger(__name__)

BATCH = 512
LINGER_S = 0.1
LOOK_EVERY_S = 30


class Preprocessing:
    name = "preprocessing"

    def __init__(self):
        self.watched: set[watchlist.Triple] = set()
        self.owned: set[watchlist.Triple] = set()  # watched by their owners
        self.subjects = {
            subjects.RAW_LOGS: Route(self.raw, "workers", BATCH, LINGER_S),
            subjects.STORED_LOGS: Route(self.stored, "workers", 8),
            subjects.WORKLOAD_PARAMETERS_UPDATE: Route(self.parameters),
        }
        self.ticks = ((LOOK_EVERY_S, self.poll),)

    def start(self) -> None:
        self.poll()

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

    def raw(self, messages: list[bytes]) -> list[tuple[str, bytes]]:
        return self.sort(base.items_of(subjects.RAW_LOGS, messages, base.one))

    def stored(self, messages: list[bytes]) -> list[tuple[str, bytes]]:
        return self.sort(base.items_of(subjects.STORED_LOGS, messages))

    def sort(self, items: list) -> list[tuple[str, bytes]]:
        """Return masked lists of the lines to judge, workloads and other log types apart."""
        workloads, others = [], []
        for item in items:
            if item.log_type != subjects.WORKLOAD:
                others.append(item)
                continue
            names = (item.cluster_id, item.namespace_name, item.deployment)
            if names in self.watched or names in self.owned:
                workloads.append(item)
        kept = workloads + others
        for item, masked in zip(kept, mask_many([item.log for item in kept]), strict=True):
            item.masked_log = masked
        return [
            *base.lists(subjects.PREPROCESSED_WORKLOAD, workloads),
            *base.lists(subjects.PREPROCESSED_PRETRAINED, others),
        ]
