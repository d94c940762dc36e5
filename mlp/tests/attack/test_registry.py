"""A job's own token, and a token for submission, in the model registry: what their owner gave them, and no more."""

from __future__ import annotations

import pytest

from accounts import named_tokens
from conftest import Api
from jobs.artifacts import files
from jobs.auth import job_token
from jobs.models import Job
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visitor
from models_app.models import Alias, ModelVersion, RegisteredModel
from tracking.mlflow.tests.conftest import Mlflow, mlflow, mlflow_of_bob  # noqa: F401 (fixtures)
from tracking.mlflow.tests.test_tracking import experiment, start

pytestmark = pytest.mark.django_db

CHANGES = (
    ("delete", "registered-models/delete", {}),
    ("post", "registered-models/rename", {"new_name": "x"}),
    ("patch", "registered-models/update", {"description": "x"}),
    ("post", "registered-models/set-tag", {"key": "a", "value": "b"}),
    ("delete", "registered-models/delete-tag", {"key": "team"}),
    ("post", "registered-models/alias", {"alias": "champion", "version": "1"}),
    ("delete", "registered-models/alias", {"alias": "champion"}),
    ("post", "model-versions/transition-stage", {"version": "1", "stage": "Production"}),
    ("delete", "model-versions/delete", {"version": "1"}),
    ("patch", "model-versions/update", {"version": "1", "description": "x"}),
    ("post", "model-versions/set-tag", {"version": "1", "key": "a", "value": "b"}),
    ("delete", "model-versions/delete-tag", {"version": "1", "key": "n"}),
)
ELSEWHERE = "s3://bucket/model"


def registered(client, name: str = "churn") -> None:
    client.call("post", "registered-models/create", name=name, tags=[{"key": "team", "value": "crm"}])
    for number in (1, 2):
        client.call("post", "model-versions/create", name=name, source=ELSEWHERE, tags=[{"key": "n", "value": "1"}])
        client.call("post", "registered-models/alias", name=name, alias="champion", version=str(number))


def rows() -> list:
    return [list(model.objects.order_by("pk").values()) for model in (RegisteredModel, ModelVersion, Alias)]


@pytest.fixture
def job(alice) -> Job:
    return put(Job, alice, "fit", "running")


@pytest.fixture
def inside(job):
    """Return a function that calls with the job's token, which has these rights."""

    def give(registry: str = "versions", *names: str) -> Mlflow:
        Job.objects.filter(pk=job.pk).update(registry=registry, registry_models=list(names))
        return Mlflow(job_token(job))

    return give


def test_a_job_registers_versions_and_moves_no_alias(mlflow, inside, job):  # noqa: F811
    registered(mlflow)
    files.put_bytes(job, "artifacts/model/MLmodel", b"flavors: {}")
    client, own = inside(), job.run_id.hex
    before = rows()
    for method, route, fields in CHANGES:
        assert client.refused(method, route, name="churn", **fields) == "PERMISSION_DENIED", route
    assert rows() == before
    client.call("post", "registered-models/create", name="fresh")
    assert client.refused("post", "registered-models/create", name="churn") == "RESOURCE_ALREADY_EXISTS"
    version = client.call("post", "model-versions/create", name="churn", source=f"runs:/{own}/model", run_id=own)
    assert version["model_version"]["version"] == "3"
    client.call("post", "model-versions/set-tag", name="churn", version="3", key="a", value="b")
    client.call("patch", "model-versions/update", name="churn", version="3", description="of this run")
    assert client.refused("delete", "model-versions/delete", name="churn", version="3") == "PERMISSION_DENIED"
    assert ModelVersion.objects.get(number=3).tags == {"a": "b"}
    aliased = client.call("get", "registered-models/alias", name="churn", alias="champion")
    assert aliased["model_version"]["version"] == "2"


