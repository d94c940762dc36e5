"""Lines that lack accuracy or loss, and those that say when they were measured."""

from __future__ import annotations

import csv
import io
import time

import pytest

from accounts import lifecycle as accounts
from jobs.models import Metrics
from kernel import storage
from models_app import lifecycle as models
from models_app.models import Model
from tracking.mlflow.tests.conftest import Mlflow

from .test_metrics import URL, ingesting, row, running, stream, wait_for  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_was_not_reported_does_not_exist(as_alice, running, ingesting):  # noqa: F811
    """As `report(epoch=…, loss=…)` sends it: a line without an accuracy."""
    part = {"epoch": 0, "loss": 2.0, "progress": 1, "reported": ["loss"]}
    more = {"epoch": 1, "loss": 1.0, "progress": 2, "reported": ["loss"], "user": "alice", "name": "fit"}
    assert as_alice.call("post", URL, [part, more, row(2, accuracy=0.5, loss=0.5)]).status_code == 200
    wait_for(lambda: Metrics.objects.count() == 3)
    stored = as_alice.call("get", "users/alice/jobs/fit/metrics").json()
    assert [(entry["accuracy"], entry["loss"]) for entry in stored] == [(0.5, 0.5), (None, 1.0), (None, 2.0)]
    series_by_name = {
        series["name"]: series for series in as_alice.call("get", "users/alice/jobs/fit/series?points=10").json()
    }
    assert {name: (series["count"], series["points"]) for name, series in series_by_name.items()} == {
        "accuracy": (1, [[2, 0.5, 1]]),
        "loss": (3, [[0, 2.0, 1], [1, 1.0, 1], [2, 0.5, 1]]),
    }


def test_a_job_that_reports_no_accuracy_has_no_series_of_it(as_alice, running, ingesting):  # noqa: F811
    as_alice.call("post", URL, {"epoch": 0, "loss": 2.0, "progress": 1, "reported": ["loss"]})
    as_alice.call("post", URL, {"epoch": 1, "progress": 1, "reported": []})
    wait_for(lambda: Metrics.objects.count() == 2)
    assert [series["name"] for series in as_alice.call("get", "users/alice/jobs/fit/series").json()] == ["loss"]


def test_points_have_the_time_of_their_report(as_alice, running, ingesting):  # noqa: F811
    """Not that of their arrival: what was reported while the platform was unavailable would be at one time."""
    began = int(time.time())
    as_alice.call("post", URL, [row(0, time=began - 20), row(1, time=began - 10.5)])
    wait_for(lambda: Metrics.objects.count() == 2)
    points = as_alice.call("get", "users/alice/jobs/fit/points?name=loss").json()
    assert points[0]["time"] == [began - 20, began - 10.5]


def test_mlflow_shows_what_was_reported_at_its_time(as_alice, alice, running, ingesting):  # noqa: F811
    began = int(time.time())
    rows = [{"epoch": at, "loss": 1.0 / (at + 1), "progress": 1, "time": began - 20 + at} for at in range(3)]
    as_alice.call("post", URL, [{**row, "reported": ["loss"]} for row in rows])
    wait_for(lambda: Metrics.objects.count() == 3)
    mlflow, run = Mlflow(accounts.token_of(alice)), running.run_id.hex
    history = mlflow.call("get", "metrics/get-history", run_id=run, metric_key="loss")["metrics"]
    assert [(point["step"], point["timestamp"]) for point in history] == [
        (at, (began - 20 + at) * 1000) for at in range(3)
    ]
    assert mlflow.call("get", "metrics/get-history", run_id=run, metric_key="accuracy").get("metrics", []) == []
    assert mlflow.call("get", "runs/get", run_id=run)["run"]["data"]["metrics"] == history[-1:]


@pytest.mark.long
def test_the_csv_and_a_model_have_what_was_reported(as_alice, alice, client, running, until, ingesting):  # noqa: F811
    """By each way that a script reports: this platform's own, and MLflow's."""
    as_alice.call("post", URL, {"epoch": 4, "loss": 0.25, "progress": 1, "reported": ["loss"]})
    wait_for(lambda: Metrics.objects.count() == 1)
    mlflow = Mlflow(accounts.token_of(alice))
    mlflow.call("post", "runs/log-metric", run_id=running.run_id.hex, key="accuracy", value=0.75, timestamp=1, step=4)
    client.force_login(alice)
    answer = client.get("/compare.csv?job=fit")
    text = b"".join(answer.streaming_content).decode("utf-8-sig")
    entries = [(entry["series"], entry["step"], entry["value"]) for entry in csv.DictReader(io.StringIO(text))]
    assert entries == [("loss", "4", "0.25"), ("accuracy", "4", "0.75")]
    as_alice.call("put", "users/alice/jobs/fit:heartbeat", {"state": "finished", "progress": 100})
    until(running, "finished")
    (storage.job_dir("alice", "fit") / "model.pt").write_bytes(b"not really")
    models.create_model(user=alice, name="net", src="jobs/fit", by="test")
    assert Model.objects.get().lineage["metrics"] == {"epoch": 4, "loss": 0.25, "accuracy": 0.75, "best_accuracy": 0.75}
