"""The sessions of a workload are learned from its lines, and odd ones found in further lines."""

from __future__ import annotations

import json
import random

import pytest

from opnilog import learned_sessions
from opnilog.learned_sessions import Learned, Session, Templates, learn
from opnilog.masking import mask

TEXTS = {
    "open": "request {0} opened by 10.0.0.7",
    "read": "{0} reads row 17",
    "write": "disk wrote 4096 bytes for {0}",
    "fail": "{0} failed to write",
    "close": "request {0} closed after 5 ms",
}
USUAL = ("open", "read", "write", "close")


def rows(sessions: list[tuple[str, ...]], workload: str = "w", **more) -> list[dict]:
    """Return the lines of sessions that overlap, in no order: one begins each second, with a line each second."""
    made = [
        {"workload": workload, "time": 1000 * (count + place), "log": TEXTS[event].format(f"req-{count}"), **more}
        for count, events in enumerate(sessions)
        for place, event in enumerate(events)
    ]
    random.Random(1).shuffle(made)
    return made


def learned(sessions: list, **more) -> Learned | None:
    state = json.loads(json.dumps(learn(rows(sessions, **more), 10_000)))
    return Learned(state["workloads"]["w"]) if state["workloads"] else None


def is_odd(known: Learned, *events: str) -> bool:
    lines = [TEXTS[event].format("req-99999") for event in events]
    assert all(known.key.values(line) == ["req-99999"] for line in lines)
    return known.sessions.is_odd([known.event(mask(line)) for line in lines])


@pytest.fixture(scope="module")
def known() -> Learned:
    return learned([USUAL] * 400)


def test_what_is_missing_extra_too_often_or_out_of_order_is_odd(known):
    assert not is_odd(known, *USUAL)
    assert is_odd(known, "open", "read", "close")
    assert is_odd(known, *USUAL, "fail")
    assert is_odd(known, "open", "read", *["write"] * 9, "close")
    assert is_odd(known, "close", "read", "write", "open")


def test_the_end_is_learned(known):
    assert [known.template(event) for event in known.ends] == ["request <token_with_digit> closed after <num> ms"]


def test_the_event_of_a_new_text_is_its_nearest_template(known):
    assert known.template(known.event("request <token_with_digit> opened by <ip>")).startswith("request")
    assert known.event("kernel panic") == "kernel panic"
    assert known.template("kernel panic") == "kernel panic"


def test_of_many_new_texts_some_are_kept():
    session = Session("v", 0, 0)
    for number in range(5000):
        session.add(number, f"text {'x' * 100}{number}" if number % 2 else 7)
    assert len(session.events) == learned_sessions.MAX_EVENTS
    assert len(set(session.events)) == learned_sessions.MAX_NEW + 2
    assert session.last == 4999


def test_a_new_text_is_cut(known):
    assert len(known.event("kernel " + "panic " * 5000)) == learned_sessions.SHOWN


def test_sessions_with_a_rare_line_that_names_a_problem_are_not_learned():
    sessions = [(*USUAL[:3], "fail", "close") if count % 50 == 9 else USUAL for count in range(400)]
    plain = learned(sessions)
    assert not is_odd(plain, *USUAL[:3], "fail", "close"), "nothing says that it is one"
    lines = rows(sessions)
    for line in lines:
        line.update({"problem": True} if "failed" in line["log"] else {})
    strict = Learned(learn(lines, 10_000)["workloads"]["w"])
    assert is_odd(strict, *USUAL[:3], "fail", "close")


def test_a_problem_that_is_part_of_normal_life_is_learned():
    lines = rows([(*USUAL[:3], "fail", "close") if count % 5 == 4 else USUAL for count in range(400)])
    for line in lines:
        line.update({"problem": True} if "failed" in line["log"] else {})
    assert not is_odd(Learned(learn(lines, 10_000)["workloads"]["w"]), *USUAL[:3], "fail", "close")


def test_nothing_is_learned_of_few_or_irregular_sessions_or_lines_without_a_key():
    assert learned([USUAL] * 30) is None
    chance = random.Random(3)
    irregular = [
        {"workload": "w", "time": 1000 * (count + place), "log": f"req-{count} {'very ' * chance.randrange(25)}busy"}
        for count in range(300)
        for place in range(9)
    ]
    assert learn(irregular, 10_000)["workloads"] == {}
    numbers = [
        {"workload": "w", "time": 1000 * count, "log": f"req-{count} is {'very ' * kind}busy"}
        for count in range(300)
        for kind in range(8)
        for _ in range(int(1.5 ** chance.randrange(9)))
    ]
    assert learn(numbers, 10_000)["workloads"] == {}
    assert learn([{"workload": "w", "time": n, "log": "all is well"} for n in range(500)], 1000)["workloads"] == {}
    assert learn([], 1000)["workloads"] == {}


def test_workloads_are_learned_apart_from_others():
    state = learn([*rows([USUAL] * 200, "a"), *rows([USUAL[:3]] * 200, "b")], 10_000)
    first, other = (Learned(state["workloads"][name]) for name in ("a", "b"))
    assert is_odd(other, *USUAL)
    assert not is_odd(first, *USUAL)


def test_a_model_without_sessions_has_none_and_a_damaged_one_is_refused(tmp_path):
    assert learned_sessions.load(tmp_path) == {}
    for damaged in ("[]", "{}", '{"format": 1, "workloads": {"w": {}}}', "{"):
        (tmp_path / learned_sessions.FILE).write_text(damaged)
        with pytest.raises(ValueError, match=""):
            learned_sessions.load(tmp_path)


def test_a_templates_text_is_of_that_template():
    """So what was kept as text finds its template in a version that is trained later."""
    templates = Templates([("<*>", "x", "failed"), ("<*>", "y", "failed"), ("<*>", "<*>", "failed")])
    assert [templates.event(templates.template(number)) for number in range(3)] == [0, 1, 2]
