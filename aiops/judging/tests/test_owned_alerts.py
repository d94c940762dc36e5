"""Alert rules of users: about lines that they may see only, on searches and changes, to those who may see them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import Delivery, Notice, Preference, User
from accounts.tenancy import members
from aiops import logstore
from aiops.intake import accept
from aiops.judging import alerts
from aiops.models import Alert, AlertRule, SavedSearch
from conftest import Api
from kernel.messages import translate
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.tiers import few
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)

NOW = timezone.now()


def ok(client: Api, method: str, path: str, body=None, status: int = 200):
    """Return the answer of a call that must have that status."""
    response = client.call(method, path, body)
    assert response.status_code == status, response.content
    return response.json()


def lines(namespace: str, seconds_ago: float, count: int = 3, *, cluster: str = "local", text: str = "disk gone",
          deployment: str = "web", **verdict) -> None:  # fmt: skip
    at = int((NOW - timedelta(seconds=seconds_ago)).timestamp() * 1000)
    made = [
        accept.line(f"{text} {number}", cluster=cluster, namespace=namespace, deployment=deployment, at_ms=at)
        for number in range(count)
    ]
    logstore.get().append(made)
    if verdict:
        logstore.get().update_many([(line["_id"], verdict) for line in made])


@pytest.fixture
def saved(as_alice):
    return ok(as_alice, "post", "aiops/searches", {"name": "disks", "filters": {"q": "disk"}}, 201)["id"]


@pytest.fixture
def rule(as_alice, saved):
    def make(kind: str = "search", client: Api = as_alice, **fields) -> dict:
        given = {"threshold": 3, "window_s": 60, "quiet_s": 600, **fields}
        if kind == "search":
            given.setdefault("search", saved)
        return ok(client, "post", "aiops/alert_rules", {"name": f"my {kind}", "kind": kind, **given}, 201)

    return make


def backdate() -> None:
    AlertRule.objects.update(created=NOW - timedelta(seconds=500), checked=NOW - timedelta(seconds=500))


def test_a_rule_on_a_search_sends_lines_and_a_link(alice, rule):
    Preference.objects.create(user=alice, email="a@x.example", webhook="https://hooks.example/x")
    made = rule()
    assert (made["cluster"], made["namespace"]) == ("local", "alice")
    lines("alice", 30)
    lines("alice", 30, text="all well", count=9)
    assert alerts.check(NOW) == 1
    notice = Notice.objects.get(kind="alert")
    assert translate(notice.reason).startswith("local/alice/*: 3 lines of the search disks within 60 s\n")
    assert sorted(translate(notice.reason).splitlines()[1:]) == [f"disk gone {number}" for number in range(3)]
    assert set(Delivery.objects.values_list("channel", flat=True)) == {"mail", "webhook"}
    page = visitor(alice)
    text = visible_text(page.get(notice.link))
    assert "disk gone 1" in text
    assert "all well" not in text
    assert f'href="{notice.link.replace("&", "&amp;")}"' in page.get("/notifications").content.decode()
    shown = visible_text(page.get("/aiops/alerts"))
    assert "disk gone 2" in shown


def test_below_the_threshold_or_outside_of_the_window_there_is_no_alert(rule):
    rule()
    lines("alice", 30, count=2)
    lines("alice", 90, count=9)
    assert alerts.check(NOW) == 0


@pytest.mark.parametrize("kind", few(["search", "rate", "change", "missing"], 2))
def test_lines_of_others_never_fire_a_users_rule(rule, kind):
    rule(kind)
    backdate()
    for namespace, cluster in (("bob", "local"), ("alice", "other")):
        lines(namespace, 200 if kind == "missing" else 30, cluster=cluster, anomaly_level="Anomaly")
    assert alerts.check(NOW) == 0
    assert not Notice.objects.exists()
    lines("alice", 200 if kind == "missing" else 30, anomaly_level="Anomaly")
    assert alerts.check(NOW + timedelta(seconds=2)) == 1


@pytest.mark.parametrize(
    ("before", "now", "given", "fires"),
    few(
        [
            (4, 8, {}, True),
            (0, 1, {"threshold": 1}, True),
            (4, 7, {}, False),
            (0, 3, {}, True),
            (0, 2, {}, False),
            (8, 4, {}, False),
            (8, 4, {"direction": "down", "percent": 50}, True),
            (8, 5, {"direction": "down", "percent": 50}, False),
            (8, 0, {"direction": "both"}, True),
            (4, 8, {"direction": "down"}, False),
        ],
        3,
    ),
)
def test_a_changed_number_of_lines(rule, before, now, given, fires):
    rule("change", **given)
    lines("alice", 90, count=before)
    lines("alice", 30, count=now)
    assert alerts.check(NOW) == fires
    if fires:
        counted = f"{now} line" if now == 1 else f"{now} lines"
        assert str(Alert.objects.get().words) == f"{counted} within 60 s, {before} in the same time before"


def test_muting_and_editing(as_alice, rule):
    made = rule()
    lines("alice", 30)
    path = f"aiops/alert_rules/{made['id']}"
    assert ok(as_alice, "put", f"{path}:mute", {"seconds": 3600})["muted_until"]
    assert alerts.check(NOW) == 0
    assert ok(as_alice, "put", f"{path}:mute", {"seconds": 0})["muted_until"] is None
    changed = ok(as_alice, "put", path, {"threshold": 4})
    assert (changed["threshold"], changed["search"]) == (4, made["search"])
    assert alerts.check(NOW) == 0
    ok(as_alice, "put", path, {"threshold": 3, "enabled": False})
    assert alerts.check(NOW) == 0
    ok(as_alice, "put", path, {"enabled": True})
    assert alerts.check(NOW) == 1
    (sent,) = ok(as_alice, "get", "aiops/alerts")
    assert (sent["rule"], sent["count"], len(sent["samples"])) == (made["id"], 3, 3)
    ok(as_alice, "delete", path)
    assert ok(as_alice, "get", "aiops/alert_rules") == ok(as_alice, "get", "aiops/alerts") == []


def test_templates_that_were_new_while_muted_are_not_reported_later(rule):
    rule("new_template")
    backdate()
    until = NOW + timedelta(seconds=100)
    AlertRule.objects.update(muted_until=until)
    assert alerts.check(NOW) == 0
    assert AlertRule.objects.get().checked == NOW - alerts.SETTLED


def test_an_alert_goes_to_those_who_may_see_the_lines(as_alice, alice, bob, make_user, rule):
    carol = make_user("carol")
    other = Tenant.objects.create(name="other", cpu=1, ram=1000, rom=1000)
    members.put(tenant=other.name, user="carol", role="member", by="test")
    members.remove(tenant="default", user="carol", by="test")
    Notice.objects.all().delete()
    refusal = as_alice.refused("post", "aiops/alert_rules", {"name": "x", "kind": "rate", "recipients": ["carol"]})
    assert refusal == as_alice.refused(
        "post", "aiops/alert_rules", {"name": "x", "kind": "rate", "recipients": ["nobody"]}
    )
    made = rule(recipients=["bob"], quiet_s=10)
    assert made["recipients"] == ["bob"]
    lines("alice", 30)
    assert alerts.check(NOW) == 1
    assert sorted(Notice.objects.values_list("user__username", flat=True)) == ["alice", "bob"]
    AlertRule.objects.get().recipients.add(carol)  # as if the right had been lost since
    members.put(tenant="other", user="bob", role="member", by="test")
    members.remove(tenant="default", user="bob", by="test")
    Notice.objects.all().delete()
    assert alerts.check(NOW + timedelta(seconds=12)) == 1
    assert list(Notice.objects.values_list("user__username", flat=True)) == ["alice"]


def test_a_tenants_administrator_watches_its_members_but_not_who_is_in_another_tenant(as_alice, alice, bob, make_user):
    make_user("carol")
    Tenant.objects.create(name="other", cpu=1, ram=1000, rom=1000)
    body = {"name": "bobs", "kind": "rate", "namespace": "bob", "threshold": 1, "window_s": 60, "quiet_s": 0}
    refusal = as_alice.refused("post", "aiops/alert_rules", body)
    members.put(tenant="default", user="alice", role="admin", by="test")
    members.put(tenant="other", user="carol", role="member", by="test")
    ok(as_alice, "post", "aiops/alert_rules", body, 201)
    for name in ("carol", "platform", "nobody"):
        assert as_alice.refused("post", "aiops/alert_rules", {**body, "name": "x", "namespace": name}) == refusal
    assert as_alice.refused("post", "aiops/alert_rules", {**body, "recipients": ["carol"]})
    lines("bob", 30, anomaly_level="Anomaly")
    lines("carol", 30, anomaly_level="Anomaly")
    assert {row["namespace_name"] for row in ok(as_alice, "get", "aiops/logs")} == {"bob"}
    assert alerts.check(NOW) == 1
    members.put(tenant="other", user="bob", role="member", by="test")
    assert ok(as_alice, "get", "aiops/logs") == []
    assert alerts.check(NOW + timedelta(seconds=5)) == 0


def test_an_administrator_of_the_platform_is_seen_by_no_tenants_administrator(as_alice, staff):
    members.put(tenant="default", user="alice", role="admin", by="test")
    lines(staff.username, 30)
    assert ok(as_alice, "get", "aiops/logs") == []


def test_who_is_no_administrator_any_more_gets_no_alerts_of_all_lines(alice, as_alice, rule):
    User.objects.filter(pk=alice.pk).update(is_staff=True, is_superuser=True)
    rule("rate", namespace="bob", threshold=1, quiet_s=0)
    lines("bob", 30, anomaly_level="Anomaly")
    assert alerts.check(NOW) == 1
    User.objects.filter(pk=alice.pk).update(is_staff=False)
    assert alerts.check(NOW + timedelta(seconds=5)) == 0


def test_only_the_owner_and_administrators_reach_a_rule(as_alice, as_bob, as_staff, rule):
    made, given = rule(), {"threshold": 9}
    path = f"aiops/alert_rules/{made['id']}"
    for method, address, body in (
        ("get", path, None), ("put", path, given), ("put", f"{path}:mute", {"seconds": 60}), ("delete", path, None),
    ):  # fmt: skip
        assert as_bob.refused(method, address, body) == "alert rule: no such alert rule"
    assert ok(as_bob, "get", "aiops/alert_rules") == []
    assert ok(as_staff, "put", path, given)["threshold"] == 9
    assert [row["owner"] for row in ok(as_staff, "get", "aiops/alert_rules")] == ["alice"]


def test_limits_and_wrong_rules(as_alice, as_bob, rule, saved, settings):
    settings.AIOPS_RULES_PER_USER = 1
    rule()
    body = {"name": "second", "kind": "rate"}
    assert "at most 1 alert rule" in as_alice.refused("post", "aiops/alert_rules", body)
    settings.AIOPS_RULES_PER_USER = 9
    for wrong, where in (
        ({"kind": "search"}, "search"),
        ({"search": saved}, "search"),
        ({"cluster": "other"}, "cluster"),
        ({"namespace": "bob"}, "namespace"),
        ({"kind": "change", "direction": "down", "percent": 101}, "percent"),
        ({"name": "my search"}, "name"),
        ({"name": " "}, "name"),
        ({"window_s": 1}, "window_s"),
        ({"recipients": "bob"}, "recipients"),
    ):
        assert as_alice.refused("post", "aiops/alert_rules", {**body, **wrong}).startswith(where), wrong
    assert as_bob.refused("post", "aiops/alert_rules", {**body, "kind": "search", "search": saved}).startswith("search")


def test_the_page_of_a_users_rules(alice, as_bob, saved):
    page = visitor(alice)
    given = {"do": "create", "name": "many", "kind": "search", "search": str(saved), "threshold": "5"}
    assert page.post("/aiops/alerts", given).status_code == 302
    made = AlertRule.objects.get()
    assert (made.namespace, made.search.name) == ("alice", "disks")
    text = visible_text(page.get("/aiops/alerts"))
    assert "local/alice/*" in text
    edit = f"/aiops/alerts?edit={made.pk}"
    assert 'value="many"' in page.get(edit).content.decode()
    changed = {**given, "do": f"change:{made.pk}", "name": "renamed", "kind": "rate", "recipients": "bob"}
    assert page.post(edit, changed).status_code == 302
    made.refresh_from_db()
    assert (made.name, made.kind, made.search, made.recipients.get().username) == ("renamed", "rate", None, "bob")
    page.post("/aiops/alerts", {"do": f"mute:{made.pk}", "seconds": "3600"})
    assert "muted until" in visible_text(page.get("/aiops/alerts"))
    other = visitor(User.objects.get(username="bob"))
    assert "renamed" not in visible_text(other.get("/aiops/alerts"))
    assert other.get(edit).status_code == 404
    for wish in ("delete", "off", "mute", "change"):
        assert other.post("/aiops/alerts", {**changed, "do": f"{wish}:{made.pk}"}).status_code == 403
    assert AlertRule.objects.get().enabled


def test_saved_searches(as_alice, as_bob, as_staff, alice, bob, saved, settings, make_user):
    path, outsider = f"aiops/searches/{saved}", make_user("carol")
    Tenant.objects.create(name="other", cpu=1, ram=1000, rom=1000)
    members.put(tenant="other", user="carol", role="member", by="test")
    members.remove(tenant="default", user="carol", by="test")
    as_carol = Api(visitor(outsider).get("/api/v1/users/carol/token").json())
    assert as_bob.refused("get", path) == "search: no such search"
    assert ok(as_alice, "put", path, {"tenant": "default"})["tenant"] == "default"
    assert [row["name"] for row in ok(as_bob, "get", "aiops/searches")] == ["disks"]
    for method, body in (("put", {"name": "mine"}), ("delete", None)):
        assert as_bob.refused(method, path, body) == "search: no such search"
    assert as_carol.refused("get", path)
    assert as_alice.refused("put", path, {"tenant": "other"})
    members.put(tenant="other", user="alice", role="member", by="test")
    members.remove(tenant="default", user="alice", by="test")
    assert ok(as_bob, "get", "aiops/searches") == []
    assert ok(as_staff, "get", path)["filters"] == {"q": "disk"}
    settings.AIOPS_SEARCHES_PER_USER = 1
    more = {"name": "more", "filters": {"level": "Anomaly"}}
    assert "at most 1" in as_alice.refused("post", "aiops/searches", more)
    assert as_alice.refused("put", path, {"filters": {"q": "(("}}).startswith("q: ")
    assert as_alice.refused("put", path, {"filters": {"since": "1"}})
    assert as_alice.refused("put", path, {"filters": {}})
    made = ok(as_alice, "post", "aiops/alert_rules", {"name": "r", "kind": "search", "search": saved}, 201)
    assert as_alice.refused("delete", path) == "search: alert rules use this search: r"
    ok(as_alice, "delete", f"aiops/alert_rules/{made['id']}")
    ok(as_alice, "delete", path)
    assert not SavedSearch.objects.exists()


@pytest.mark.long
def test_the_page_of_saved_searches(alice, bob):
    lines("alice", 30)
    page = visitor(alice)
    assert "Save this search" in visible_text(page.get("/aiops?q=disk"))
    given = {"do": "save", "name": "gone", "q": "disk gone", "level": "", "severity": "ERROR"}
    assert page.post("/aiops/searches", given).status_code == 302
    row = SavedSearch.objects.get()
    assert row.filters == {"q": "disk gone", "severity": "ERROR"}
    page.post("/aiops/searches", {**given, "severity": ""})
    row.refresh_from_db()
    assert "severity" in row.filters
    page.post("/aiops/searches", {**given, "severity": "", "replace": "on"})
    row.refresh_from_db()
    assert row.filters == {"q": "disk gone"}
    page.post("/aiops/searches", {"do": f"share:{row.pk}", "tenant": "default"})
    other = visitor(bob)
    assert "disk gone" in visible_text(other.get("/aiops/searches"))
    assert "disk gone 1" in visible_text(page.get("/aiops?q=disk+gone"))
    assert "disk gone 1" not in visible_text(other.get("/aiops?q=disk+gone"))
    other.post("/aiops/searches", {"do": f"delete:{row.pk}"})
    assert SavedSearch.objects.exists()
    page.post("/aiops/searches", {"do": f"delete:{row.pk}"})
    assert not SavedSearch.objects.exists()


@pytest.mark.parametrize(("kind", "threshold"), [("session", 1), ("rate", 10), ("template_rate", 10)])
def test_the_usual_threshold_of_a_new_rule_is_that_of_its_kind(as_alice, alice, kind, threshold):
    made = ok(as_alice, "post", "aiops/alert_rules", {"name": "by REST", "kind": kind}, 201)
    assert made["threshold"] == threshold
    visitor(alice).post("/aiops/alerts", {"do": "create", "name": "by hand", "kind": kind, "threshold": ""})
    assert AlertRule.objects.get(name="by hand").threshold == threshold
    kept = ok(as_alice, "put", f"aiops/alert_rules/{made['id']}", {"kind": "session"})
    assert kept["threshold"] == threshold, "an existing rule keeps its own"
    given = ok(as_alice, "post", "aiops/alert_rules", {"name": "given", "kind": kind, "threshold": 7}, 201)
    assert given["threshold"] == 7
