"""Tenants' own log models: whose lines they judge, by which verdicts, and how they are trained and end."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from accounts import lifecycle as accounts
from accounts.models import User
from accounts.tenancy import members
from aiops import lifecycle, logstore
from aiops.conftest import payload
from aiops.intake import accept, known
from aiops.judging import own_models
from aiops.models import ModelVersion, State, Template
from aiops.services import scoring
from aiops.services.drain import WorkloadDrain
from aiops.services.housekeeping import Housekeeping
from aiops.services.inference import Inference
from aiops.services.writeback import WriteBack
from aiops.training import own_training, requests, versions
from aiops.training.tests.test_training import no_gpu
from aiops.wire import folders, kv, payloads, subjects
from conftest import Api, move
from mlp.tests.page_world import visible_text, visitor
from opnilog.masking import mask
from opnilog.store import NEEDED, Versions
from resources import tenants
from resources.models import Tenant

__all__ = ["no_gpu"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_run_left")]

TEXT = "valve seven is open"


def ok(client: Api, method: str, path: str, body=None, status: int = 200):
    """Return the answer of a call that must have that status."""
    response = client.call(method, path, body)
    assert response.status_code == status, response.content
    return response.json()


def as_user(user) -> Api:
    return Api(accounts.token_of(user))


@pytest.fixture
def teams(make_user, as_staff):
    """Anna administers `red` and bert `blue`, each the only one in it; both tenants have a model of their own. Carl is
    in `red` and in `default`.
    """
    kv.ensure()
    made = SimpleNamespace()
    for name, user in (("red", "anna"), ("blue", "bert")):
        ok(as_staff, "post", "tenants", {"name": name}, 201)
        assert ok(as_staff, "put", f"tenants/{name}", {"log_model": True})["log_model"]
        tenant = Tenant.objects.get(name=name)
        member = make_user(user)
        move(member, tenant)
        members.put(tenant=name, user=user, role="admin", by="test")
        setattr(made, name, tenant)
        setattr(made, user, member)
    made.carl = make_user("carl")
    members.put(tenant="red", user="carl", role="member", by="test")
    return made


class Scorer:
    """A stand-in for a model: the texts of its manifest are normal, all others anomalies."""

    def __init__(self, folder, _device):
        self.normal = json.loads((folder / "manifest.json").read_text())["normal"]

    def score(self, texts):
        verdicts = [(1.0, "Normal", []) if text in self.normal else (0.25, "Anomaly", [(0, "valve")]) for text in texts]
        return [SimpleNamespace(confidence=sure, level=level, unexpected=odd) for sure, level, odd in verdicts]


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """Return `serve(tenant, text, …)`: a version of the tenant's model (None: the platform's) by which these are
    normal.
    """
    monkeypatch.setattr(scoring, "open_model", Scorer)

    def version(tenant, *normal: str) -> str:
        folder = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for name in NEEDED:
            (folder / name).write_text(json.dumps({"normal": normal}))
        name = versions.files().add(folder)
        if tenant is None:
            lifecycle.serve_foreign(name, {})
        else:
            run = lifecycle.create_own(tenant=tenant, by="test")
            assert lifecycle.complete(run.pk, version=name, manifest={}, by="test")
        versions.follow()
        return name

    return version


@pytest.fixture
def drain():
    service = WorkloadDrain()
    service.start()
    yield service
    service.stop()


def line(namespace: str, text: str = TEXT, cluster: str = "local") -> payloads.Payload:
    names = {"cluster_id": cluster, "namespace_name": namespace, "deployment": "fit"}
    return payload(1, _id=f"{cluster}-{namespace}-{text}", log=text, masked_log=mask(text), **names)


def judged(drain: WorkloadDrain, *items: payloads.Payload) -> dict[str, tuple[str, str, int]]:
    """Return (verdict, judge, tenant) of the lines by namespace, through DRAIN and the models."""
    inference = Inference(ask=lambda *_: subjects.NO)
    messages = drain.judge([payloads.encode(items)])
    for subject, data in list(messages):
        work = {subjects.OPNILOG_WORKLOAD: inference.infer, subjects.OWN_MODEL_LOGS: inference.infer_own}.get(subject)
        for name, verdicts in work([data]) if work else ():
            learn = {subjects.MODEL_INFERENCED_WORKLOAD: drain.learn, subjects.OWN_MODEL_VERDICTS: drain.learn_own}
            messages += learn[name]([verdicts]) if name in learn else []
    done = [item for subject, data in messages if subject == subjects.INFERENCED for item in payloads.decode(data)]
    return {item.namespace_name: (item.anomaly_level, item.inference_model, item.tenant) for item in done}


def watch(*names: str) -> None:
    kv.put_watched({"local": {name: ["fit"] for name in names}})


def test_the_same_line_has_the_verdict_of_each_teams_own_model(teams, serve, drain):
    serve(None)
    serve(teams.red, TEXT)
    serve(teams.blue, "valve seven is closed")
    drain.poll()
    people = [line(name) for name in ("anna", "bert", "carl")]
    red, blue = teams.red.pk, teams.blue.pk
    assert judged(drain, *people, line("anna", cluster="other")) | judged(drain, line("anna")) == {
        "anna": ("Normal", "drain", red), "bert": ("Anomaly", "opnilog", blue), "carl": ("Anomaly", "opnilog", 0),
    }  # fmt: skip
    again = judged(drain, *people)
    assert [verdict for verdict, _judge, _tenant in again.values()] == ["Normal", "Anomaly", "Anomaly"]
    assert {judge for _verdict, judge, _tenant in again.values()} == {"drain"}
    numbers = {model.cache.texts[TEXT].cluster for model in (drain.platform, *drain.own.values())}
    assert len(numbers) == 3  # no two models use the same number for a template


def test_a_line_is_judged_by_nobody_until_its_teams_model_is_trained(teams, serve, drain, as_staff):
    serve(None, TEXT)
    watch("anna", "alice")
    assert judged(drain, line("anna"), line("alice")) == {"alice": ("Normal", "opnilog", 0)}
    logstore.get().append([accept.line(TEXT, id="a", namespace="anna", deployment="fit", at_ms=1)])
    housekeeping = Housekeeping()
    assert housekeeping.sweep() == 0  # it would come back for ever
    housekeeping.stop()
    page = visitor(teams.anna)
    assert "model not trained yet" in visible_text(page.get("/aiops/line?id=a"))
    assert "not trained yet: its lines are not judged" in visible_text(page.get("/aiops/watched"))
    assert ok(as_staff, "get", "aiops/tenant_models/red")["status"] == "no model trained"


def test_a_verdict_of_another_version_or_for_a_line_that_moved_is_not_learned(teams, serve, drain):
    serve(None)
    old = serve(teams.red, TEXT)
    drain.poll()
    given = {"anomaly_level": "Normal", "inference_model": "opnilog", "tenant": teams.red.pk}
    late = payload(1, masked_log=TEXT, cluster_id="local", namespace_name="anna", model_version=old, **given)
    new = serve(teams.red)
    drain.poll()
    assert drain.learn_own([payloads.encode([late])]) == []
    assert drain.learn([payloads.encode([late])]) == []  # nor on the platform's subject
    assert Inference().infer_own([payloads.encode([payload(1, model_version="v999999")])]) == []  # it is gone
    late.model_version = new
    assert drain.learn_own([payloads.encode([late])])
    members.put(tenant="default", user="anna", role="member", by="test")
    drain.look()
    assert drain.learn_own([payloads.encode([late])]) == []
    assert judged(drain, line("anna")) == {"anna": ("Anomaly", "opnilog", 0)}


def test_verdicts_of_a_version_end_with_it_also_after_a_kill(teams, serve, drain):
    serve(teams.red, TEXT)
    drain.poll()
    judged(drain, line("anna"))
    drain.own[teams.red.pk].save()
    serve(teams.red)
    other = WorkloadDrain(SimpleNamespace(hold=lambda: True, release=lambda: None))  # takes over; DRAIN saves no more
    other.start()
    assert judged(other, line("anna"))["anna"] == ("Anomaly", "opnilog", teams.red.pk)


def test_labels_for_all_lines_and_of_a_namespace_apply_to_an_own_model(teams, serve, drain, as_staff, tasks):
    serve(None)
    serve(teams.red)
    logstore.get().append([accept.line(TEXT, id=name, namespace=name, deployment="fit") for name in ("anna", "bert")])
    ok(as_staff, "post", "aiops/feedback", {"id": "bert", "level": "Normal"}, 201)
    drain.poll()
    assert judged(drain, line("anna"))["anna"][0] == "Normal"
    assert not drain.own[teams.red.pk].cache.is_labelled(TEXT)  # the text is of another team's line
    ok(as_user(teams.anna), "post", "aiops/feedback", {"id": "anna", "level": "Anomaly"}, 201)
    drain.poll()
    assert judged(drain, line("anna"))["anna"][0] == "Anomaly"


def test_the_page_and_rest_say_which_model_judged_a_line(teams, serve, drain, served, peer):
    serve(teams.red, TEXT)
    served(WriteBack(), drain)
    watch("anna")
    drain.look()
    drain.poll()
    judged(drain, line("anna"))
    known.ask_again()
    accept.store([accept.line(TEXT, id="a", namespace="anna", deployment="fit")])  # known when it arrives
    logstore.get().append([accept.line(TEXT, id="b", namespace="anna", deployment="fit")])
    item = line("anna")
    item._id, item.tenant, item.anomaly_level, item.inference_model = "b", teams.red.pk, "Normal", "opnilog"
    WriteBack().verdicts([payloads.encode([item])])
    rows = {row["_id"]: row for row in ok(as_user(teams.anna), "get", "aiops/logs")}
    assert [(rows[id]["inference_model"], rows[id]["model_tenant"]) for id in "ab"] == [
        ("drain", "red"), ("opnilog", "red"),
    ]  # fmt: skip
    assert "the model of the tenant red" in visible_text(visitor(teams.anna).get("/aiops/line?id=a"))


def test_who_belongs_to_which_model(teams, as_staff, make_user, staff):
    red = teams.red.pk
    ok(as_user(teams.anna), "post", "users/anna/service_accounts", {"name": "robot"}, 201)
    move(staff, teams.red)  # an administrator of the platform
    names = own_models.owners()
    robot = User.objects.get(owner=teams.anna).username
    assert names == {"anna": red, robot: red, "bert": teams.blue.pk}  # carl is in two tenants
    members.remove(tenant="default", user="carl", by="test")
    assert own_models.owners()["carl"] == red
    assert own_models.model_of("elsewhere", "carl", own_models.owners()) == own_models.PLATFORM
    ok(as_staff, "put", "tenants/red", {"log_model": False})
    assert set(own_models.owners().values()) == {teams.blue.pk}


@pytest.mark.parametrize("how", ["switched off", "deleted"])
def test_the_model_goes_with_the_switch_and_with_the_tenant(teams, serve, drain, as_staff, default_tenant, how, tasks):
    """At once, also while another model is trained, and without a round of reconcile."""
    lifecycle.create_run(order={"payload": {"parameters": {"uuid": "x"}}}, by="test")
    tasks.queue.clear()
    serve(None)
    name = serve(teams.red, TEXT)
    drain.poll()
    judged(drain, line("anna"))
    drain.own[teams.red.pk].save()
    number = drain.own[teams.red.pk].cache.texts[TEXT].cluster
    logstore.get().put_templates([{"_id": str(number), "template_matched": TEXT, "log": TEXT}])
    watch("anna", "bert")
    run = own_training.request(teams.anna, "red")
    (folders.training(run.uuid) / "out-1").mkdir(parents=True)
    (folders.training(run.uuid) / "train.log").write_text(TEXT)
    if how == "deleted":
        move(teams.anna, default_tenant)
        members.remove(tenant="red", user="carl", by="test")
        tenants.delete(name="red", by="test")
    else:
        ok(as_staff, "put", "tenants/red", {"log_model": False})
    tasks.run()
    drain.poll()  # which notices that no version serves before its next look at the tenants
    assert folders.drain_files() == {}
    assert judged(drain, line("anna")) == {"anna": ("Anomaly", "opnilog", 0)}
    run.refresh_from_db()
    assert run.state == State.ERROR
    assert not Template.objects.exists()
    assert not folders.training(run.uuid).exists()
    assert not ModelVersion.objects.filter(version=name).exists()
    assert name not in Versions(folders.models()).all()
    assert Versions(folders.models()).pointers().keys() == {0}
    assert folders.drain_files() == {}
    shown = {row["uuid"]: row["tenant"] for row in ok(as_staff, "get", "aiops/trainings")}
    assert shown[str(run.uuid)] == ("red" if how == "switched off" else "(deleted)")


def test_the_platforms_model_and_a_teams_are_reset_and_rolled_back_apart(teams, serve, as_staff, staff):
    platform = serve(None)
    old, new = serve(teams.red), serve(teams.red, TEXT)
    assert ok(as_staff, "put", f"aiops/versions/{old}:serve")["tenant"] == "red"
    assert Versions(folders.models()).pointers() == {0: platform, teams.red.pk: old}
    lifecycle.deactivate()
    versions.follow()
    assert Versions(folders.models()).pointers() == {teams.red.pk: old}
    assert requests.state()["version"] == ""
    assert {row["version"]: row["serving"] for row in ok(as_staff, "get", "aiops/versions")} == {
        platform: False, old: True, new: False,
    }  # fmt: skip
    assert "red" in visible_text(visitor(staff).get("/aiops/models"))
