"""What other users share is read by MLflow's clients, by its id."""

from __future__ import annotations

import pytest

from accounts.models import Share
from jobs.models import Job, Project

from .test_tracking import experiment, point, start

pytestmark = pytest.mark.django_db


def share(row, reader) -> Share:
    return Share.objects.create(
        owner=row.user, kind=row._meta.model_name, object_id=row.pk, name=row.name, audience="user", user=reader,
        right="read",
    )  # fmt: skip


def test_a_search_joins_own_and_shared_experiments(mlflow, mlflow_of_bob, alice, bob):
    theirs, hidden, own = experiment(mlflow, "vision"), experiment(mlflow, "hidden"), experiment(mlflow_of_bob, "own")
    runs = {}
    for client, name, key, loss in (
        (mlflow, "a", theirs, 0.1), (mlflow, "b", theirs, 0.3), (mlflow, "c", hidden, 0.2),
        (mlflow_of_bob, "d", own, 0.2),
    ):  # fmt: skip
        runs[name] = start(client, key, run_name=name)
        batch = {"metrics": [point(value=loss)], "params": [{"key": "lr", "value": str(loss)}]}
        client.call("post", "runs/log-batch", run_id=runs[name], **batch)
    share(Project.objects.get(pk=theirs), bob)

    def search(**fields) -> list[str]:
        rows = mlflow_of_bob.call("post", "runs/search", experiment_ids=[theirs, hidden, own], **fields)["runs"]
        return [run["info"]["run_name"] for run in rows]

    assert search(order_by=["metrics.loss DESC"]) == ["b", "d", "a"]
    assert search(order_by=["params.lr"], filter="metrics.loss < 0.25 and params.lr LIKE '0%'") == ["a", "d"]
    assert search(filter="params.lr IS NULL") == []
    mlflow.call("post", "runs/delete", run_id=runs["a"])
    assert search(run_view_type="ALL", order_by=["metrics.loss"]) == ["d", "b"]
    listed = mlflow_of_bob.call("post", "experiments/search", max_results=10)["experiments"]
    assert {entry["name"] for entry in listed} == {"own", "Default"}


def test_a_shared_run_is_read_without_its_experiment(mlflow, mlflow_of_bob, bob):
    key = experiment(mlflow)
    run, other = start(mlflow, key), start(mlflow, key)
    mlflow.call("post", "runs/log-batch", run_id=run, metrics=[point()])
    share(Job.objects.get(run_id=run), bob)
    assert mlflow_of_bob.call("get", "runs/get", run_id=run)["run"]["info"]["user_id"] == "alice"
    assert len(mlflow_of_bob.call("get", "metrics/get-history", run_id=run, metric_key="loss")["metrics"]) == 1
    assert mlflow_of_bob.refused("get", "runs/get", run_id=other) == "RESOURCE_DOES_NOT_EXIST"
    assert mlflow_of_bob.refused("get", "experiments/get", experiment_id=key) == "RESOURCE_DOES_NOT_EXIST"
    assert mlflow_of_bob.refused("post", "runs/log-metric", run_id=run, **point(step=1)) == "PERMISSION_DENIED"
    assert mlflow_of_bob.refused("post", "runs/update", run_id=run, status="FAILED") == "PERMISSION_DENIED"
