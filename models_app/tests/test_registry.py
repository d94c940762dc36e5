"""The registry by REST and pages: versions are models that are checked to load, aliases and stages, what is refused."""

from __future__ import annotations

import pytest
from django.utils import timezone

from jobs.models import Job
from jobs.summaries import metrics as summaries
from kernel import storage
from kernel.models import StateChange
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text
from mlp.tests.tiers import few
from models_app.models import Model, ModelVersion, RegisteredModel

pytestmark = pytest.mark.django_db(transaction=True)

BASE = "users/alice/registry"


@pytest.fixture
def registry(as_alice, tasks, default_tenant):
    """Return a function that calls the registry of alice: its answer, whose status must be the given one."""

    def call(method: str, path: str = "", body: dict | None = None, status: int = 200):
        response = as_alice.call(method, BASE + path, body)
        assert response.status_code == status, response.content
        return response.json()

    return call


@pytest.fixture
def churn(registry):
    body = {"name": "Churn 客户", "description": "Who *leaves*", "tags": {"team": "crm"}}
    registry("post", body=body, status=201)
    return "/Churn%20%E5%AE%A2%E6%88%B7"


@pytest.fixture
def three(registry, churn, alice):
    """Give the registered model three versions of a model that is ready."""
    Model.objects.create(user=alice, tenant=alice.tenant, name="net", src="home/net", size=1, state="ready")
    for _number in range(3):
        registry("post", f"{churn}/versions", {"source": "models/net"}, 201)
    return churn


def test_a_version_is_a_model_that_is_checked_and_deleted_with_it(registry, churn, uploaded, settled, as_alice):
    version = registry("post", f"{churn}/versions", {"source": uploaded("net/predictor.py")}, 201)
    assert (version["version"], version["status"], version["model"]) == (1, "PENDING_REGISTRATION", "churnva")
    bad = registry("post", f"{churn}/versions", {"source": uploaded("bad/predictor.py", "raise ValueError")}, 201)
    model = settled(Model.objects.get(name="churnva"))
    assert model.state == "ready", model.reason
    settled(Model.objects.get(name=bad["model"]))
    bad = registry("get", f"{churn}/versions/2")
    assert bad["status"] == "READY", "it is registered, and its files are here"
    assert bad["reason"].startswith("cannot be deployed here: ")
    assert "ValueError" in bad["reason"]
    body = {"name": "app", "model_name": bad["model"], "cpu": 0.1, "ram": 100}
    assert "ValueError" in as_alice.refused("post", "users/alice/apps", body)
    copy = registry("post", f"{churn}/versions", {"source": "models/churnva", "tags": {"copy": "yes"}}, 201)
    assert (copy["version"], copy["status"], copy["model"]) == (3, "READY", "churnva")

    refused = as_alice.call("delete", "users/alice/models/churnva")
    assert "version 1 of the registered model" in refused.json()["msg"]
    registry("delete", f"{churn}/versions/1")
    assert Model.objects.get(name="churnva").state == "ready"  # version 3 has it, too
    pending = registry("post", f"{churn}/versions", {"source": "home/net/predictor.py"}, 201)
    assert (pending["version"], pending["model"]) == (4, "churnvd")
    registry("delete", churn)
    assert set(Model.objects.values_list("state", flat=True)) == {"deleting"}
    assert not ModelVersion.objects.exists()
    assert registry("get") == []


def test_versions_of_models_are_compared_by_the_metrics_of_their_runs(registry, churn, client, alice, as_alice):
    """A version that is made from a model has the run whose output the model is; one without a run hides no others."""
    for name, accuracy in (("fita", 0.875), ("fitb", 0.75)):
        job = put(Job, alice, name, "finished")
        summaries.add(job, [summaries.summary_of("accuracy", [accuracy], 1, timezone.now())])
        storage.job_dir("alice", name).mkdir(parents=True)
        (storage.job_dir("alice", name) / "model.pt").write_bytes(b"not really")
        body = {"name": name, "src": f"jobs/{name}/model.pt"}
        assert as_alice.call("post", "users/alice/models", body).status_code == 201
    Model.objects.create(user=alice, tenant=alice.tenant, name="net", src="home/net", size=1, state="ready")
    for model, run in (("fita", "fita"), ("fitb", "fitb"), ("net", None)):
        registry("post", f"{churn}/versions", {"source": f"models/{model}"}, 201)
        version = ModelVersion.objects.latest("number")
        assert (version.job and version.job.name) == run
    client.force_login(alice)
    for asked in ("?version=1&version=2", "?version=1&version=2&version=3"):
        words = visible_text(client.get(f"/registry{churn}/compare{asked}"))
        assert ("0.875" in words, "0.75" in words) == (True, True), words
    Job.objects.filter(name="fita").update(ended=timezone.now())  # another one, that has the name now
    assert registry("post", f"{churn}/versions", {"source": "models/fita"}, 201)["version"] == 4
    assert ModelVersion.objects.latest("number").job is None


