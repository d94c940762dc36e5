"""How many long-lived connections each user has open in this process, and the most that one user may have.

For what only one process serves: websockets and followed logs, which all go to the part `websockets`.
"""

from __future__ import annotations

import threading
from collections import Counter

from django.conf import settings

from .messages import Message
from .telemetry import meters

TOO_MANY = 4429  # the code that closes a websocket of a user who has too many


class Slot:
    """One connection of a user. Freed once: by `free`, or when nothing refers to it any more."""

    def __init__(self, slots: Slots, key: int):
        self.slots, self.key = slots, key

    def free(self) -> None:
        """Give the slot back; again has no effect."""
        slots = self._give_back()
        if slots is not None:
            slots.show()

    def _give_back(self) -> Slots | None:
        slots, self.slots = self.slots, None
        if slots is not None:
            slots.give_back(self.key)
        return slots

    def __del__(self):
        self._give_back()  # without `show`: the collector may have interrupted it, with its lock taken


class Slots:
    """The connections of one kind, counted by user. The setting of this name says how many a user may have;
    monitoring counts them as `kind`.
    """

    def __init__(self, setting: str, kind: str):
        self.setting, self.kind = setting, kind
        self.taken: Counter[int] = Counter()
        self.lock = threading.RLock()  # a slot may be collected while one is taken

    @property
    def most(self) -> int:
        return getattr(settings, self.setting)

    def take(self, key: int) -> Slot | None:
        """Return a slot of the user; None when all are taken."""
        with self.lock:
            if self.taken[key] >= self.most:
                return None
            self.taken[key] += 1
        self.show()
        return Slot(self, key)

    def give_back(self, key: int) -> None:
        """Count one connection less."""
        with self.lock:
            self.taken[key] -= 1
            if self.taken[key] <= 0:
                del self.taken[key]

    def show(self) -> None:
        """Show monitoring how many there are."""
        meters.CONNECTIONS.labels(self.kind).set(sum(self.taken.copy().values()))

    def refusal(self) -> Message:
        """Return the error for a user who has too many."""
        return Message(
            "too many at the same time: a user may have %(limit)s (%(setting)s)",
            limit=self.most,
            setting=f"MLP_{self.setting}",
        )


WEBSOCKETS = Slots("WEBSOCKETS_PER_USER", "websocket")
FOLLOWED_LOGS = Slots("FOLLOWED_LOGS_PER_USER", "followed_log")
