"""Detection of sessions that differ from the normal ones."""

from __future__ import annotations

import math

import pytest

from opnilog.sessions import Sessions


@pytest.fixture
def sessions() -> Sessions:
    normal = [["open", *["write"] * times, "close"] for times in range(20, 40)] * 20
    return Sessions().fit(normal)


def test_a_session_like_the_normal_ones_is_normal(sessions):
    assert sessions.score(["open", *["write"] * 30, "close"]) == 0
    assert not sessions.is_odd(["close", *["write"] * 41, "open"])


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (["open", *["write"] * 30], ("close", 0, 1)),
        (["open", *["write"] * 30, "close", "close"], None),
        (["open", *["write"] * 30, "fire", "close"], ("fire", 1, 0)),
        (["open", *["write"] * 300, "close"], ("write", 300, 39)),
        ([], ("write", 0, 20)),
    ],
)
def test_missing_repeated_and_new_events_are_anomalies(sessions, events, reason):
    if reason is None:  # twice instead of once is within what a small threshold decides
        assert sessions.score(events) == pytest.approx(math.log(3 / 2))
        return
    assert sessions.is_odd(events)
    assert sessions.reasons(events)[0] == reason


def test_the_threshold_is_never_above_one_event_more():
    wild = [[number] for number in range(50)]
    assert Sessions().fit(wild).threshold < math.log(2)


def test_training_needs_at_least_one_session():
    with pytest.raises(ValueError, match="no session"):
        Sessions().fit([])
