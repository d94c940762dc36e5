"""Logged models, as clients of MLflow 3 call them."""

from __future__ import annotations

import pytest

from jobs.artifacts import files
from jobs.auth import job_token
from jobs.models import ArtifactSpace, Job, LoggedModel
from kernel import storage

from .conftest import Mlflow
from .test_shared import share
from .test_tracking import experiment, point, start

pytestmark = pytest.mark.django_db

PENDING, READY = "LOGGED_MODEL_PENDING", "LOGGED_MODEL_READY"


def log(mlflow, **fields) -> dict:
    return mlflow.call("post", "logged-models", **fields)["model"]["info"]


def names(mlflow, keys, **fields) -> list[str]:
    models = mlflow.call("post", "logged-models/search", experiment_ids=keys, **fields).get("models", [])
    return [model["info"]["name"] for model in models]


@pytest.mark.long
def test_a_model_is_created_filled_finalized_and_deleted(mlflow, alice, client):
    key = experiment(mlflow)
    run = start(mlflow, key)
    info = log(
        mlflow, experiment_id=key, name="net", model_type="sklearn", source_run_id=run,
        params=[{"key": "lr", "value": "0.1"}], tags=[{"key": "team", "value": "red"}],
    )  # fmt: skip
    model = info["model_id"]
    assert (info["status"], info["source_run_id"], len(model)) == (PENDING, run, 34)
    assert info["artifact_uri"] == f"mlflow-artifacts:/{key}/models/{model}/artifacts"
    job = Job.objects.get(run_id=run)
    client.force_login(alice)
    assert f"models:/{model}" in client.get(f"/jobs/{job.name}").content.decode()
    files.put_bytes(job, f"models/{model}/MLmodel", b"flavors: {}")
    files.put_bytes(job, f"models/{model}/data/model.pkl", b"x" * 9)
    listed = mlflow.call("get", f"logged-models/{model}/artifacts/directories", artifact_directory_path="data")
    assert listed["files"] == [{"path": "data/model.pkl", "is_dir": False, "file_size": 9}]
    read = mlflow.send("get", f"logged-models/{model}/artifacts/files", {"artifact_file_path": "MLmodel"})
    assert b"".join(read.streaming_content) == b"flavors: {}"
    mlflow.call("post", f"logged-models/{model}/params", model_id=model, params=[{"key": "depth", "value": "3"}])
    mlflow.call("patch", f"logged-models/{model}/tags", model_id=model, tags=[{"key": "mlflow.x/y", "value": "1"}])
    assert mlflow.refused("patch", f"logged-models/{model}", status=PENDING) == "INVALID_PARAMETER_VALUE"
    assert mlflow.call("patch", f"logged-models/{model}", status=READY)["model"]["info"]["status"] == READY
    twice = [{"model_id": model, "step": 1}, {"model_id": model, "step": 3}]  # as Keras' autologging does
    mlflow.call("post", "runs/outputs", run_id=run, models=twice)
    mlflow.call("post", "runs/log-inputs", run_id=start(mlflow, key), models=[{"model_id": model}])
    batch = [{**point("acc", 0.5), "model_id": model}, {**point("acc", "NaN", step=2), "model_id": model}, point("b")]
    mlflow.call("post", "runs/log-batch", run_id=run, metrics=batch)
    mlflow.call("post", "runs/log-metric", run_id=run, model_id=model, dataset_name="d", **point("loss", 0.25))
    logged = mlflow.call("get", f"logged-models/{model}")["model"]
    assert {metric["key"]: metric["value"] for metric in logged["data"]["metrics"]} == {"acc": "NaN", "loss": 0.25}
    assert logged["data"]["metrics"][1]["run_id"] == run
    assert {param["key"]: param["value"] for param in logged["data"]["params"]} == {"lr": "0.1", "depth": "3"}
    shown = mlflow.call("get", "runs/get", run_id=run)["run"]
    assert shown["outputs"] == {"model_outputs": [{"model_id": model, "step": 3}]}
    mlflow.call("delete", f"logged-models/{model}/tags/mlflow.x/y")
    assert mlflow.refused("delete", f"logged-models/{model}/tags/mlflow.x/y") == "RESOURCE_DOES_NOT_EXIST"
    assert ArtifactSpace.objects.get().stored == 20
    mlflow.call("delete", f"logged-models/{model}")
    assert mlflow.refused("get", f"logged-models/{model}") == "RESOURCE_DOES_NOT_EXIST"
    assert ArtifactSpace.objects.get().stored == 0
    assert not (storage.job_dir("alice", job.name) / "models" / model).exists()


def test_a_model_outside_of_a_run_gets_a_finished_run(mlflow):
    key = experiment(mlflow)
    info = log(mlflow, experiment_id=key, name="alone")
    job = LoggedModel.objects.get(key=info["model_id"]).job
    assert (info["source_run_id"], job.title, job.state, str(job.project_id)) == ("", "alone", "finished", key)
    assert mlflow.refused("post", "logged-models", experiment_id=key, name="a/b") == "INVALID_PARAMETER_VALUE"
    assert log(mlflow, experiment_id=key)["name"]


