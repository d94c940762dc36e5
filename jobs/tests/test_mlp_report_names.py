"""Metrics with names of the script's choice: one that the platform would refuse does not affect the others."""

from __future__ import annotations

import time

import pytest
from rest_framework.exceptions import ValidationError

from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from tracking.metrics.serializers import ValuesIn

from .test_mlp_report import METRICS, VALUES, environment, fast, module, platform  # noqa: F401 (fixtures)

BATCH = 1000


def numbers(platform) -> list:  # noqa: F811
    return [line["values"] for batch in platform.taken(VALUES) for line in batch]


def takes(name: str) -> bool:
    """Whether the platform accepts a metric with this name."""
    try:
        ValuesIn.read({"step": 0, "values": {name: 1.0}})
    except ValidationError:
        return False
    return True


NAMES = [
    "lr",
    "loss",
    "epoch",
    "accuracy",
    "progress",
    "acc(%)",
    "精度",
    "",
    " lr",
    ".lr",
    "a.b:c/d-e f",
    "lr\n",
    "_",
    "x" * 100,
]
NAMES += ["x" * 101, "step ", "\ud800", "Loss", "time", "user", "é"]


@pytest.mark.parametrize("name", NAMES)
def test_only_names_that_the_platform_refuses_are_dropped(fast, platform, capsys, name):  # noqa: F811
    reporter = fast.Reporter(environment(platform.port))
    for step in range(2):
        reporter.values(step, **{name: 1, "other": 2})
    assert reporter.flush(LIMIT_S)
    good = {name: 1.0, "other": 2.0} if takes(name) else {"other": 2.0}
    assert numbers(platform) == [good, good]
    assert len(capsys.readouterr().err.splitlines()) == (0 if takes(name) else 1)


def test_many_numbers_are_split_over_several_objects(fast, platform):  # noqa: F811
    reporter = fast.Reporter(environment(platform.port))
    given = {f"n{number}": number for number in range(250)}
    reporter.report(epoch=4, **given)
    assert reporter.flush(LIMIT_S)
    assert [len(some) for some in numbers(platform)] == [100, 100, 50]
    assert {name: value for some in numbers(platform) for name, value in some.items()} == given
    assert {line["step"] for batch in platform.taken(VALUES) for line in batch} == {4}


def test_custom_numbers_are_sent_unchanged(fast, platform):  # noqa: F811
    reporter = fast.Reporter(environment(platform.port))
    reporter.values(1, step_size=1.5, epochs=-2.5, percent=1000.25)
    assert reporter.flush(LIMIT_S)
    assert numbers(platform) == [{"step_size": 1.5, "epochs": -2.5, "percent": 1000.25}]


@pytest.mark.parametrize("step", [1.5, -1, 2**63, float("nan"), 10**400])
def test_only_a_step_that_the_platform_refuses_is_dropped(fast, platform, capsys, step):  # noqa: F811
    reporter = fast.Reporter(environment(platform.port))
    reporter.values(step, lr=1)
    reporter.values(2**62, lr=2)
    reporter.report(epoch=step)
    reporter.report(epoch=1)
    assert reporter.flush(LIMIT_S)
    assert numbers(platform) == [{"lr": 2.0}]
    assert [line["epoch"] for line in platform.taken()] == [1]
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == ["step", "epoch"]


@pytest.mark.parametrize("bad", few([{0}, {999}, {0, 1, 2, 500}, {17, 400, 401, 998}], 2))
def test_a_refused_object_does_not_affect_valid_ones(fast, platform, capsys, monkeypatch, bad):  # noqa: F811
    platform.refuses = lambda body: isinstance(body, list) and any(row.get("epoch") in bad for row in body)
    reporter = fast.Reporter(environment(platform.port))
    with reporter.changed:  # so that all of them are one batch
        for epoch in range(BATCH):
            reporter._enqueue(reporter.metrics, {"epoch": epoch})
    assert reporter.flush(LIMIT_S)
    assert [line["epoch"] for line in platform.taken()] == [epoch for epoch in range(BATCH) if epoch not in bad]
    for _, path, body, headers in platform.requests:
        assert path == METRICS
        assert headers["X-Message-Id"] == f"train:2:{reporter.run}:{body[0]['epoch']}"
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_platform_that_refuses_everything_is_not_called_for_each_object(fast, platform):  # noqa: F811
    platform.refuses = lambda body: True
    reporter = fast.Reporter(environment(platform.port))
    for _ in range(3):
        with reporter.changed:
            for epoch in range(BATCH):
                reporter._enqueue(reporter.metrics, {"epoch": epoch})
        assert reporter.flush(LIMIT_S)
    assert len(platform.requests) < 40
    platform.refuses = lambda body: False
    reporter.report(epoch=5)
    assert reporter.flush(LIMIT_S)
    assert [line["epoch"] for line in platform.taken()] == [5]


def test_what_a_script_does_not_give_is_not_reported(fast, platform):  # noqa: F811
    reporter, before = fast.Reporter(environment(platform.port)), time.time()
    reporter.report(loss=2, lr=0.1)
    reporter.report(accuracy=0.5, progress=10)
    reporter.report(epoch=7, loss=1, accuracy=0.75)
    reporter.report()
    assert reporter.flush(LIMIT_S)
    own = [{key: line[key] for key in line if key not in ("user", "name", "time")} for line in platform.taken()]
    assert own == [
        {"epoch": 0, "progress": 0, "loss": 2.0, "reported": ["loss"]},
        {"epoch": 1, "progress": 10, "accuracy": 0.5, "reported": ["accuracy"]},
        {"epoch": 7, "progress": 10, "accuracy": 0.75, "loss": 1.0},
        {"epoch": 8, "progress": 10, "reported": []},
    ]
    assert all(before - 0.001 <= line["time"] <= time.time() + 0.001 for line in platform.taken())  # milliseconds
