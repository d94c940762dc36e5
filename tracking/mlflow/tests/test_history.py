"""The points of one metric of several runs, as MLflow's web interface asks for them."""

from __future__ import annotations

import pytest

from .test_tracking import experiment, point, start

pytestmark = pytest.mark.django_db


@pytest.fixture
def runs(mlflow):
    key = experiment(mlflow)
    runs = [start(mlflow, key) for _number in range(2)]
    for place, run in enumerate(runs):
        rows = [point("loss", place + step / 10, step=step) for step in range(10)]
        mlflow.call("post", "runs/log-batch", run_id=run, metrics=rows)
    return runs


def test_several_runs_at_once(mlflow, runs, mlflow_of_bob):
    metrics = mlflow.call("get", "metrics/get-history-bulk", run_id=runs, metric_key="loss")["metrics"]
    assert [(entry["run_id"], entry["step"]) for entry in metrics] == [
        (run, at) for run in sorted(runs) for at in range(10)
    ]
    assert metrics[0].keys() == {"key", "value", "timestamp", "step", "run_id"}
    few = mlflow.call("get", "metrics/get-history-bulk", run_id=runs, metric_key="loss", max_results=3)["metrics"]
    assert len(few) == 3
    assert mlflow.call("get", "metrics/get-history-bulk", run_id=runs[0], metric_key="none")["metrics"] == []
    for fields in ({"metric_key": "loss"}, {"run_id": runs}, {"run_id": ["0" * 32] * 101, "metric_key": "loss"}):
        assert mlflow.refused("get", "metrics/get-history-bulk", **fields) == "INVALID_PARAMETER_VALUE"
    asked = {"run_id": runs, "metric_key": "loss"}
    assert mlflow_of_bob.refused("get", "metrics/get-history-bulk", **asked) == "RESOURCE_DOES_NOT_EXIST"


def test_an_interval_of_steps(mlflow, runs):
    asked = {"run_ids": runs, "metric_key": "loss"}
    metrics = mlflow.call("get", "metrics/get-history-bulk-interval", **asked, start_step=2, end_step=5)["metrics"]
    assert [(runs.index(entry["run_id"]), entry["step"]) for entry in metrics] == [(0, at) for at in range(2, 6)] + [
        (1, at) for at in range(2, 6)
    ]
    few = mlflow.call("get", "metrics/get-history-bulk-interval", **asked, max_results=3)["metrics"]
    assert [entry["step"] for entry in few[:3]] == [0, 4, 9]
    for fields in ({"start_step": 1}, {"start_step": 5, "end_step": 2}, {"max_results": 0}):
        code = mlflow.refused("get", "metrics/get-history-bulk-interval", **asked, **fields)
        assert code == "INVALID_PARAMETER_VALUE"


def test_a_deleted_experiment_keeps_its_name(mlflow):
    key = experiment(mlflow, "gone")
    mlflow.call("post", "experiments/delete", experiment_id=key)
    assert mlflow.refused("post", "experiments/create", name="gone") == "RESOURCE_ALREADY_EXISTS"
    answer = mlflow.call("get", "experiments/get-by-name", experiment_name="gone")["experiment"]
    assert (answer["experiment_id"], answer["lifecycle_stage"]) == (key, "deleted")
