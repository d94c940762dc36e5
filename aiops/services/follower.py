"""The follower as a service: one replica follows the platform's own log files (aiops/intake/follow.py)."""

from __future__ import annotations

import logging

from aiops.intake import accept, follow
from kernel import storage
from kernel.database import reachable
from kernel.errors import Fault
from kernel.serve import Calm
from kernel.singleton import Holder

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
QUIET_S = 2.5  # between two looks at least, while no file grows


class FollowerService:
    name = "follower"
    subjects: dict = {}

    def __init__(self, active: Holder | None = None):
        self.active = active or Holder("aiops.follower")
        self.follower: follow.Follower | None = None
        self.news = Calm(QUIET_S)
        self.ticks = ((LOOK_EVERY_S, self.poll, self.news.is_due),)

    def poll(self) -> None:
        if not self.active.hold():
            self.follower = None  # another replica reads; what is in memory gets outdated
            return
        if self.follower is None:
            self.follower = follow.Follower(storage.root(), accept.store)
        try:
            with reachable():
                if self.follower.poll():
                    self.news.stir()
        except Fault as problem:
            self.follower = None  # memory may be ahead of what was stored
            log.warning("the logs cannot be stored now: %s", problem.msg)

    def stop(self) -> None:
        self.active.release()
