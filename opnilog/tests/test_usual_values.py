"""Which values are usual in the lines of a template: what is learned from lines, and what is found unusual."""

from __future__ import annotations

import json
import random

import pytest

from opnilog.masking import mask
from opnilog.usual_values import FILE, UsualValues, learn, number_of

LINE = "GET /cart status={status} took {took:.3f} s total={total:.2f} user=u{user} req={req} pid={pid}"


def shop(lines: int, seed: int = 1, **fixed) -> list[str]:
    chance = random.Random(seed)
    return [
        LINE.format(
            **{
                "status": chance.choices([200, 304, 404], [90, 8, 2])[0],
                "took": chance.lognormvariate(-2, 0.8),
                "total": chance.lognormvariate(3, 1),
                "user": chance.randrange(500),
                "req": 1_000_000 + 3 * number,
                "pid": chance.choice([1201, 1202]),
                **fixed,
            }
        )
        for number in range(lines)
    ]


def rows(lines: list[str]) -> list[dict]:
    return [{"log": line, "workload": "local/alice/shop"} for line in lines]


def found(known: UsualValues, line: str) -> list[tuple[str, str]]:
    return [(finding.value, finding.usual) for finding in known.unusual(mask(line), line)]


@pytest.fixture(scope="module")
def learned() -> dict:
    return json.loads(json.dumps(learn(rows(shop(3000)))))


@pytest.fixture
def known(learned) -> UsualValues:
    return UsualValues(learned)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ({"status": 500}, "500"),
        ({"took": 30.0}, "30.000 s"),
        ({"total": -12.5}, "-12.50"),
        ({"total": 9_999_999.0}, "9999999.00"),
    ],
)
def test_a_value_that_never_was_is_unusual_and_the_usual_ones_are_named(known, change, value):
    [line] = shop(1, seed=7, **change)
    [(said, usual)] = found(known, line)
    assert said == value
    assert usual.startswith("200, 304, 404") if "status" in change else " – " in usual


def test_the_place_of_a_value_is_that_of_its_word(known):
    [line] = shop(1, seed=7, status=500)
    [finding] = known.unusual(mask(line), line)
    assert mask(line).split()[finding.position - 2 : finding.position + 1] == ["status", "=", "<num>"]


def test_usual_values_what_grows_and_identifiers_are_none(known):
    """Further lines, whose request numbers go on, with another process's number and the smallest of durations."""
    assert sum(bool(found(known, line)) for line in shop(2000, seed=2)) <= 2  # one in a thousand
    assert [found(known, line) for line in shop(50, seed=3, req=90_000_000, pid=77, took=0.001)] == [[]] * 50


@pytest.mark.parametrize("change", [{"status": 500}, {"took": 30.0}, {"total": -12.5}, {"total": 9_999_999.0}])
def test_a_fault_among_the_lines_learned_from_stays_unusual(change):
    lines = shop(1998)
    for place in (700, 1900):
        lines[place:place] = shop(1, seed=7, **change)
    known = UsualValues(learn(rows(lines)))
    assert len(found(known, shop(1, seed=8, **change)[0])) == 1


def test_a_word_instead_of_a_value_is_for_the_model_to_judge(known):
    line = shop(1)[0].replace("status=200", "status=abc1")
    assert found(known, line) == []


def test_a_sender_of_other_units_is_understood():
    chance = random.Random(5)
    known = UsualValues(learn(rows([f"request took {chance.randrange(10, 90)}ms" for _ in range(400)])))
    assert found(known, "request took 0.05s") == []
    assert found(known, "request took 2s") == [("2s", "0.01 – 0.089 s")]


def test_another_unit_than_ever_is_not_compared():
    chance = random.Random(5)
    known = UsualValues(learn(rows([f"used {chance.randrange(10, 90)}% of it" for _ in range(400)])))
    assert found(known, "used 4000MB of it") == []
    assert found(known, "used 4000% of it") == [("4000%", "10 – 89 %")]


@pytest.mark.parametrize(
    "lines",
    [
        [f"step {number} of a run" for number in range(400)],
        [f"offset {number // 7} at last" for number in range(400)],
        [f"uptime {5 * number + number % 3} seconds" for number in range(400)],
        [f"pid {3000 + number % 2} began" for number in range(400)],
        [f"port {8080} opened" for number in range(400)],
        [f"altitude {240} metres" for number in range(150)],
        [f"seen {number % 7} times" for number in range(40)],
        [f"build 1.2.{number % 7} began" for number in range(400)],
        [f"id {'%08x' % (number * 2_654_435_761 % 2**32)} is here" for number in range(400)],
    ],
    ids=["step", "slow steps", "uptime", "process", "port", "constant", "few lines", "version", "hexadecimal"],
)
def test_nothing_is_learned_of_what_says_nothing_about_the_next_value(lines):
    assert learn(rows(lines))["templates"] == []


def test_nothing_is_learned_where_the_last_lines_differ_from_the_first():
    lines = [f"queue has {number % 5} waiting" for number in range(300)]
    lines += [f"queue has {50 + number % 5} waiting" for number in range(100)]
    assert learn(rows(lines))["templates"] == []


def test_a_number_that_always_was_zero():
    known = UsualValues(learn(rows([f"backup of {number % 9} tables ended, 0 failed" for number in range(200)])))
    assert found(known, "backup of 3 tables ended, 2 failed") == [("2", "0")]


def test_lines_that_were_labelled_anomalies_teach_nothing():
    odd = [{**row, "label": "anomaly"} for row in rows([f"status={500} x" for _ in range(100)])]
    known = UsualValues(learn([*rows([f"status={200} x" for _ in range(400)]), *odd]))
    assert found(known, "status=500 x") == [("500", "200")]


def test_a_template_covers_the_names_of_its_users():
    chance = random.Random(5)
    lines = [f"user n{'abcdefghij'[number % 10]}x paid {chance.uniform(5, 90):.2f} euro" for number in range(600)]
    known = UsualValues(learn(rows(lines)))
    assert found(known, "user somebody paid -3.00 euro") == [("-3.00", known.by_length[5][0][1]["3.0"].shown())]


def test_an_unusual_value_that_goes_on_becomes_usual(known):
    slow = shop(400, seed=9, took=20.0)
    flags = [bool(found(known, line)) for line in slow]
    assert flags[:40] == [True] * 40
    assert not any(flags[-200:])
    assert found(known, shop(1, seed=7, status=500)[0]) != []  # other positions go on


def test_what_is_missing_or_damaged(tmp_path):
    assert found(UsualValues.open(tmp_path), shop(1, status=500)[0]) == []
    for wrong in ("[]", '{"format": 9, "templates": []}', '{"format": 1, "templates": [{"words": ["a"]}]}', "{"):
        (tmp_path / FILE).write_text(wrong)
        with pytest.raises(ValueError):
            UsualValues.open(tmp_path)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", (12, "")), ("-12.50", (-12.5, "")), ("[3]", (3, "")), ("1.5e3", (1500, "")), ("250ms", (0.25, "s")),
        ("3 s", (3, "s")), ("2KB", (2000, "B")), ("1.5MiB", (1.5 * 2**20, "B")), ("40%", (40, "%")), ("7.", (7, "")),
        ("1.2.3", None), ("12ab", None), ("0x1f", None), ("10:20", None), ("1e999", None), ("v3", None),
    ],
)  # fmt: skip
def test_numbers_and_their_units(text, number):
    assert number_of(text) == (pytest.approx(number) if number is None else (pytest.approx(number[0]), number[1]))
