"""Detection of sessions that differ from the normal ones."""

from __future__ import annotations

import json
import math

import pytest

from opnilog.sessions import Sessions


@pytest.fixture
def sessions() -> Sessions:
    normal = [["open", *["write"] * times, "close"] for times in range(20, 40)] * 20
    return Sessions().fit(normal)


def test_a_session_like_the_normal_ones_is_normal(sessions):
    assert sessions.score(["open", *["write"] * 30, "close"]) == 0
    assert not sessions.is_odd(["open", *["write"] * 41, "close"])


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


def test_a_wrong_order_of_a_steady_one_is_an_anomaly(sessions):
    assert sessions.is_odd(["close", *["write"] * 30, "open"])
    assert ("open", "close") in sessions.misplaced(["close", *["write"] * 30, "open"])
    assert not sessions.misplaced(["open", *["write"] * 30, "close"])


def test_an_order_that_is_not_steady_or_rare_is_not_learned():
    either = [["open", "read", "write", "close"], ["open", "write", "read", "close"]] * 100
    learned = Sessions().fit([*either, *[["open", "rare", "read", "write", "close"]] * 10])
    assert ("open", "close") in learned.ordered
    assert not {("read", "write"), ("write", "read")} & set(learned.ordered)
    assert not learned.is_odd(["open", "read", "rare", "write", "close"])


def test_an_event_that_comes_or_not_while_all_others_stay_is_optional():
    normal = [["open", *["retry"] * (number % 3), "close"] for number in range(300)]
    normal += [["open", "copy", "copy", "close"]] * 300
    learned = Sessions().fit(normal)
    assert not learned.is_odd(["open", "retry", "copy", "copy", "close"])
    assert learned.is_odd(["open", *["retry"] * 40, "copy", "copy", "close"]), "more than ever"
    assert learned.is_odd(["open", "copy", "close", "close"])


def test_what_was_learned_can_be_stored(sessions):
    loaded = Sessions.load(json.loads(json.dumps(sessions.dump())))
    for events in (["open", "close"], ["open", *["write"] * 300, "close"], ["close", "write", "open"], ["fire"]):
        assert loaded.score(events) == sessions.score(events)
        assert loaded.reasons(events) == sessions.reasons(events)
    with pytest.raises(ValueError, match="not learned sessions"):
        Sessions.load({"known": []})
