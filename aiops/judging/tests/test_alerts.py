"""Alert rules: each kind notifies its owner once, for its own workload only, with any number of replicas."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from accounts.models import Notice, User
from aiops import logstore
from aiops.intake import accept
from aiops.judging import alerts
from aiops.models import Alert, AlertRule, Template
from aiops.wire import kv, subjects
from kernel import keyvalue, messages
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db(transaction=True)

NOW = timezone.now()


def ago(seconds: int):
    return NOW - timedelta(seconds=seconds)


def lines(deployment: str, seconds_ago: int, count: int = 3, **verdict) -> None:
    names = {"cluster_id": "c", "namespace_name": "shop", "deployment": deployment, "log_type": "workload"}
    at = int(ago(seconds_ago).timestamp() * 1000)
    ids = [f"{deployment}{at}{number}" for number in range(count)]
    logstore.get().append([{"_id": id, "time": at, "log": "disk gone", **names} for id in ids])
    logstore.get().update_many([(id, verdict) for id in ids] if verdict else [])


@pytest.fixture
def rule(alice):
    """Return a function that makes a rule of alice's, an administrator, who may see the lines of all clusters."""
    User.objects.filter(pk=alice.pk).update(is_staff=True, is_superuser=True)

    def make(kind: str, deployment: str = "web", **fields) -> AlertRule:
        times = {"created": ago(500), "checked": ago(500)}
        given = {"threshold": 3, "window_s": 60, "quiet_s": 600, **times, **fields}
        return AlertRule.objects.create(
            name=f"{kind} {deployment}", kind=kind, deployment=deployment, owner=alice, **given
        )

    return make


@pytest.fixture
def world():
    """Workload `web` has anomalies of a new template and then no lines; `other` has neither."""

    def make(kind: str) -> None:
        lines("other", 10)
        if kind == "missing":
            lines("web", 200)
            return
        lines("web", 40, anomaly_level="Anomaly", template_cluster_id=7)
        if kind == "new_template":
            at = int(ago(40).timestamp() * 1000)
            Template.objects.create(template_id="7", text="disk <*>", first=at, last=at)
            kv.ensure()
            kv.put_parameters("u", {"c": {"shop": ["web", "other"]}})

    return make


KINDS = ["rate", "new_template", "missing"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_owner_is_notified_once(rule, world, alice, kind):
    world(kind)
    rule(kind)
    assert (alerts.check(NOW), alerts.check(NOW + timedelta(seconds=15))) == (1, 0)
    notice = Notice.objects.get(kind="alert")
    assert (notice.user, notice.name) == (alice, f"{kind} web")
    assert "c/shop/web" in notice.reason
    assert Alert.objects.get().workload == "c/shop/web"


@pytest.mark.parametrize("kind", KINDS)
def test_no_alert_for_other_workloads_or_disabled_rules(rule, world, kind):
    world(kind)
    rule(kind, "other")
    rule(kind, "web", enabled=False)
    assert alerts.check(NOW) == 0
    assert not Notice.objects.exists()


def test_an_invalid_watchlist_does_not_block_other_rules(rule, world, caplog):
    world("new_template")
    rule("new_template")
    rule("rate")
    keyvalue.put_json(subjects.OWN_BUCKET, subjects.OWN_WATCHLIST, {"workloads": {"c": 7}})
    assert alerts.check(NOW) == 1
    assert Alert.objects.get().rule.kind == "rate"
    assert "new_template web could not be checked" in caplog.text


@pytest.mark.parametrize("kind", few(KINDS, 1))
def test_the_number_of_queries_does_not_grow_with_the_workloads(rule, world, kind, django_assert_max_num_queries):
    world(kind)
    at = {0: 200, 1: 40, 2: -3600}  # silent, with lines, and with one of a time to come, which says nothing of now
    made = [
        accept.line(
            "x", cluster="c", namespace="shop", deployment=f"web{number}", at_ms=int(ago(then).timestamp() * 1000)
        )
        for number in range(1000)
        for then in {at[number % 3], at[number % 2]}
    ]
    logstore.get().append(made)
    logstore.get().update_many([(line["_id"], {"anomaly_level": "Anomaly"}) for line in made])
    rule(kind, "")
    with django_assert_max_num_queries(14):
        assert alerts.check(NOW) == 1
    alert = Alert.objects.get()
    assert alert.workload == "c/shop/web"
    if kind == "missing":
        silent = [n for n in range(1000) if 200 in {at[n % 3], at[n % 2]} and 40 not in {at[n % 3], at[n % 2]}]
        assert alert.count == len(silent) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_reason_is_shown_in_the_readers_language(rule, world, kind, monkeypatch):
    world(kind)
    rule(kind)
    alerts.check(NOW)
    monkeypatch.setattr(messages, "gettext", lambda text: f"auf Deutsch: {text}")
    (notice,) = Notice.objects.filter(kind="alert")
    assert "auf Deutsch: " in messages.translate(notice.reason)


def test_alerts_repeat_after_the_cooldown(rule, world):
    world("rate")
    rule("rate", quiet_s=10)
    assert [alerts.check(NOW + timedelta(seconds=after)) for after in (0, 5, 12)] == [1, 0, 1]


def test_a_rule_is_checked_with_each_round_that_is_due_by_its_window(rule, world):
    """Also where a round comes some milliseconds sooner after the last than 15 s."""
    rule("rate", window_s=900)
    assert alerts.check(NOW) == 0
    world("rate")
    assert [alerts.check(NOW + timedelta(seconds=after)) for after in (5, 14.98)] == [0, 1]


def test_one_silence_is_reported_once(rule, world):
    world("missing")
    rule("missing", quiet_s=10)
    assert [alerts.check(NOW + timedelta(seconds=after)) for after in (0, 20)] == [1, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_two_replicas_send_one_notification(rule, world, monkeypatch, kind):
    world(kind)
    rule(kind)
    both, look = threading.Barrier(2, timeout=60), alerts.LOOKS[kind]

    def together(*given):
        due = look(*given)
        both.wait()
        return due

    monkeypatch.setitem(alerts.LOOKS, kind, together)
    sent: list[int] = []

    def replica():
        sent.append(alerts.check(NOW))
        connection.close()

    threads = [threading.Thread(target=replica) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(sent) == [0, 1]
    assert Notice.objects.count() == 1


def test_the_page(alice):
    User.objects.filter(pk=alice.pk).update(is_staff=True, is_superuser=True)
    alice.refresh_from_db()
    page = visitor(alice)
    given = {"do": "create", "name": "many", "kind": "rate", "deployment": "web", "threshold": "5"}
    assert page.post("/aiops/alerts", given).status_code == 302
    made = AlertRule.objects.get()
    assert (made.threshold, made.owner, made.enabled) == (5, alice, True)
    assert page.post("/aiops/alerts", given).status_code == 403
    assert page.post("/aiops/alerts", {**given, "name": "x", "kind": "bad"}).status_code == 403
    assert "*/*/web" in visible_text(page.get("/aiops/alerts"))
    page.post("/aiops/alerts", {"do": f"off:{made.pk}"})
    assert not AlertRule.objects.get().enabled
    page.post("/aiops/alerts", {"do": f"delete:{made.pk}"})
    assert not AlertRule.objects.exists()
