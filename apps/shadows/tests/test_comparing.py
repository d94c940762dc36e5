"""What counts as the same answer, and how latencies are counted."""

from __future__ import annotations

import json

import pytest

from apps.shadows import comparing, latencies
from apps.shadows.comparing import Answer, Rule

JSON = "application/json"


def answer(value, status: int = 200, whole: bool = True) -> Answer:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Answer(status, 1.0, JSON, whole, data)


def compared(*given) -> tuple[str, str]:
    kind, where = comparing.compare(*given)
    return kind, comparing.written(where)


@pytest.mark.parametrize(
    ("base", "shadow", "found"),
    [
        ({"y": [1.0]}, {"y": [1]}, ("equal", "")),
        ({"y": [1.0, 2.0]}, {"y": [1.0, 2.0000001]}, ("equal", "")),
        ({"y": [1.0, 2.0]}, {"y": [1.0, 2.1]}, ("different", "$.y[1]")),
        ({"y": [1.0]}, {"y": [1.0, 2.0]}, ("different", "$.y")),
        ({"y": 1}, {"z": 1}, ("different", "$.y")),
        ({"y": True}, {"y": 1}, ("different", "$.y")),
        ({"y": float("nan")}, {"y": float("nan")}, ("equal", "")),
        ({"y": 10**400}, {"y": 1.0}, ("different", "$.y")),
        ({"y": None}, {"y": 0}, ("different", "$.y")),
        ({"at": 1, "y": 2}, {"at": 5, "y": 2}, ("equal", "")),
        (b"null", b"null ", ("equal", "")),
        (b"yes", b"no", ("different", "")),
        (b"\xff", b"\xff", ("equal", "")),
        (b"[" * 3000, b"[" * 3001, ("different", "")),
        (
            {"id": "a", "object": "chat.completion", "created": 1, "choices": [{"text": "x"}]},
            {"id": "b", "object": "chat.completion", "created": 2, "choices": [{"text": "x"}]},
            ("equal", ""),
        ),
        ({"id": "a"}, {"id": "b"}, ("different", "$.id")),
    ],
)
def test_bodies_are_compared_as_values(base, shadow, found):
    assert compared(answer(base), answer(shadow), Rule(1e-6, frozenset({"at"}))) == found


def test_deep_answers_are_compared():
    deep = [b"[" * 900 + number + b"]" * 900 for number in (b"1", b"2")]
    assert comparing.compare(answer(deep[0]), answer(deep[0] + b" "), Rule())[0] == "equal"
    assert comparing.compare(answer(deep[0]), answer(deep[1]), Rule())[0] == "different"


def test_statuses_come_first():
    assert compared(answer(1), None, Rule()) == ("failed", "")
    assert compared(answer(1), answer(1, status=500), Rule()) == ("status", "")
    assert compared(answer(1, status=400), answer(2, status=400), Rule()) == ("equal", "")
    assert compared(answer(1, whole=False), answer(1), Rule()) == ("unknown", "")


def test_names_below_what_is_masked_are_not_shown():
    masked = '{"scores": "***", "rows": [{"at": 1}]}'
    assert comparing.written(comparing.uncovered(("scores", "a@b"), masked, masked)) == "$.scores"
    assert comparing.written(comparing.uncovered(("rows", 0, "at"), masked, masked)) == "$.rows[0].at"
    assert (
        comparing.written(comparing.uncovered(("rows", 0, "new"), masked, '{"rows": [{"new": 1}]}')) == "$.rows[0].new"
    )
    assert comparing.written(comparing.uncovered(("rows",), masked, "")) == "$"


def test_percentiles_are_within_five_percent():
    counts: dict[str, int] = {}
    assert latencies.percentile(counts, 0.5) is None
    for ms in range(1, 1001):
        latencies.add(counts, ms)
    assert latencies.percentile(counts, 0.5) == pytest.approx(500, rel=0.06)
    assert latencies.percentile(counts, 0.95) == pytest.approx(950, rel=0.06)
    latencies.add(counts, 0.0)
    latencies.add(counts, 1e12)
    assert len(counts) < 100
