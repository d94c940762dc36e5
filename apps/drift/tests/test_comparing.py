"""Which features a body has, of what kind they are, and whether two samples of them differ."""

from __future__ import annotations

import random

import pytest

from apps.drift import comparing, features
from apps.drift.columns import Column, columns_of, key_of, profile_of
from apps.drift.comparing import Rule, compare

FIXED = frozenset({"point"})


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ({"age": 3, "city": "x"}, [{"age": 3, "city": "x"}]),
        ({"a": {"b": [1, {"c": True}]}}, [{"a.b.c": True}]),
        ({"x": [1, 2], "y": ["a", "b"]}, [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]),
        ({"x": [1, 2], "y": [1]}, [{"x.0": 1, "x.1": 2, "y": 1}]),
        ({"point": [1, 2]}, [{"point.0": 1, "point.1": 2}]),
        ({"x": [[1, 2], [3, 4]]}, [{"x.0": 1, "x.1": 2}, {"x.0": 3, "x.1": 4}]),
        ([[1, 2], [3, 4]], [{"value.0": 1, "value.1": 2}, {"value.0": 3, "value.1": 4}]),
        ({"inputs": [{"name": "x", "shape": [2, 2], "data": [1, 2, 3, 4]}]},
         [{"x.0": 1, "x.1": 2}, {"x.0": 3, "x.1": 4}]),
        ({"inputs": {"x": [1, 2]}}, [{"x": 1}, {"x": 2}]),
        ({"dataframe_split": {"columns": ["a", "b"], "data": [[1, 2], [3, None]]}},
         [{"a": 1, "b": 2}, {"a": 3, "b": None}]),
        ({"dataframe_split": 5}, [{"dataframe_split": 5}]),
        ({"dataframe_records": [{"a": 1}]}, [{"a": 1}]),
        ({"instances": [{"a": 1}, 7]}, [{"a": 1}, {"instances": 7}]),
        ({"predictions": [[0.2, 0.8], [0.9, 0.1]]}, [{"predictions (class)": "1"}, {"predictions (class)": "0"}]),
        ({"y": [[0, 1], [1, 0]]}, [{"y.0": 0, "y.1": 1}, {"y.0": 1, "y.1": 0}]),
        ({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]},
         [{"messages.role": "user", "messages.content": "hi"}]),
        (5, [{"value": 5}]),
    ],
)  # fmt: skip
def test_bodies_are_rows(body, rows):
    assert features.rows_of(body, FIXED) == rows


def test_huge_and_deep_bodies_are_bounded():
    deep: dict = {"a": 1}
    for _level in range(40):
        deep = {"a": deep}
    assert features.rows_of(deep) == [{}]
    (row,) = features.rows_of({f"f{number}": number for number in range(5000)})
    assert len(row) == features.MAX_FEATURES
    assert len(features.rows_of({"x": list(range(5000))})) == features.MAX_ROWS
    (row,) = features.rows_of({"point": list(range(5000))}, FIXED)
    assert len(row) == features.MAX_FEATURES
    assert len(features.rows_of({"t": "x" * 10_000})[0]["t"]) == features.MAX_TEXT
    (row,) = features.rows_of({f"t{number}": "x" * 10_000 for number in range(50)})
    assert sum(map(len, row.values())) == features.MAX_TEXTS


def test_tables_of_text_have_a_heading_or_numbers():
    assert list(features.rows_of_csv("a,b\n1,x\n\n2,y\n")) == [{"a": "1", "b": "x"}, {"a": "2", "b": "y"}]
    assert list(features.rows_of_csv("1,2\n3,4\n")) == [{"0": "1", "1": "2"}, {"0": "3", "1": "4"}]


def kinds(**columns) -> dict[str, tuple[str, str]]:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return {each["name"]: (each["kind"], each["why"]) for each in profile_of(rows, {}, "input")}


def test_kinds_follow_from_the_values():
    count, draw = 60, random.Random(1)
    found = kinds(
        price=[draw.random() for _ in range(count)],
        spelled=[str(draw.random()) for _ in range(count)],
        rooms=[draw.randrange(5) for _ in range(count)],
        income=[draw.randrange(10**6) for _ in range(count)],
        serial=list(range(count)),
        uuid=[f"u{draw.random()}" for _ in range(count)],
        said=[f"please send me number {draw.random()}" for _ in range(count)],
        flag=[draw.random() < 0.5 for _ in range(count)],
        day=[f"2026-05-{1 + number % 28:02}" for number in range(count)],
        nothing=[None, "", float("nan"), float("inf"), "NA"] * 12,
        constant=["x"] * count,
        same=[7] * count,
    )
    assert found == {
        "price": ("numeric", ""), "spelled": ("numeric", ""), "rooms": ("category", ""), "income": ("numeric", ""),
        "serial": ("skip", "ids"), "uuid": ("skip", "ids"), "said": ("text", ""), "flag": ("category", ""),
        "day": ("skip", "dates"), "nothing": ("skip", "empty"), "constant": ("category", ""),
        "same": ("category", ""),
    }  # fmt: skip
    assert profile_of([{"zip": 1.5}], {"zip": "skip"}, "input")[0]["why"] == "chosen"


def test_a_cell_of_csv_and_a_value_of_json_are_the_same_category():
    assert key_of("1") == key_of(1) == key_of(1.0) == key_of("1.0")
    assert key_of("True") == key_of(True) == "true"
    assert key_of("007") != key_of("7")
    assert key_of("0.5") == key_of(0.5)


def judged(before: list[dict], now: list[dict], optional: bool = False, **chosen) -> dict[str, dict]:
    profile = profile_of(before, chosen, "input")
    found = compare(profile, columns_of(now, [each["name"] for each in profile]), Rule(), optional)
    return {each["name"]: each for each in found}


