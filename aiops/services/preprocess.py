"""Preprocessing: masks lines and passes on those of watched workloads, and all lines of other log types.

Receives Opni's `raw_logs` (one Payload a message) and our own intake's lists of stored lines. Replicas share the lines,
but each receives every change of the watchlist, and reads it again every LOOK_EVERY_S seconds.
"""

from __future__ import annotations

from aiops.wire import subjects
from kernel.serve import Route
from opnilog.masking import mask_many

from . import base
from .watched import LOOK_EVERY_S, Watched

BATCH = 512
LINGER_S = 0.1


class Preprocessing(Watched):
    name = "preprocessing"

    def __init__(self):
        super().__init__()
        self.subjects = {
            subjects.RAW_LOGS: Route(self.raw, "workers", BATCH, LINGER_S),
            subjects.STORED_LOGS: Route(self.stored, "workers", 8),
            subjects.WORKLOAD_PARAMETERS_UPDATE: Route(self.parameters),
        }
        self.ticks = ((LOOK_EVERY_S, self.poll),)

    def start(self) -> None:
        self.poll()

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
            if self.covers((item.cluster_id, item.namespace_name, item.deployment)):
                workloads.append(item)
        kept = workloads + others
        for item, masked in zip(kept, mask_many([item.log for item in kept]), strict=True):
            item.masked_log = masked
        return [
            *base.lists(subjects.PREPROCESSED_WORKLOAD, workloads),
            *base.lists(subjects.PREPROCESSED_PRETRAINED, others),
        ]
