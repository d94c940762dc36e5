"""CPU inferencing: offers each batch to the GPU for a second, and scores it itself unless the GPU took it. Lines of
tenants' own models are scored here only.
"""

from __future__ import annotations

import logging
import time

from aiops.wire import payloads, subjects
from kernel import bus
from kernel.errors import Fault
from kernel.serve import Route

from . import base
from .scoring import OwnModels, ServingModel

log = logging.getLogger(__name__)

LINGER_S = 0.05
SILENCE_S = 10.0  # after an unanswered offer none is made for that long


class Inference:
    name = "inference"

    def __init__(self, ask=bus.request):
        self.model = ServingModel("cpu")
        self.own = OwnModels()
        self.ask = ask
        self.no_offer_until = 0.0
        self.subjects = {
            subjects.OPNILOG_WORKLOAD: Route(self.infer, "workers", subjects.MAX_OFFER, LINGER_S),
            subjects.OWN_MODEL_LOGS: Route(self.infer_own, "workers", subjects.MAX_OFFER, LINGER_S),
            subjects.MODEL_UPDATE: Route(self.model_update),
        }
        self.ticks = ((5.0, self.poll, self.model.is_loaded),)

    def start(self) -> None:
        self.model.poll()

    def poll(self) -> None:
        self.model.poll()

    def model_update(self, data: bytes) -> None:
        base.read_json(data)
        self.model.poll()

    def infer(self, messages: list[bytes]) -> list[tuple[str, bytes]]:
        items = base.items_of(subjects.OPNILOG_WORKLOAD, messages)
        result: list[tuple[str, bytes]] = []
        for start in range(0, len(items), subjects.MAX_OFFER):
            part = items[start : start + subjects.MAX_OFFER]
            for data in payloads.batches(part):
                if not self.taken(data):
                    result += self.model.judge(payloads.decode(data))
        return result

    def infer_own(self, messages: list[bytes]) -> list[tuple[str, bytes]]:
        return self.own.judge(base.items_of(subjects.OWN_MODEL_LOGS, messages))

    def taken(self, data: bytes) -> bool:
        """Return whether the GPU has taken the batch. `NO`, no answer, no listener and any other reply mean that it has
        not.
        """
        if time.monotonic() < self.no_offer_until:
            return False
        try:
            return self.ask(subjects.GPU_INFERENCE, data, subjects.OFFER_TIMEOUT_S) == subjects.YES
        except Fault as problem:
            log.info("%s: %s; scoring here", subjects.GPU_INFERENCE, problem)
            self.no_offer_until = time.monotonic() + SILENCE_S
            return False
