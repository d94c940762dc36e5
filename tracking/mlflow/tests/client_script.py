"""A program that uses MLflow's own client, of either major release, against the platform: run by test_clients.py."""

from __future__ import annotations

import math
import os
import warnings

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException

client = MlflowClient()
experiment = mlflow.set_experiment("clients")
assert mlflow.set_experiment("clients").experiment_id == experiment.experiment_id

with mlflow.start_run(run_name="parent", tags={"team": "red"}, description="# A run") as parent:
    mlflow.log_param("lr", 0.1)
    mlflow.log_params({"depth": 3, "lr": 0.1})
    mlflow.log_metric("loss", 0.5, step=1)
    mlflow.log_metrics({"loss": 0.25, "acc": math.nan, "up": math.inf, "down": -math.inf}, step=2)
    mlflow.set_tag("mood", "fine")
    for number in range(3):
        with mlflow.start_run(run_name=f"child{number}", nested=True):
            mlflow.log_metric("score", number)

run = client.get_run(parent.info.run_id)
assert run.info.status == "FINISHED", run.info.status
assert run.data.params == {"lr": "0.1", "depth": "3"}
assert run.data.metrics["loss"] == 0.25
assert math.isnan(run.data.metrics["acc"])
assert run.data.metrics["up"] > 1e300
assert run.data.metrics["down"] < -1e300
assert run.data.tags["mood"] == "fine"
assert run.data.tags["mlflow.note.content"] == "# A run"
assert run.info.artifact_uri.endswith(f"/{run.info.run_id}/artifacts")

# a batch of a thousand, twice: what is sent again counts once
batch = [Metric("long", value=step / 7, timestamp=1_700_000_000_000 + step, step=step) for step in range(1000)]
for _ in range(2):
    client.log_batch(run.info.run_id, metrics=batch)
history = client.get_metric_history(run.info.run_id, "long")
assert [(point.step, point.value) for point in history] == [(point.step, point.value) for point in batch]
client.log_batch(run.info.run_id, params=[Param("p", "v")], tags=[RunTag("t", "v")])

code = None
try:
    client.log_param(run.info.run_id, "lr", 0.2)
except MlflowException as problem:
    code = problem.error_code
assert code == "INVALID_PARAMETER_VALUE", code

# search
where = [experiment.experiment_id]
for text, count in (
    ("metrics.loss < 0.3 and params.lr = '0.1'", 1),
    ("metrics.score >= 1", 2),
    ("tags.team ILIKE 'RED'", 1),
    ("attributes.status = 'FINISHED'", 4),
    (f"tags.mlflow.parentRunId = '{run.info.run_id}'", 3),
    ("attributes.run_name LIKE 'child%' and metrics.score != 0", 2),
    (f"attributes.run_id IN ('{run.info.run_id}')", 1),
):
    runs = client.search_runs(where, text)
    assert len(runs) == count, (text, len(runs))
# every comparator, on each kind of value that has it: the children's scores are 0, 1, 2
for text, count in (
    ("metrics.score = 1", 1), ("metrics.score != 1", 2), ("metrics.score < 1", 1), ("metrics.score <= 1", 2),
    ("metrics.score > 1", 1), ("metrics.score >= 1", 2),
    ("params.lr = '0.1'", 1), ("params.lr != '0.2'", 1), ("params.lr LIKE '0%'", 1), ("params.lr ILIKE '0.%'", 1),
    ("params.lr IN ('0.1', '1')", 1), ("params.lr NOT IN ('0.1', '1')", 0), ("params.lr IS NULL", 3),
    ("params.lr IS NOT NULL", 1), ("tags.team = 'red'", 1), ("tags.team != 'red'", 0), ("tags.team LIKE 'r%'", 1),
    ("tags.team IN ('red')", 1), ("tags.team NOT IN ('red')", 0), ("tags.team IS NULL", 3),
    ("tags.`team` IS NOT NULL", 1), ("attributes.start_time > 0", 4), ("attributes.end_time <= 1", 0),
    ("attributes.status IN ('RUNNING', 'FAILED')", 0), ("run_name ILIKE 'PAR%'", 1), ("datasets.name = 'none'", 0),
):  # fmt: skip
    runs = client.search_runs(where, text)
    assert len(runs) == count, (text, len(runs))
names = [run.info.run_name for run in client.search_runs(where, order_by=["metrics.score DESC"])]
assert names == ["child2", "child1", "child0", "parent"], names
pages = client.search_runs(where, max_results=3)
assert len(pages) + len(client.search_runs(where, max_results=3, page_token=pages.token)) == 4
assert [experiment.name for experiment in client.search_experiments(filter_string="name LIKE 'cli%'")] == ["clients"]

# delete and restore
client.delete_run(run.info.run_id)
assert client.get_run(run.info.run_id).info.lifecycle_stage == "deleted"
assert len(client.search_runs(where, run_view_type=ViewType.DELETED_ONLY)) == 1
client.restore_run(run.info.run_id)
client.set_terminated(run.info.run_id, "KILLED")
assert client.get_run(run.info.run_id).info.status == "KILLED"
client.delete_tag(run.info.run_id, "mood")
client.update_run(run.info.run_id, name="renamed")
assert client.get_run(run.info.run_id).info.run_name == "renamed"

other = client.create_experiment("another", tags={"a": "b"})
client.set_experiment_tag(other, "c", "d")
client.rename_experiment(other, "yet another")
assert client.get_experiment(other).tags == {"a": "b", "c": "d"}
client.delete_experiment(other)
assert client.get_experiment_by_name("yet another").lifecycle_stage == "deleted"
client.restore_experiment(other)
assert client.get_experiment_by_name("nothing") is None
assert client.get_experiment_by_name("Default") is not None

# a dataset that a run reads
with mlflow.start_run(run_name="inputs"):
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset("digits", "d1", "local", "{}", "{}", "{}")
    client.log_inputs(
        mlflow.active_run().info.run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "eval")])]
    )
assert len(client.search_runs(where, "datasets.name = 'digits' and datasets.context = 'eval'")) == 1
# the registry: versions, an alias, tags, stages
warnings.simplefilter("ignore")  # stages are deprecated
client.create_registered_model("digits", tags={"kind": "image"}, description="# Digits")
for number in ("1", "2"):
    version = client.create_model_version("digits", f"s3://bucket/{number}", run_id=run.info.run_id)
    assert (version.version, version.status) == (number, "READY")
client.set_registered_model_alias("digits", "champion", "1")
assert client.get_model_version_by_alias("digits", "champion").version == "1"
assert client.get_registered_model("digits").aliases == {"champion": "1"}
client.set_model_version_tag("digits", "1", "checked", "yes")
assert client.get_model_version("digits", "1").tags == {"checked": "yes"}
assert [version.version for version in client.search_model_versions("name = 'digits' and tags.checked = 'yes'")] == [
    "1"
]
for number in ("1", "2"):
    client.transition_model_version_stage("digits", number, "Production", archive_existing_versions=True)
assert [version.version for version in client.get_latest_versions("digits", ["Archived"])] == ["1"]
assert [model.name for model in client.search_registered_models("name LIKE 'dig%' and tags.kind = 'image'")] == [
    "digits"
]
client.delete_model_version_tag("digits", "1", "checked")
client.delete_registered_model_alias("digits", "champion")
client.rename_registered_model("digits", "figures")
assert client.get_model_version_download_uri("figures", "2") == "s3://bucket/2"
client.delete_registered_model("figures")
print(mlflow.__version__, os.environ["MLFLOW_TRACKING_URI"], "ok")
