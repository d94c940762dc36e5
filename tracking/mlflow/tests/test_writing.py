"""Points that are reported to one run at the same time, and how many statements a report takes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.models import Job, RunMetric, Value
from mlflow_protocol import limits
from tracking.mlflow import writing

from .conftest import Mlflow
from .test_tracking import history, point, start

LANES, EACH = 4, 15
KEYS = [f"key{number}" for number in range(9)]


@pytest.mark.django_db(transaction=True)
def test_reports_at_the_same_time_are_each_counted_and_keep_their_order(mlflow):
    run = start(mlflow)

    def lane(number: int) -> None:
        client = Mlflow(mlflow.token)
        for step in range(EACH):
            client.call("post", "runs/log-metric", run_id=run, **point(f"lane{number}", value=step, step=step))
            client.call("post", "runs/log-metric", run_id=run, **point("shared", value=number, step=step))
        # The keys in an order of its own, none of which is known before: two such batches must not wait for each other.
        client.call("post", "runs/log-batch", run_id=run, metrics=[point(KEYS[at - number], number) for at in range(9)])
        connection.close()

    with ThreadPoolExecutor(LANES) as lanes:
        list(lanes.map(lane, range(LANES)))
    assert Job.objects.get(run_id=run).values_kept == Value.objects.count() == LANES * (2 * EACH + 9)
    for number in range(LANES):
        assert history(mlflow, run, f"lane{number}") == [(step, step) for step in range(EACH)]
    assert sorted(history(mlflow, run, "shared")) == [(step, lane) for step in range(EACH) for lane in range(LANES)]
    counts = dict(RunMetric.objects.values_list("name", "count"))
    assert counts == {
        "shared": LANES * EACH, **dict.fromkeys(KEYS, LANES), **{f"lane{number}": EACH for number in range(LANES)},
    }  # fmt: skip


@pytest.mark.django_db
def test_a_report_of_points_is_one_statement(mlflow, monkeypatch):
    run, asked = start(mlflow), []
    execute = writing.execute_prepared
    monkeypatch.setattr(writing, "execute_prepared", lambda *given: asked.append(given[0]) or execute(*given))
    with CaptureQueriesContext(connection) as others:
        mlflow.call("post", "runs/log-metric", run_id=run, **point())
    assert asked == [writing.AT_ONCE]
    assert [each["sql"].split()[0] for each in others if "SAVEPOINT" not in each["sql"]] == []
    assert history(mlflow, run) == [(0, 0.5)]


@pytest.mark.django_db
def test_the_limit_of_metrics_holds_and_known_ones_go_on(mlflow, monkeypatch):
    monkeypatch.setattr(limits, "RUN_KEYS", 2)
    monkeypatch.setattr(writing, "AT_ONCE", writing.AT_ONCE.replace("<= 200000", "<= 2"))
    assert "<= 2 " in writing.AT_ONCE.replace("\n", " ")
    run = start(mlflow)
    for step, name in enumerate(("a", "b", "a", "b")):
        mlflow.call("post", "runs/log-metric", run_id=run, **point(name, step=step))
    assert mlflow.refused("post", "runs/log-metric", run_id=run, **point("c")) == "INVALID_PARAMETER_VALUE"
    assert RunMetric.objects.count() == 2
    assert Value.objects.count() == 4
