"""The rates as a service: one replica counts how often templates come, and finds what is unusual (judging/rates.py)."""

from __future__ import annotations

import logging

from django.utils import timezone

from aiops.judging import rate_alerts, rates
from kernel.database import reachable
from kernel.errors import Fault
from kernel.singleton import Holder

log = logging.getLogger(__name__)

COUNT_EVERY_S = 15


class Rates:
    name = "rates"
    subjects: dict = {}

    def __init__(self, active: Holder | None = None):
        self.active = active or Holder("aiops.rates")
        self.ticks = ((COUNT_EVERY_S, self.count),)

    def count(self) -> None:
        if not self.active.hold():
            return
        try:
            rates.advance(timezone.now())
            with reachable():
                rate_alerts.tell_ends(timezone.now())
        except Fault as problem:
            log.warning("the lines could not be counted by template: %s", problem)

    def stop(self) -> None:
        self.active.release()
