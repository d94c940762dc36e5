"""The registry's half of the MLflow protocol where work follows the answer: files of versions, webhooks."""

from __future__ import annotations

import json

import pytest
from django.utils import timezone

from jobs.artifacts import files
from jobs.models import Job
from models_app import reconcile
from models_app.models import Model, RegistryDelivery

from .receiver import Receiver
from .test_mlflow_registry import caller, make_churn

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def mlflow(as_alice, default_tenant):
    return caller(as_alice)


@pytest.fixture
def churn(mlflow):
    return make_churn(mlflow)


def test_the_files_of_runs_and_logged_models_become_versions(mlflow, churn, alice, tasks):
    run = mlflow("post", "runs/create", experiment_id="0")["run"]["info"]
    job = Job.objects.get(run_id=run["run_id"])
    files.put_bytes(job, "artifacts/net/MLmodel", b"x")
    info = {}
    for name in ("net", "tree"):
        fields = {"experiment_id": "0", "name": name, "source_run_id": run["run_id"]}
        info[name] = mlflow("post", "logged-models", **fields)["model"]["info"]
        files.put_bytes(job, f"models/{info[name]['model_id']}/MLmodel", b"xy")
    address = {name: entry["artifact_uri"] for name, entry in info.items()}
    for source, place, fetched in (
        (f"runs:/{run['run_id']}/net", "artifacts/net", f"{run['artifact_uri']}/net"),
        (f"runs:/{run['run_id']}/tree", f"models/{info['tree']['model_id']}", address["tree"]),
        (f"models:/{info['net']['model_id']}", f"models/{info['net']['model_id']}", address["net"]),
        (f"{address['tree']}/", f"models/{info['tree']['model_id']}", address["tree"]),
        (f"{run['artifact_uri']}/net", "artifacts/net", f"{run['artifact_uri']}/net"),
    ):
        version = mlflow("post", "model-versions/create", name="churn", source=source)["model_version"]
        assert version["status"] == "PENDING_REGISTRATION", source
        assert Model.objects.latest("pk").src == f"jobs/{job.name}/{place}"
        uri = mlflow("get", "model-versions/get-download-uri", name="churn", version=version["version"])["artifact_uri"]
        assert uri == fetched, source
    other = mlflow("post", "model-versions/create", name="churn", source="models:/m-" + "0" * 32)["model_version"]
    assert other["status"] == "READY"  # it has no files here
    outside = {"name": "churn", "source": f"runs:/{run['run_id']}/../../../bob/x/y"}
    refused = mlflow("post", "model-versions/create", 400, **outside)
    assert refused["error_code"] == "INVALID_PARAMETER_VALUE"


# --- webhooks --------------------------------------------------------------------------------------------------------
EVENTS = [
    {"entity": "MODEL_VERSION", "action": "CREATED"},
    {"entity": "MODEL_VERSION_ALIAS", "action": "CREATED"},
    {"entity": "MODEL_VERSION_TAG", "action": "DELETED"},
]


def test_webhooks_get_signed_events_and_are_tried_again(mlflow, churn, receiver, tasks):
    webhook = mlflow("post", "webhooks", name="deploy", url=receiver, events=EVENTS, secret="s3cret")["webhook"]
    assert "secret" not in webhook
    Receiver.answers = [500]
    mlflow("post", "registered-models/alias", name="churn", alias="champion", version="3")
    mlflow("delete", "model-versions/delete-tag", name="churn", version="1", key="n")
    mlflow("post", "registered-models/set-tag", name="churn", key="a", value="b")  # not asked for
    tasks.run()
    RegistryDelivery.objects.filter(open=True).update(not_before=timezone.now())
    reconcile.run()
    tasks.run(times=2)
    bodies = [json.loads(body) for _headers, body in Receiver.got]
    assert [(body["entity"], body["action"]) for body in bodies] == [
        ("model_version_alias", "created"), ("model_version_tag", "deleted"), ("model_version_alias", "created"),
    ]  # fmt: skip
    assert bodies[2]["data"] == {"name": "churn", "alias": "champion", "version": "3"}
    (first, body), (again, _body) = Receiver.got[0], Receiver.got[2]
    assert first["X-MLflow-Delivery-Id"] == again["X-MLflow-Delivery-Id"]
    assert Receiver.signed(first, body, "s3cret")
    assert not RegistryDelivery.objects.filter(open=True).exists()


def test_webhooks_are_changed_tested_and_deleted(mlflow, receiver, tasks, as_bob, settings):
    key = mlflow("post", "webhooks", name="deploy", url=receiver, events=EVENTS)["webhook"]["webhook_id"]
    assert {str(event) for event in mlflow("get", "webhooks")["webhooks"][0]["events"]} == {
        str(event) for event in EVENTS
    }
    result = mlflow("post", f"webhooks/{key}/test")["result"]
    assert result == {"success": True, "response_status": 200, "response_body": "thanks"}
    changed = mlflow("patch", f"webhooks/{key}", status="DISABLED", events=EVENTS[:1])["webhook"]
    assert (changed["status"], changed["events"], changed["name"]) == ("DISABLED", EVENTS[:1], "deploy")
    mlflow("post", "registered-models/create", name="quiet")
    mlflow("post", "model-versions/create", name="quiet", source="x")
    tasks.run()
    assert len(Receiver.got) == 1
    for method in ("get", "patch", "delete"):
        assert mlflow(method, f"webhooks/{key}", 404, client=as_bob)["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    assert mlflow("get", "webhooks", client=as_bob) == {"webhooks": []}
    settings.WEBHOOK_PRIVATE = False
    for url in (receiver, "ftp://example.com", "http://localhost/"):
        assert (
            mlflow("post", "webhooks", 400, name="x", url=url, events=EVENTS)["error_code"] == "INVALID_PARAMETER_VALUE"
        )
    wrong = [{"entity": "MODEL_VERSION", "action": "EXCEEDED"}]
    assert (
        mlflow("post", "webhooks", 400, name="x", url=receiver, events=wrong)["error_code"] == "INVALID_PARAMETER_VALUE"
    )
    mlflow("delete", f"webhooks/{key}")
    assert mlflow("get", f"webhooks/{key}", 404)["message"] == f"Webhook with ID {key} not found"
