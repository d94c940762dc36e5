"""The sessions as a service: one replica reads the lines that belong together, and keeps what is odd
(judging/sessions.py).
"""

from __future__ import annotations

import logging

from django.utils import timezone

from aiops.judging.sessions import Judge
from kernel.errors import Fault
from kernel.singleton import Holder

log = logging.getLogger(__name__)

READ_EVERY_S = 15


class Sessions:
    name = "sessions"
    subjects: dict = {}

    def __init__(self, active: Holder | None = None):
        self.active = active or Holder("aiops.sessions")
        self.judge = Judge()
        self.ticks = ((READ_EVERY_S, self.read),)

    def read(self) -> None:
        if not self.active.hold():
            self.judge.forget()
            return
        try:
            self.judge.advance(timezone.now())
        except Fault as problem:
            log.warning("the sessions could not be read: %s", problem)

    def stop(self) -> None:
        self.active.release()
