"""Slots of connections: freed once, shown to monitoring, and safe wherever the garbage collector frees one."""

from __future__ import annotations

import pytest

from kernel import slots
from kernel.telemetry import meters


@pytest.fixture
def connections(settings):
    settings.WEBSOCKETS_PER_USER = 2
    return slots.Slots("WEBSOCKETS_PER_USER", "tried")


def shown() -> float:
    return meters.CONNECTIONS.labels("tried")._value.get()


def test_monitoring_is_shown_how_many_are_open(connections):
    one, other = connections.take(1), connections.take(1)
    assert connections.take(1) is None
    assert connections.take(2) is not None  # and collected at once
    assert shown() == 3
    one.free()
    one.free()
    assert shown() == 1
    other.free()
    assert shown() == 0


def test_a_slot_that_is_collected_waits_for_no_lock_of_a_meter(connections, monkeypatch):
    """The collector may run while a meter is being written: its lock would never be released."""
    slot = connections.take(1)
    monkeypatch.setattr(meters, "CONNECTIONS", None)
    problems: list = []
    monkeypatch.setattr("sys.unraisablehook", problems.append)
    del slot
    assert (problems, dict(connections.taken)) == ([], {})