def test_aliases_stages_tags_and_names(registry, three):
    registry("put", f"{three}/aliases/champion", {"version": 1})
    moved = registry("put", f"{three}/aliases/champion", {"version": 2})
    assert moved["aliases"] == ["champion"]
    assert registry("get", f"{three}/aliases/champion")["version"] == 2
    assert registry("get", f"{three}/aliases/latest")["version"] == 3
    for number in (1, 2):
        registry("put", f"{three}/versions/{number}", {"stage": "Production"})
    changed = {"stage": "Production", "archive": True, "tags": {"a": "b"}, "description": "best"}
    assert registry("put", f"{three}/versions/3", changed)["tags"] == {"a": "b"}
    stages = {version["version"]: version["stage"] for version in registry("get", f"{three}/versions")}
    assert stages == {1: "Archived", 2: "Archived", 3: "Production"}
    model = registry("put", three, {"name": "Churn", "tags": {}})
    assert (model["name"], model["tags"], model["aliases"], model["latest"]) == ("Churn", {}, {"champion": 2}, 3)
    registry("delete", "/Churn/aliases/champion")
    registry("get", "/Churn/aliases/champion", status=403)
    registry("delete", "/Churn/versions/3")
    assert registry("post", "/Churn/versions", {"source": "models/net"}, 201)["version"] == 4
    said = StateChange.objects.filter(kind="registeredmodel", owner="alice").order_by("pk")
    assert ("alias", "1", "2") in said.values_list("transition", "source", "target")
    assert ("stage", "Production", "Archived") in said.values_list("transition", "source", "target")
    assert {row.by for row in said} == {"alice"}


@pytest.mark.parametrize(
    ("method", "path", "body", "problem"),
    few(
        [
            ("post", "", {"name": "a/b"}, "'/' or ':'"),
            ("post", "", {"name": " "}, "1 to 256"),
            ("post", "", {"name": "Churn 客户"}, "already have a registered model"),
            ("post", "", {"name": "x", "tags": {"a": 1}}, "a must be a text"),
            ("put", "{three}/aliases/latest", {"version": 1}, "reserved"),
            ("put", "{three}/aliases/V2", {"version": 1}, "reserved"),
            ("put", "{three}/aliases/champion", {"version": 9}, "no such version"),
            ("put", "{three}/versions/1", {"stage": "Live"}, "None, Staging"),
            ("put", "{three}/versions/1", {"archive": True}, "requires a stage"),
            ("put", "{three}/versions/1", {"stage": "None", "archive": True}, "Staging and Production"),
            ("post", "{three}/versions", {"source": "jobs/none"}, "no job named none"),
            ("post", "{three}/versions", {"source": "models/none"}, "no model named none"),
            ("post", "/none/versions", {"source": "models/net"}, "no such registered model"),
            ("delete", "/none", None, "no such registered model"),
            ("get", "{three}/versions/9", None, "no such version"),
        ],
        5,
    ),
)
def test_what_is_refused(registry, three, method, path, body, problem):
    assert problem in registry(method, path.format(three=three), body, 403)["msg"]
    assert RegisteredModel.objects.get().last == 3


def test_files_elsewhere_make_a_version_without_a_model(registry, churn):
    version = registry("post", f"{churn}/versions", {"source": "s3://bucket/model"}, 201)
    assert (version["status"], version["model"]) == ("READY", None)


def test_the_page_shows_and_changes_all(client, alice, three):
    client.force_login(alice)
    page = f"/registry{three}"

    def post(do: str, **given):
        response = client.post(f"{page}/change", {"do": do, **given}, follow=True)
        assert response.status_code == 200
        return response.content.decode()

    assert "@champion" in post("alias", version=2, alias="champion")
    assert "Production" in post("stage", version=2, stage="Production")
    assert "team: ops" in post("tag", key="team", value="ops")
    assert "eyes: two" in post("tag", version=1, key="eyes", value="two")
    assert "team: ops" not in post("untag", key="team")
    assert "<strong>all</strong>" in post("edit", name="Churn 客户", description="**all** customers")
    assert "reserved" in post("alias", version=2, alias="latest")
    assert "no such version" in post("drop", version=17)
    assert 'id="version-1"' not in post("drop", version=1)
    assert 'id="version-4"' in post("add", source="models/net", description="again")
    assert "@champion" not in post("unalias", alias="champion").partition('id="history-title"')[0]
    assert client.get("/registry?q=churn").content.decode().count('id="registered-') == 1
    assert client.post(f"{page}/change", {"do": "nonsense"}).status_code == 404
    assert "is deleted" in post("delete")
    assert not RegisteredModel.objects.exists()
    assert client.get(page).status_code == 404


def test_another_user_finds_nothing(as_bob, bob, client, three):
    for path in ("", three, f"{three}/versions", f"{three}/versions/1", f"{three}/aliases/latest"):
        assert as_bob.call("get", BASE + path).status_code == 403
    client.force_login(bob)
    assert client.get(f"/registry{three}").status_code == 404
    assert client.post(f"/registry{three}/change", {"do": "delete"}).status_code == 404
    assert RegisteredModel.objects.count() == 1
