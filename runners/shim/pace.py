"""Limits how fast a run may publish on the message bus: messages and bytes per second, with a generous burst.

The relay counts what it reads from the run's connections to NATS, and stops reading while the budget is negative: the
run's own writes block, and nothing that was read is lost. Standard library only.
"""

from __future__ import annotations

import re
import time

BURST_S = 10  # how much of its rate a run may save up
# A command of NATS that publishes. One in a message's own text counts, too, so no message is missed.
PUBLISHES = re.compile(rb"\nh?pub[ \t]", re.IGNORECASE)
LONGEST = 5  # bytes of it that may be in the piece before
TLS, SHORTEST = 0x16, 32  # the first byte of an encrypted connection, and the bytes of the shortest message


class Pace:
    """The budget of a run, for all its connections together."""

    def __init__(self, bytes_s: float, messages_s: float):
        self.rates = (bytes_s, messages_s)
        self.left = [rate * BURST_S for rate in self.rates]
        self.then = time.monotonic()

    def take(self, size: int, messages: int) -> None:
        """Take this from the budget, which may become negative."""
        self._earn()
        for index, amount in enumerate((size, messages)):
            self.left[index] -= amount

    def wait_s(self) -> float:
        """Return the seconds until the budget is no longer negative; 0 if it is not."""
        self._earn()
        return max(0.0, *(-left / rate for left, rate in zip(self.left, self.rates, strict=True)))

    def _earn(self) -> None:
        now = time.monotonic()
        for index, rate in enumerate(self.rates):
            self.left[index] = min(rate * BURST_S, self.left[index] + rate * (now - self.then))
        self.then = now


class Meter:
    """Counts what one connection publishes."""

    def __init__(self, pace: Pace):
        self.pace, self.before, self.encrypted = pace, b"\n", None

    def count(self, data: bytes) -> None:
        """Count this piece of what the run has sent."""
        if self.encrypted is None:
            self.encrypted = data[0] == TLS
        if self.encrypted:  # as many messages as can be in it
            return self.pace.take(len(data), -(-len(data) // SHORTEST))
        text, known = self.before + data, len(self.before)
        self.pace.take(len(data), sum(match.end() > known for match in PUBLISHES.finditer(text)))
        self.before = text[-LONGEST:]
