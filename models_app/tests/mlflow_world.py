"""A program that uses the client of MLflow against a real server: it fills the server, or checks that one to which
all of it was copied has the same. Run by test_mlflow_server.py.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from pathlib import Path

import mlflow
import numpy as np
from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.entities.webhook import WebhookEvent
from sklearn.linear_model import LogisticRegression

what, points = sys.argv[1], int(sys.argv[2])
client = MlflowClient()


def fill() -> str:
    mlflow.set_experiment("vision/digits")
    with mlflow.start_run(run_name="parent", tags={"team": "red"}, description="# Notes") as parent:
        mlflow.log_params({"lr": 0.1, "depth": 3})
        mlflow.log_metric("nan", math.nan, step=1)
        mlflow.log_metric("inf", math.inf, step=1)
        mlflow.log_metric("neg", -1.5, step=-3)
        rows = [Metric("long", step / 7, 1_700_000_000_000 + step, step) for step in range(points)]
        for at in range(0, points, 1000):
            client.log_batch(parent.info.run_id, metrics=rows[at : at + 1000])
        mlflow.log_input(mlflow.data.from_numpy(np.zeros((4, 2)), name="zeros"), context="train")
        mlflow.log_text("hello", "notes/hello ä+b%.txt")
        big = Path(tempfile.mkdtemp()) / "big.bin"
        big.write_bytes(os.urandom(5 << 20))
        mlflow.log_artifact(str(big), "deep/er")
        for number in range(5):
            with mlflow.start_run(run_name=f"child{number}", nested=True):
                mlflow.log_metric("score", number)
    model = LogisticRegression().fit([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [0, 1, 1])
    mlflow.set_experiment("models")
    for number in range(2):
        with mlflow.start_run(run_name=f"fit{number}"):
            given = {"registered_model_name": "churn", "pip_requirements": ["skops"], "params": {"depth": "3"}}
            logged = mlflow.sklearn.log_model(model, name="model", **given)
            mlflow.log_metric("acc", 0.9, model_id=logged.model_id)
    client.set_registered_model_alias("churn", "champion", 2)
    client.create_registered_model("elsewhere", {"a": "b"}, "described")
    for number in range(3):
        client.create_model_version("elsewhere", f"s3://bucket/{number}")
    client.delete_model_version("elsewhere", "2")
    client.transition_model_version_stage("elsewhere", "3", "Production")
    mlflow.register_prompt(name="greet", template="Hello {{name}}")
    with mlflow.start_run(run_name="killed") as run:
        pass
    client.set_terminated(run.info.run_id, "KILLED")
    client.create_run(client.create_experiment("open", tags={"x": "y"}), run_name="open")
    mlflow.set_experiment("loose")
    mlflow.create_external_model(name="outside")
    with mlflow.start_run() as gone:
        client.finalize_logged_model(mlflow.initialize_logged_model(name="left").model_id, "READY")
    client.delete_run(gone.info.run_id)
    return parent.info.run_id


def check() -> str:
    digits = client.get_experiment_by_name("vision/digits").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([digits])}
    assert set(runs) == {"parent", *(f"child{number}" for number in range(5))}, runs
    parent = runs["parent"]
    assert parent.data.params == {"lr": "0.1", "depth": "3"}
    assert (parent.data.tags["team"], parent.data.tags["mlflow.note.content"]) == ("red", "# Notes")
    assert math.isnan(parent.data.metrics["nan"])
    assert parent.info.status == "FINISHED"
    assert parent.info.start_time < parent.info.end_time
    history = client.get_metric_history(parent.info.run_id, "long")
    assert [(point.step, point.value, point.timestamp) for point in sorted(history, key=lambda point: point.step)] == [
        (step, step / 7, 1_700_000_000_000 + step) for step in range(points)
    ]
    for number in range(5):
        assert runs[f"child{number}"].data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert mlflow.artifacts.load_text(f"runs:/{parent.info.run_id}/notes/hello ä+b%.txt") == "hello"
    assert mlflow.artifacts.load_text(f"runs:/{parent.info.run_id}/ckpt/model.pt") == "weights"
    assert parent.inputs.dataset_inputs[0].dataset.name == "zeros"
    assert client.get_model_version_by_alias("churn", "champion").version in ("2", 2)
    model = mlflow.sklearn.load_model("models:/churn@champion")
    assert list(model.predict([[1.0, 0.0]])) == [1]
    versions = {str(version.version): version for version in client.search_model_versions("name='elsewhere'")}
    assert {number: version.current_stage for number, version in versions.items()} == {"1": "None", "3": "Production"}
    assert client.get_run(client.search_runs([client.get_experiment_by_name("open").experiment_id])[0].info.run_id)
    logged_models = client.search_logged_models([client.get_experiment_by_name("models").experiment_id])
    assert [(logged.name, logged.status.value, logged.params["depth"]) for logged in logged_models] == [
        ("model", "READY", "3")
    ] * 2, logged_models
    assert {(metric.key, metric.value) for model in logged_models for metric in model.metrics} == {("acc", 0.9)}
    model_ids = {logged.model_id for logged in logged_models}
    outputs = {client.get_run(logged.source_run_id).outputs.model_outputs[0].model_id for logged in logged_models}
    sources = [client.get_model_version("churn", number).source for number in ("1", "2")]
    assert model_ids == outputs, (model_ids, outputs)
    assert all(any(key in source for source in sources) for key in model_ids), (model_ids, sources)
    loose = client.search_logged_models([client.get_experiment_by_name("loose").experiment_id])
    assert {logged.name for logged in loose} == {"outside", "left"}, loose
    return "as it was"


def evaluate() -> str:
    """Make what an evaluation has: a trace, which is not copied, datasets and a scorer; and a webhook."""
    experiment = mlflow.set_experiment("models").experiment_id
    with mlflow.start_span("question"):
        pass
    mlflow.flush_trace_async_logging()
    dataset = mlflow.genai.datasets.create_dataset(name="questions", experiment_id=[experiment])
    dataset.merge_records([{"inputs": {"question": "why"}, "expectations": {"answer": "so"}}])
    judge = mlflow.genai.make_judge(name="polite", instructions="Is {{ outputs }} polite?", model="openai:/gpt-4o-mini")
    judge.register(experiment_id=experiment)
    mlflow.genai.datasets.create_dataset(name="elsewhere", experiment_id=[])
    events = [WebhookEvent.from_str("model_version.created")]
    client.create_webhook("hook", "https://93.184.216.34/hook", events)
    return "made"


print({"fill": fill, "check": check, "evaluate": evaluate}[what]())