def test_models_are_searched_by_all_that_they_have(mlflow):
    key, other = experiment(mlflow), experiment(mlflow, "other")
    run = start(mlflow, key)
    for number, name in enumerate(("a", "b", "c")):
        model = log(
            mlflow, experiment_id=key, name=name, source_run_id=run, model_type="mt" if number else "",
            params=[{"key": "1", "value": str(number)}], tags=[{"key": "t", "value": name}],
        )["model_id"]  # fmt: skip
        if number:
            metric = {**point("0", number / 2), "model_id": model, "dataset_name": f"d{number}"}
            mlflow.call("post", "runs/log-metric", run_id=run, **metric)
    mlflow.call("patch", f"logged-models/{model}", status=READY)
    log(mlflow, experiment_id=other, name="elsewhere")
    assert names(mlflow, [key]) == ["c", "b", "a"]
    assert names(mlflow, [key], order_by=[{"field_name": "name"}]) == ["a", "b", "c"]
    assert names(mlflow, [key], order_by=[{"field_name": "metrics.`0`", "ascending": False}]) == ["c", "b", "a"]
    for text, expected in (
        ("name = 'a'", ["a"]), ("name LIKE 'b%' AND model_type = 'mt'", ["b"]), ("metrics.`0` >= 1", ["c"]),
        ("metrics.`0` != 1", ["b"]), ("params.`1` = '0'", ["a"]), ("tags.t IN ('a', 'c')", ["c", "a"]),
        (f"source_run_id = '{run}' AND status = 'READY'", ["c"]), (f"model_id = '{model}'", ["c"]),
        ("creation_timestamp > 5", ["c", "b", "a"]), ("tags.u IS NULL", ["c", "b", "a"]),
    ):  # fmt: skip
        assert names(mlflow, [key], filter=text) == expected, text
    assert names(mlflow, [key], datasets=[{"dataset_name": "d1"}]) == ["b"]
    page = mlflow.call("post", "logged-models/search", experiment_ids=[key], max_results=2)
    assert names(mlflow, [key], max_results=2, page_token=page["next_page_token"]) == ["a"]
    for wrong in ({"filter": "nothing = 'a'"}, {"filter": "name = 'a' OR name = 'b'"}, {"max_results": 5000}):
        answer = mlflow.refused("post", "logged-models/search", experiment_ids=[key], **wrong)
        assert answer == "INVALID_PARAMETER_VALUE", wrong
    mlflow.call("post", "runs/delete", run_id=run)
    assert names(mlflow, [key]) == []


def test_a_model_is_read_and_changed_by_those_who_may_do_so_with_its_run(mlflow, mlflow_of_bob, alice, bob):
    key = experiment(mlflow)
    run = start(mlflow, key)
    model = log(mlflow, experiment_id=key, name="net", source_run_id=run)["model_id"]
    calls = (
        ("get", f"logged-models/{model}", {}), ("patch", f"logged-models/{model}", {"status": READY}),
        ("delete", f"logged-models/{model}", {}), ("delete", f"logged-models/{model}/tags/x", {}),
        ("post", f"logged-models/{model}/params", {"params": [{"key": "a", "value": "b"}]}),
        ("patch", f"logged-models/{model}/tags", {"tags": [{"key": "a", "value": "b"}]}),
        ("get", f"logged-models/{model}/artifacts/directories", {}),
        ("get", f"logged-models/{model}/artifacts/files", {"artifact_file_path": "MLmodel"}),
    )  # fmt: skip
    for method, route, fields in calls:
        mine = mlflow_of_bob.send(method, route, fields)
        none = mlflow_of_bob.send(method, route.replace(model, "m-" + "0" * 32), fields)
        assert (mine.status_code, mine.content.decode().replace(model, "m-" + "0" * 32)) == (404, none.content.decode())
    assert names(mlflow_of_bob, [key]) == []
    bobs = start(mlflow_of_bob)
    for route in ("runs/outputs", "runs/log-inputs"):
        code = mlflow_of_bob.refused("post", route, run_id=bobs, models=[{"model_id": model}])
        assert code == "RESOURCE_DOES_NOT_EXIST"
    mlflow_of_bob.call("post", "runs/log-metric", run_id=bobs, model_id=model, **point())
    assert LoggedModel.objects.get().metrics == {}
    job = Job.objects.get(run_id=run)
    share(job, bob)
    assert mlflow_of_bob.call("get", f"logged-models/{model}")["model"]["info"]["name"] == "net"
    assert mlflow_of_bob.refused("patch", f"logged-models/{model}", status=READY) == "PERMISSION_DENIED"
    own = Job.objects.create(
        user=alice, tenant=alice.tenant, name="fit", entry="fit.py", cpu=1, ram=100, state="running", run_name="none",
        project=job.project,
    )  # fmt: skip
    inside = Mlflow(job_token(own))
    info = log(inside, experiment_id=key, name="mine")
    assert LoggedModel.objects.get(key=info["model_id"]).job == own
    inside.call("patch", f"logged-models/{info['model_id']}", status=READY)
    assert inside.refused("patch", f"logged-models/{model}", status=READY) == "RESOURCE_DOES_NOT_EXIST"
    assert inside.refused("delete", f"logged-models/{info['model_id']}") == "PERMISSION_DENIED"


def test_a_model_of_mlflow_2_is_a_tag_of_its_run(mlflow):
    run = start(mlflow)
    said = '{"artifact_path": "model", "flavors": {}, "utc_time_created": "2026", "run_id": "x"}'
    for _ in range(2):
        mlflow.call("post", "runs/log-model", run_id=run, model_json=said)
    assert Job.objects.get(run_id=run).system_tags["mlflow.log-model.history"].count("utc_time_created") == 2
    assert mlflow.refused("post", "runs/log-model", run_id=run, model_json="[]") == "INVALID_PARAMETER_VALUE"