def sample(count: int, seed: int, **change) -> list[dict]:
    draw = random.Random(seed)
    rows = [{"n": draw.gauss(0, 1), "c": draw.choice("aabc"), "t": f"order {draw.randrange(10**6)} of today now"}
            for _ in range(count)]  # fmt: skip
    return [row | {key: make(row, draw) for key, make in change.items()} for row in rows]


def test_equal_samples_do_not_differ():
    found = judged(sample(500, 1), sample(500, 2))
    assert not any(each["drifted"] for each in found.values())
    assert [each["test"] for each in found.values()].count("ks") == 2


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("n", {"n": lambda row, draw: row["n"] + 0.5}),
        ("n", {"n": lambda row, draw: row["n"] * 2}),
        ("n", {"n": lambda row, draw: None if draw.random() < 0.3 else row["n"]}),
        ("c", {"c": lambda row, draw: "d" if draw.random() < 0.2 else row["c"]}),
        ("c", {"c": lambda row, draw: draw.choice("abbc")}),
        ("t", {"t": lambda row, draw: row["t"] * 3}),
    ],
)
def test_a_change_is_found_in_its_feature_alone(name, change):
    found = judged(sample(500, 1), sample(500, 2, **change))
    assert {each for each in found if found[each]["drifted"]} == {name}
    assert next(iter(found)) == name  # the most drifted is first


def test_large_samples_do_not_make_small_differences_drift():
    found = judged(sample(2000, 1), sample(2000, 2, n=lambda row, draw: row["n"] + 0.08))
    assert not found["n"]["drifted"]
    assert found["n"]["distance"] < 0.1


def test_many_categories_do_not_drift_by_chance():
    """The most frequent ones of a sample are partly so by chance, and would be rarer in each of the windows."""
    draw = random.Random(4)
    profile = profile_of([{"zip": f"z{draw.randrange(200)}"} for _ in range(2000)], {}, "input")
    assert len(profile[0]["counts"]) == 51

    def drifted(first: int) -> int:
        windows = ([{"zip": f"z{draw.randrange(first, 200)}"} for _ in range(300)] for _window in range(20))
        return sum(compare(profile, columns_of(rows, ["zip"]), Rule())[0]["drifted"] for rows in windows)

    assert drifted(0) <= 2
    assert drifted(-400) == 20  # most of them are new


def test_what_the_figures_say():
    before = [{"n": float(number % 100) + 0.5, "c": "ab"[number % 2]} for number in range(400)]
    now = [{"n": float(number % 100) + 100.5, "c": "ac"[number % 2]} for number in range(400)]
    found = judged(before, now)
    assert (found["n"]["outside"], found["n"]["statistic"], found["n"]["psi"] > 1) == (1.0, 1.0, True)
    assert found["n"]["distance"] == pytest.approx(100 / 28.866, rel=1e-3)
    assert found["c"]["new"] == 0.5
    assert found["c"]["distance"] == pytest.approx(0.5**0.5)
    assert (found["n"]["low"], found["n"]["high"]) == (0.5, 199.5)
    assert found["n"]["bars"][0] == pytest.approx([0.1] * 10 + [0.0] * 10)


def test_odd_values_break_nothing():
    for values in ([5.5] * 100, [1e308, -1e308] * 50, [5e-324] * 100, [0.0] * 100):
        found = judged([{"v": value} for value in values], [{"v": value} for value in values], v="numeric")
        assert not found["v"]["drifted"], values[:2]
    assert judged([{"v": 5.5}] * 100, [{"v": 6.5}] * 100, v="numeric")["v"]["drifted"]
    assert judged([{"v": "x"}] * 100, [{"v": "y"}] * 100)["v"]["drifted"]
    assert judged([{"v": 1.5}] * 100, [{"v": "many"}] * 100, v="numeric")["v"]["drifted"]  # a type has changed
    assert judged([{"v": 1.5}] * 100, [{}] * 100)["v"]["drifted"]
    assert judged([{"v": 1.5}] * 100, [{}] * 100, optional=True)["v"]["why"] == "absent"
    assert not judged([{"v": 1.5}], [])["v"]["drifted"]
    many = [{"v": number / 3, "c": "ab"[number % 2]} for number in range(2000)]
    for each in judged(many, [{"v": None, "c": None}] * 100).values():  # all are missing now
        assert each["drifted"]
        assert (each["distance"], each["psi"], each["missing"]) == (0, 0, 1)
    gone = judged(many, [{"v": number / 3, "c": "a"} for number in range(0, 2000, 2)])
    assert (gone["v"]["drifted"], gone["c"]["drifted"], gone["c"]["new"]) == (False, True, 0)
    assert 0 < gone["c"]["psi"] < 10  # a category that has disappeared, which makes the plain formula infinite


def test_adjusted_p_values_are_those_of_benjamini_and_hochberg():
    found = [{"p": 0.04}, {"p": 0.01}, {"p": 0.03}, {"p": 0.9}]
    comparing.adjust(found)
    assert [round(each["q"], 4) for each in found] == [0.0533, 0.04, 0.0533, 0.9]


def test_many_categories_are_joined():
    draw = random.Random(3)
    rows = [{"c": f"c{min(int(draw.expovariate(0.05)), 200)}"} for _ in range(1500)]
    found = judged(rows[:750], rows[750:])
    assert not found["c"]["drifted"]
    assert len(found["c"]["labels"]) == comparing.SHOWN_CATEGORIES
    assert columns_of([{"a": 1}, {}])["a"] == Column([1], 2, 1)