def test_a_job_changes_what_its_owner_allows(mlflow, inside):  # noqa: F811
    registered(mlflow)
    client = inside("aliases", "churn")
    client.call("post", "registered-models/alias", name="churn", alias="champion", version="1")
    assert Alias.objects.get().version.number == 1
    assert client.refused("delete", "registered-models/alias", name="churn", alias="champion") == "PERMISSION_DENIED"
    assert client.refused("post", "registered-models/create", name="other") == "PERMISSION_DENIED"
    before = rows()
    for client, name in ((inside("read"), "churn"), (inside("versions", "other"), "churn")):
        body = {"name": name, "source": ELSEWHERE}
        assert client.refused("post", "model-versions/create", **body) == "PERMISSION_DENIED"
        assert client.refused("post", "registered-models/alias", name=name, alias="a", version="1") == (
            "PERMISSION_DENIED"
        )
    assert rows() == before


def test_a_job_reads_the_files_of_versions_and_no_others(mlflow, inside, job):  # noqa: F811
    """Those of its owner's, whatever project has made them; and it cannot register others to read them."""
    elsewhere = Job.objects.get(run_id=start(mlflow, experiment(mlflow, "elsewhere")))
    files.put_bytes(elsewhere, "artifacts/model/MLmodel", b"flavors: {}")
    files.put_bytes(elsewhere, "artifacts/models-of-others/MLmodel", b"secret")
    files.put_bytes(elsewhere, "artifacts/secret.txt", b"secret")
    run = elsewhere.run_id.hex
    mlflow.call("post", "registered-models/create", name="churn")
    mlflow.call("post", "model-versions/create", name="churn", source=f"runs:/{run}/model", run_id=run)
    client = inside()

    def fetched(path: str) -> int:
        address = f"/mlflow/api/2.0/mlflow-artifacts/artifacts/{elsewhere.project_id}/{run}/artifacts/{path}"
        return client.get(address, HTTP_AUTHORIZATION=f"Bearer {client.token}").status_code

    uri = client.call("get", "model-versions/get-download-uri", name="churn", version="1")["artifact_uri"]
    assert uri == f"mlflow-artifacts:/{elsewhere.project_id}/{run}/artifacts/model"
    assert [fetched(path) for path in ("model/MLmodel", "models-of-others/MLmodel", "secret.txt")] == [200, 404, 404]
    assert client.refused("get", "artifacts/list", run_id=run) == "RESOURCE_DOES_NOT_EXIST"
    before = rows()
    project = elsewhere.project_id
    for source in (
        f"runs:/{run}/secret.txt",
        f"runs:/{elsewhere.run_id}/secret.txt",
        f"mlflow-artifacts:/{project}/{run}/artifacts",
        f"mlflow-artifacts://host/{project}/{run.upper()}/artifacts/secret.txt",
        "home/train.py",
        f"jobs/{elsewhere.name}",
        "models/net",
        f"models:/m-{'0' * 32}",
    ):
        code = client.refused("post", "model-versions/create", name="churn", source=source)
        assert code in ("PERMISSION_DENIED", "RESOURCE_DOES_NOT_EXIST"), source
    body = {"name": "churn", "source": ELSEWHERE, "run_id": run}
    assert client.refused("post", "model-versions/create", **body) == "RESOURCE_DOES_NOT_EXIST"
    assert rows() == before


def test_a_job_reads_a_logged_model_once_it_is_registered(mlflow, inside):  # noqa: F811
    key = experiment(mlflow, "elsewhere")
    run = start(mlflow, key)
    logged = mlflow.call("post", "logged-models", experiment_id=key, name="net", source_run_id=run)["model"]["info"]
    model, client = logged["model_id"], inside()
    files.put_bytes(Job.objects.get(run_id=run), f"models/{model}/MLmodel", b"flavors: {}")
    mlflow.call("post", "registered-models/create", name="churn")
    assert client.refused("get", f"logged-models/{model}") == "RESOURCE_DOES_NOT_EXIST"
    for path, allowed in ((f"models:/{model}/other", False), (f"models:/{model}", True)):
        mlflow.call("post", "model-versions/create", name="churn", source=path, model_id=model)
        assert (client.send("get", f"logged-models/{model}").status_code == 200) is allowed
    listed = client.call("get", f"logged-models/{model}/artifacts/directories")["files"]
    assert [entry["path"] for entry in listed] == ["MLmodel"]
    assert client.refused("patch", f"logged-models/{model}", status="LOGGED_MODEL_READY") == "RESOURCE_DOES_NOT_EXIST"
    tags = [{"key": "a", "value": "b"}]
    assert client.refused("patch", f"logged-models/{model}/tags", tags=tags) == "RESOURCE_DOES_NOT_EXIST"


