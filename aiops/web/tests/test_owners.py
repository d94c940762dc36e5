"""Labels and watched workloads of users: for the own namespace only, over REST and on pages."""

from __future__ import annotations

import pytest

from accounts.models import User
from accounts.tenancy import members
from aiops import logstore
from aiops.intake import accept
from aiops.judging import feedback, watching
from aiops.models import Feedback, WatchedWorkload
from aiops.services.drain import WorkloadDrain
from aiops.services.preprocess import Preprocessing
from aiops.wire import kv, payloads, subjects
from conftest import Api
from mlp.tests.page_world import visible_text, visitor

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "disk gone away"


def ok(client: Api, method: str, path: str, body=None, status: int = 200):
    """Return the answer of a call that must have that status."""
    response = client.call(method, path, body)
    assert response.status_code == status, response.content
    return response.json()


@pytest.fixture
def lines() -> None:
    """A line of alice's and one of bob's of the same text and template, and one of alice's in another cluster."""
    stored = [
        accept.line(TEXT, id=id, namespace=namespace, deployment="fit", cluster=cluster)
        for id, namespace, cluster in (("a", "alice", "local"), ("b", "bob", "local"), ("far", "alice", "other"))
    ]
    logstore.get().append(stored)
    odd = {"masked_log": TEXT, "anomaly_level": "Anomaly", "template_matched": TEXT, "template_cluster_id": 7}
    logstore.get().update_many([(id, odd) for id in ("a", "b", "far")])


def levels() -> dict[str, str]:
    rows = logstore.get().search({"query": {"match_all": {}}}, 10)[0]
    return {row["_id"]: row.get("anomaly_level", "") for row in rows}


def judged(drain: WorkloadDrain, *names: tuple[str, str]) -> list[tuple[str, str]]:
    """Return (namespace, verdict) of lines with the text that come in now."""
    items = [
        payloads.Payload(_id=f"{cluster}{namespace}", log=TEXT, masked_log=TEXT, log_type="workload",
                         cluster_id=cluster, namespace_name=namespace, deployment="fit")
        for cluster, namespace in names
    ]  # fmt: skip
    answers = dict(drain.judge([payloads.encode(items)]))
    return [(item.namespace_name, item.anomaly_level) for item in payloads.decode(answers["inferenced_logs"])]


@pytest.fixture
def drain():
    service = WorkloadDrain()
    service.start()
    yield service
    service.stop()


def test_a_users_label_is_for_the_own_lines_and_no_training(as_alice, lines, drain, tasks):
    drain.cache.learn([(TEXT, "Anomaly", TEXT)])
    (row,) = ok(as_alice, "post", "aiops/feedback", {"id": "a", "level": "Normal"}, 201)
    assert (row["namespace"], row["masked_log"], row["level"], row["by"]) == ("alice", TEXT, "Normal", "alice")
    tasks.run()
    assert levels() == {"a": "Normal", "b": "Anomaly", "far": "Anomaly"}
    drain.poll()
    assert judged(drain, ("local", "alice"), ("local", "bob"), ("other", "alice")) == [
        ("alice", "Normal"), ("bob", "Anomaly"), ("alice", "Anomaly"),
    ]  # fmt: skip
    assert feedback.labels() == {}
    assert list(feedback.examples()) == []


def test_drain_is_notified_of_a_users_label(as_alice, lines, peer):
    peer.listen(subjects.FEEDBACK)
    ok(as_alice, "post", "aiops/feedback", {"id": "a", "level": "Normal"}, 201)
    assert peer.wait(subjects.FEEDBACK) == [b""]


def test_a_users_label_has_precedence_over_one_for_all_lines(as_alice, as_bob, as_staff, lines, drain, tasks):
    ok(as_alice, "post", "aiops/feedback", {"template": 7, "level": "Anomaly"}, 201)
    tasks.run()
    ok(as_staff, "post", "aiops/feedback", {"id": "b", "level": "Normal"}, 201)
    tasks.run()
    assert levels() == {"a": "Anomaly", "b": "Normal", "far": "Normal"}
    drain.poll()
    assert judged(drain, ("local", "alice"), ("local", "bob")) == [("alice", "Anomaly"), ("bob", "Normal")]
    shown = [
        {row["namespace"] for row in ok(client, "get", "aiops/feedback")} for client in (as_alice, as_bob, as_staff)
    ]
    assert shown == [{"alice"}, set(), {"alice", ""}]
    assert "alice" in visible_text(visitor(User.objects.get(username="alice")).get("/aiops/line?id=a"))


def test_the_models_verdict_on_a_new_text_is_learned_and_the_label_shown(as_alice, lines, drain):
    ok(as_alice, "post", "aiops/feedback", {"id": "a", "level": "Normal"}, 201)
    drain.poll()
    item = payloads.Payload(_id="x", log=TEXT, masked_log=TEXT, log_type="workload", cluster_id="local",
                            namespace_name="alice", anomaly_level="Anomaly", opnilog_confidence=0.2)  # fmt: skip
    (answer,) = payloads.decode(dict(drain.learn([payloads.encode([item])]))["inferenced_logs"])
    assert (answer.anomaly_level, answer.template_matched) == ("Normal", TEXT)
    assert judged(drain, ("local", "bob")) == [("bob", "Anomaly")]


