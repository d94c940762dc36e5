"""Model exchange: fetches models of other trainers, and keeps ours in the bucket. One replica is active."""

from __future__ import annotations

import logging

from aiops.training import exchange, offering
from aiops.wire import subjects
from kernel.database import reachable
from kernel.errors import Fault
from kernel.serve import Route
from kernel.singleton import Holder

from . import base

log = logging.getLogger(__name__)

LOOK_EVERY_S = 30


class ModelExchange:
    name = "models"

    def __init__(self, active: Holder | None = None):
        self.active = active or Holder("aiops.models")
        self.subjects = {subjects.MODEL_UPDATE: Route(self.model_update)}
        self.ticks = ((LOOK_EVERY_S, self.poll),)

    def stop(self) -> None:
        self.active.release()

    def start(self) -> None:
        self.active.hold()

    def model_update(self, data: bytes) -> None:
        update = base.read_json(data)
        if self.active.hold():
            exchange.update(update)

    def poll(self) -> None:
        """Put our version into the bucket where it is missing there."""
        if not self.active.hold():
            return
        try:
            with reachable():
                offering.offer()
        except Fault as problem:
            log.warning("the bucket of models cannot be kept up to date now: %s", problem.msg)
