"""What ties the lines of a log together is found without being named, and nothing is where nothing does."""

from __future__ import annotations

import random
import uuid

import pytest

from opnilog.masking import mask
from opnilog.session_keys import find

WORK = ("accepted request {0} from 10.0.0.{1}", "{0} reads cart {2}", "{0}: charging card", "answered {0} in {2} ms")


def number(chance: random.Random, count: int) -> str:
    return str(4000 + count)


KINDS = {
    "block": ("blk_{}", lambda chance, count: str(chance.randrange(-(10**18), 10**18)), "blk_-?"),
    "prefix": ("req-{}", number, "req-?"),
    "uuid": ("{}", lambda chance, count: str(uuid.UUID(int=chance.getrandbits(128))), "{12}"),
    "named uuid": ("job-{}", lambda chance, count: str(uuid.UUID(int=chance.getrandbits(128))), "job"),
    "hex": ("{}", lambda chance, count: f"{chance.getrandbits(59):015x}a", "{16}"),
    "word before": ("session={}", number, "session"),
    "two numbers": ("job_{}", lambda chance, count: f"2025_{count:04d}", "job_"),
}


def log(kind: str, sessions: int = 200) -> tuple[list[str], list[str]]:
    """Return the lines of sessions that overlap, with heartbeats between them, and the sessions' ids."""
    chance = random.Random(7)
    form, made, _shape = KINDS[kind]
    rows, ids = [], []
    for count in range(sessions):
        ids.append(made(chance, count))
        for place, text in enumerate(WORK):
            line = text.format(form.format(ids[-1]), chance.randrange(9), chance.randrange(10**6))
            rows.append((count * 3 + place * 2 + chance.random(), line))
        rows.append((count * 3 + 1.5, f"heartbeat {count} ok, load 0.{chance.randrange(10)}"))
    return [line for _, line in sorted(rows)], ids


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_ids_are_found_by_their_form_or_the_word_before(kind):
    lines, ids = log(kind)
    key = find([(line, None) for line in lines], [mask(line).replace(ids[0], "") for line in lines])
    assert key is not None
    assert KINDS[kind][2] in key.pattern
    found = {value for line in lines for value in key.values(line)}
    assert len(found) == len(ids)
    assert all(any(id in value for value in found) for id in ids[:20])


def test_an_attribute_that_ties_the_lines_is_found():
    lines, _ids = log("prefix")
    texts = ["started", "working", "still working", "ended"]
    rows = [(texts[place % 4], {"trace_id": f"t{place // 4}", "host": f"h{place % 3}"}) for place in range(len(lines))]
    key = find(rows, [text for text, _ in rows])
    assert (key.where, key.pattern) == ("attribute", "trace_id")
    assert key.values("anything", {"trace_id": "x1"}) == ["x1"]
    assert key.values("anything", None) == []


@pytest.mark.parametrize(
    "line",
    [
        "heartbeat {n} ok",  # each value once
        "user u{few} opens page {n}",  # the same values in all of the log
        "GET /index from 10.0.0.{few} took {n}.5 ms at 2025-11-{few}",
        "no value at all",
    ],
)
def test_nothing_is_found_where_nothing_ties_lines_together(line):
    lines = [line.format(n=n, few=10 + n % 15) + (" again" if n % 2 else "") for n in range(1000)]
    assert find([(text, None) for text in lines], [mask(text) for text in lines]) is None
    assert find([], []) is None


def found(texts: list[str]):
    return find([(text, None) for text in texts], [mask(text) for text in texts])


def test_values_that_come_in_all_of_the_log_are_no_sessions():
    """Users, hosts: as many lines and templates as sessions have, but from the first to the last."""
    assert found([f"{'login' if n // 30 % 2 else 'logout'} of user u{n % 30}" for n in range(3000)]) is None
    assert found([f"{'login' if n % 2 else 'logout'} of user u{n // 20}" for n in range(3000)]) is not None


def test_values_of_which_most_come_once_are_no_sessions():
    texts = []
    for n in range(600):
        texts += [f"started task-{n}"] + [f"task-{n} is done"] * (n % 4 == 0)
    assert found(texts) is None
    assert found([text for n in range(600) for text in (f"started task-{n}", f"task-{n} is done")]) is not None


def test_a_value_of_much_of_the_log_is_no_session():
    session = [text for n in range(300) for text in (f"started task-{n}", f"task-{n} is done")]
    assert found([*session, *["task-0 is the parent"] * 60]) is not None
    assert found([*session, *["task-0 is the parent"] * 200]) is None


def test_values_with_other_templates_each_are_no_sessions():
    chance, words = random.Random(2), [f"{'so ' * count}done by" for count in range(16)]
    texts = [f"{text} task-{n}" for n in range(300) for text in chance.sample(words, 6)]
    assert found(texts) is None


def test_a_line_of_several_sessions_has_several_values():
    lines, _ids = log("block")
    key = find([(line, None) for line in lines], [mask(line) for line in lines])
    assert key.values("delete blk_-12, blk_44 and /data/blk_-12 of subblk_7") == ["blk_-12", "blk_44"]


def test_the_choice_is_the_same_every_time():
    lines, _ids = log("uuid")
    rows = [(line, {"b": line.split()[-1], "a": line.split()[-1]}) for line in lines]
    templates = [mask(line) for line in lines]
    assert len({find(rows, templates) for _ in range(3)}) == 1


def test_a_line_that_is_made_to_take_long_is_read_like_others():
    for kind in KINDS:
        lines, ids = log(kind)
        key = find([(line, None) for line in lines], [mask(line).replace(ids[0], "") for line in lines])
        for part in ("1", "1-", "session=1", "a1", "job_1_", "- ", "0f", "session "):
            assert all(len(value) <= 128 for value in key.values(part * 50_000 + ".x"))
    rows = [("a1-2-3-4-5-6-7-8-9 b" + "1" * 100 + " session=" + "1" * 5000 + ".x", None)] * 50
    assert find(rows, ["t"] * 50) is None


def test_many_different_words_with_digits_are_no_candidates():
    lines = [
        " ".join(f"{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}x{place}y{n}" for place in range(9)) for n in range(2000)
    ]
    assert find([(line, {f"a{n}": "x"}) for n, line in enumerate(lines)], [mask(line) for line in lines]) is None