def test_lines_of_others_are_not_labelled(as_bob, lines):
    for body in ({"id": "a"}, {"id": "far"}, {"id": "nothing"}):
        assert as_bob.refused("post", "aiops/feedback", {**body, "level": "Normal"}) == "log line: no such log line"
    ok(as_bob, "post", "aiops/feedback", {"template": 7, "level": "Normal"}, 201)
    assert list(Feedback.objects.values_list("namespace", flat=True)) == ["bob"]
    assert levels()["a"] == "Anomaly"


def test_a_tenants_administrator_labels_for_its_members(as_alice, bob, lines, tasks):
    assert as_alice.refused("post", "aiops/feedback", {"id": "b", "level": "Normal"})
    members.put(tenant="default", user="alice", role="admin", by="test")
    (row,) = ok(as_alice, "post", "aiops/feedback", {"id": "b", "level": "Normal"}, 201)
    assert (row["namespace"], row["by"]) == ("bob", "alice")
    tasks.run()
    assert levels() == {"a": "Anomaly", "b": "Normal", "far": "Anomaly"}


def test_labels_are_limited_and_checked(as_alice, lines, settings):
    settings.AIOPS_LABELS_PER_USER = 0
    assert "at most 0 labels" in as_alice.refused("post", "aiops/feedback", {"id": "a", "level": "Normal"})
    assert not Feedback.objects.exists()
    page = visitor(User.objects.get(username="alice"))
    assert page.get("/aiops/line?id=a").content.decode().count('disabled title="At most 0 labels of a user"') == 2
    settings.AIOPS_LABELS_PER_USER = 1
    ok(as_alice, "post", "aiops/feedback", {"id": "a", "level": "Normal"}, 201)
    assert "At most 1" not in page.get("/aiops/line?id=a").content.decode()  # a label that is there can be changed
    for body in ({"id": "a", "level": "Odd"}, {"level": "Normal"}, {"id": "a", "template": 7, "level": "Normal"}):
        assert as_alice.refused("post", "aiops/feedback", body)


def test_a_user_labels_on_the_pages(alice, lines):
    page = visitor(alice)
    answer = page.post("/aiops/tell", {"id": "a", "level": "Normal"}, follow=True)
    assert "Saved. It applies to your log lines." in visible_text(answer)
    page.post("/aiops/tell", {"template": 7, "level": "Anomaly"})
    assert list(Feedback.objects.values_list("namespace", "level")) == [("alice", "Anomaly")]


def test_templates_over_rest_are_those_of_the_own_lines(as_alice, as_bob, as_staff, make_user, lines):
    (row,) = ok(as_alice, "get", "aiops/templates?level=Anomaly")
    assert (row["template_cluster_id"], row["lines"], row["workloads"]) == (7, 1, ["local/alice/fit"])
    assert [row["lines"] for row in ok(as_staff, "get", "aiops/templates")] == [3]
    assert ok(as_bob, "get", "aiops/templates?namespace=alice") == []


def test_a_watched_workload_is_judged_beside_the_watchlist(as_alice, as_bob, as_staff, lines):
    kv.ensure()
    kv.put_parameters("u", {"c": {"shop": ["web"]}})
    row = ok(as_alice, "post", "aiops/watched", {"deployment": "fit"}, 201)
    assert ok(as_alice, "post", "aiops/watched", {"deployment": "fit"}, 201)["id"] == row["id"]
    assert watching.triples() == {("c", "shop", "web"), ("local", "alice", "fit")}
    service = Preprocessing()
    service.start()
    kept = service.sort([
        payloads.Payload(_id=namespace, log=TEXT, log_type="workload", cluster_id="local", namespace_name=namespace,
                         deployment="fit")
        for namespace in ("alice", "bob")
    ])  # fmt: skip
    assert [item._id for _subject, data in kept for item in payloads.decode(data)] == ["alice"]
    path = f"aiops/watched/{row['id']}"
    for method in ("get", "delete"):
        assert as_bob.refused(method, path) == "watched workload: no such watched workload"
    assert as_bob.refused("post", "aiops/watched", {"deployment": "fit", "namespace": "alice"}).startswith("namespace")
    assert [workload["namespace"] for workload in ok(as_staff, "get", "aiops/watched")] == ["alice"]
    assert ok(as_bob, "get", "aiops/watched") == []
    ok(as_alice, "delete", path)
    service.poll()
    assert service.owned == set()


def test_watched_workloads_are_limited(as_alice, settings):
    settings.AIOPS_WATCHED_PER_USER = 1
    ok(as_alice, "post", "aiops/watched", {"deployment": "one"}, 201)
    assert "at most 1 watched" in as_alice.refused("post", "aiops/watched", {"deployment": "two"})
    assert WatchedWorkload.objects.count() == 1


def test_the_page_of_watched_workloads(alice, staff, lines):
    kv.ensure()
    page = visitor(alice)
    text = visible_text(page.get("/aiops/watched"))
    assert "fit" in text
    assert "bob" not in text
    page.post("/aiops/watched", {"do": 'watch:["alice", "fit"]'})
    row = WatchedWorkload.objects.get()
    page.post("/aiops/watched", {"do": 'watch:["bob", "fit"]'})
    page.post("/aiops/watched", {"do": "watch:x"})
    assert WatchedWorkload.objects.count() == 1
    shown = visitor(staff).get("/aiops/watchlist")
    assert "watched by its owner" in visible_text(shown)
    assert [row["names"] for row in shown.context["rows"] if row["watched"]] == [("local", "alice", "fit")]
    page.post("/aiops/watched", {"do": f"unwatch:{row.pk}"})
    assert not WatchedWorkload.objects.exists()
