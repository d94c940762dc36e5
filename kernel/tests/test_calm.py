"""A periodic look at what reports its changes: at first, for a while after each change, and now and then."""

from __future__ import annotations

from kernel import serve
from kernel.serve import Calm


class Clock:
    """Stands in for the module `time`."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def looks(calm: Calm, clock: Clock, seconds: int) -> list[int]:
    """Return in which of the next seconds a look is due."""
    due = []
    for second in range(seconds):
        if calm.is_due():
            due.append(second)
        clock.now += 1
    return due


def test_a_look_is_due_after_each_change_and_now_and_then(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(serve, "time", clock)
    lively, quiet = int(serve.STIRRED_S), int(serve.QUIET_S)
    calm = Calm()
    assert looks(calm, clock, 2 * quiet) == [*range(lively), lively - 1 + quiet]
    calm.stir()
    assert looks(calm, clock, lively + 5) == [*range(lively)]


def test_a_service_may_ask_for_more_looks(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(serve, "time", clock)
    lively = int(serve.STIRRED_S)
    assert looks(Calm(quiet_s=5), clock, lively + 12) == [*range(lively), lively + 4, lively + 9]
