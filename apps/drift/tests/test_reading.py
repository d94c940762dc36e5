"""References and windows as they come in the world: tables of other programs, many features, a clock that was wrong."""

from __future__ import annotations

import csv
import random
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.drift import evaluating, plan, reading
from apps.drift.tests.conftest import midnight
from apps.drift.tests.test_drift import dataset
from apps.models import DriftCheck

pytestmark = pytest.mark.django_db


def test_many_features_are_compared_whatever_their_order(app, alice, put, check, windows):
    """A client need not send the keys in the order of the table's columns, which has the answer as its last one."""
    draw = random.Random(3)
    names = [f"f{number}" for number in range(120)]

    def given() -> dict[str, float]:
        return {name: round(draw.gauss(0, 1), 6) for name in draw.sample(names, len(names))}

    lines = [",".join([*(str(row[name]) for name in names), "ab"[at % 2]]) for at, row in enumerate(
        given() for _number in range(70))]  # fmt: skip
    dataset(alice, train_csv="\n".join([",".join([*names, "left"]), *lines]))
    put(1, bodies=[(given(), {"y": ["ab"[number % 2]]}) for number in range(60)])
    check(dataset="train", target="left")
    (seen,) = windows()
    assert (seen["verdict"], seen["compared"], seen["drifted"]) == ("steady", reading.COMPARED + 1, 0)


@pytest.mark.parametrize(("between", "mark"), [(";", ""), (";", "\ufeff"), ("\t", "")])
def test_tables_may_have_semicolons_or_tabs(app, alice, put, check, between, mark):
    draw = random.Random(3)
    rows = "".join(f"{draw.gauss(40, 9)}{between}{'abc'[number % 3]}\n" for number in range(60))
    put(1)
    dataset(alice, train_csv=f"{mark}age{between}city\n{rows}")
    assert [each["name"] for each in check(dataset="train")["features"]] == ["age", "city"]


@pytest.fixture
def longest_cell():
    """What a cell may have in the platform's processes; those of applications, whose modules other tests import, take
    any.
    """
    before = csv.field_size_limit(128 << 10)
    yield
    csv.field_size_limit(before)


@pytest.mark.usefixtures("longest_cell")
@pytest.mark.parametrize("content", ["city\nM\udcfcnchen\n", "city\n" + 200_000 * "x", "city\nx\n" + 2_000_000 * "x"])
def test_a_file_that_cannot_be_read_to_its_end_is_named(app, alice, put, check, content):
    """Of a table that is sorted, the rows before that place would be another distribution."""
    put(1)
    dataset(alice, train_csv="")
    (reading.storage.dataset_dir("alice", "train") / "train.csv").write_bytes(content.encode(errors="surrogateescape"))
    assert (
        check(dataset="train")["reason"] == "the file train.csv is not UTF-8, or has a cell or a line that is too long"
    )


def test_one_odd_request_does_not_hide_the_others(app, alice, put, check, windows):
    draw = random.Random(3)
    dataset(alice, train_csv="".join(["age,rooms\n", *(f"{draw.gauss(40, 9)},{draw.random()}\n" for _ in range(300))]))
    tensors = [({"x": [[draw.gauss(40, 9), draw.random()]]}, {"y": [1]}) for _ in range(60)]
    put(1, bodies=[({"ping": "x"}, {"y": [1]}), *tensors])
    check(dataset="train")
    assert [(row["verdict"], row["compared"]) for row in windows()] == [("steady", 2)]


def test_what_a_clock_compared_that_was_ahead_is_compared_again(app, put, check, windows, monkeypatch):
    put(9)
    check()
    ahead = timezone.now() + timedelta(days=400)
    with monkeypatch.context() as patch:
        patch.setattr(timezone, "now", lambda: ahead)
        evaluating.look(app.drift_check.pk)
    put(1)
    assert DriftCheck.objects.get().next_look > timezone.now() + plan.FURTHEST
    assert plan.due(timezone.now()).exists()
    evaluating.look(app.drift_check.pk)
    assert [row["verdict"] for row in windows()] == ["steady"]
    assert DriftCheck.objects.get().compared_to == midnight(0)
    assert not plan.due(timezone.now()).exists()


def test_a_feature_that_vanishes_is_missing_and_one_that_never_came_is_absent(app, alice, put, check, windows):
    draw = random.Random(3)
    lines = [f"{draw.gauss(40, 9)},{draw.random()},x\n" for _number in range(300)]
    dataset(alice, train_csv="".join(["age,rooms,notes\n", *lines]))
    for days_ago, sent in ((3, ("age", "rooms")), (2, ("age",)), (1, ("age",))):
        bodies = [({"age": draw.gauss(40, 9), "rooms": draw.random()}, {"y": [1]}) for _number in range(60)]
        put(days_ago, bodies=[({name: row[name] for name in sent}, answer) for row, answer in bodies])
    check(dataset="train")
    seen = windows()
    assert [(row["verdict"], row["compared"], row["drifted"]) for row in seen] == [
        ("steady", 2, 0), ("drift", 2, 1), ("drift", 2, 1),
    ]  # fmt: skip
    assert seen[2]["features"]["rooms"]["missing"] == 1.0
    assert {row["features"]["notes"]["why"] for row in seen} == {"absent"}


def test_characters_that_cannot_be_stored_stop_no_comparison(app, alice, put, check, windows):
    """Whoever may ask the application can send them."""
    dataset(alice, train_csv="city,odd\0\n" + "".join(f"{'ab'[number % 2]}\0,1\n" for number in range(60)))
    put(1, bodies=[({"city": "a\0", "odd\ud800": {"\0": "\ud800"}}, {"y": [1]})] * 60)
    check(dataset="train")
    (seen,) = windows()
    assert (seen["verdict"], seen["features"]["city"]["labels"]) == ("drift", ["a\ufffd", "b\ufffd"])