def test_the_registry_of_others_is_none_to_a_job(mlflow_of_bob, inside):  # noqa: F811
    registered(mlflow_of_bob, "theirs")
    client, before = inside("aliases"), rows()
    for method, route, fields in (*CHANGES, ("get", "registered-models/get", {})):
        code = client.refused(method, route, name="theirs", **fields)
        assert code in ("PERMISSION_DENIED", "RESOURCE_DOES_NOT_EXIST"), route
    body = {"name": "theirs", "source": ELSEWHERE}
    assert client.refused("post", "model-versions/create", **body) == "RESOURCE_DOES_NOT_EXIST"
    assert rows() == before


def test_a_token_for_submission_registers_and_gives_no_job_more_than_it_has(mlflow, alice, home):  # noqa: F811
    registered(mlflow)
    home.mkdir(parents=True, exist_ok=True)
    (home / "train.py").write_text("print()")
    body = {"name": "fit", "entry": "train.py"}

    def token(name: str, **rights) -> Api:
        return Api(named_tokens.create(user=alice, name=name, scope="submit", by="test", **rights)[1])

    def submitted(client, name: str, **fields):
        answer = client.call("post", "users/alice/jobs", {**body, "name": name, **fields}).json()
        return answer.get("registry"), answer.get("registry_models"), answer.get("msg")

    usual = token("usual")
    version = {"source": ELSEWHERE}
    assert usual.call("post", "users/alice/registry/churn/versions", version).status_code == 201
    assert "token: " in usual.refused("put", "users/alice/registry/churn/aliases/champion", {"version": 1})
    assert "token: " in usual.refused("delete", "users/alice/registry/churn")
    assert submitted(usual, "a") == ("versions", [], None)
    assert "registry: this token may give" in submitted(usual, "b", registry="aliases")[2]
    sweep = {
        "name": "s",
        "job": {"entry": "train.py", "registry": "aliases"},
    }
    sweep["objective"] = {"metric": "loss", "direction": "minimize"}
    sweep["space"] = {"lr": {"choices": [0.1, 0.2]}}
    assert "registry: this token may give" in usual.refused("post", "users/alice/sweeps", sweep)
    narrow = token("narrow", registry="aliases", registry_models=["churn"])
    assert narrow.call("put", "users/alice/registry/churn/aliases/champion", {"version": 1}).status_code == 200
    assert "token: " in narrow.refused("post", "users/alice/registry", {"name": "fresh"})
    assert submitted(narrow, "c") == ("versions", ["churn"], None)
    assert "registry_models: " in submitted(narrow, "d", registry_models=["other"])[2]
    reads = token("reads", registry="read")
    assert "token: " in reads.refused("post", "users/alice/registry/churn/versions", version)
    assert submitted(reads, "e") == ("read", [], None)
    Job.objects.filter(name="a").update(state="error", registry="aliases")
    again = reads.call("post", "users/alice/jobs/a:rerun", {"name": "f"}).json()
    assert again["registry"] == "read"


def test_the_forms_give_what_is_chosen_in_them(alice, home):
    home.mkdir(parents=True, exist_ok=True)
    (home / "train.py").write_text("print()")
    client, rights = visitor(alice), {"registry": "aliases", "registry_models": "churn\n two words \n"}
    job = {"name": "fit", "entry": "train.py", "cpu": "1", "gpu": "0", "ram": "100", **rights}
    assert client.post("/jobs", job).status_code == 302
    submitted = Job.objects.get(name="fit")
    assert (submitted.registry, submitted.registry_models) == ("aliases", ["churn", "two words"])
    assert b"two words" in client.get("/jobs/fit").content
    assert b"two words" in client.get("/jobs?from=fit").content
    assert client.post("/account/tokens", {"name": "ci", "scope": "submit", "days": "7", **rights}).status_code == 200
    token = alice.tokens.get(name="ci")
    assert (token.registry, token.registry_models) == ("aliases", ["churn", "two words"])
    assert b"two words" in client.get("/account/tokens").content
