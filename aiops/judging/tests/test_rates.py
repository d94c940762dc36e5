"""Templates that come too often or are silent: one alert for each time, and one for its end; none for what is usual."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from accounts.models import Notice, User
from aiops import logstore
from aiops.judging import alerts, rate_alerts, rates
from aiops.judging.usual_rates import Usual
from aiops.models import Alert, AlertRule, RateAnomaly, RateClock, TemplateRate, WatchedWorkload
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db(transaction=True)

BASE = int(timezone.now().timestamp()) // 60 - 300  # the minute at which a test begins; what was before is usual
BEAT, RETRY, REST = 1, 2, 3
TEXTS = {BEAT: "heartbeat ok", RETRY: "retry of <*>", REST: "request done"}


def at(minute: int) -> datetime:
    """Return the moment at which that minute, counted from BASE, is over and settled."""
    return datetime.fromtimestamp((BASE + minute + 2) * 60, UTC)


def send(minutes, template: int | None, lines: int = 1, **fields) -> None:
    """Store so many lines of a template in each of these minutes, counted from BASE."""
    text = TEXTS.get(template, f"text {template}").replace("<*>", "a")
    verdict = {"masked_log": text, "anomaly_level": "Normal", "template_matched": TEXTS.get(template, text)}
    verdict = {**verdict, "template_cluster_id": template} if template else {}
    made = [
        {
            "_id": f"{fields.get('pod_name')}-{template}-{minute}-{number}",
            "time": (BASE + minute) * 60_000 + number, "log": text,
            "cluster_id": "local", "namespace_name": "alice", "deployment": "shop", "log_type": "workload",
            **verdict, **fields,
        }
        for minute in minutes
        for number in range(lines)
    ]  # fmt: skip
    for start in range(0, len(made), 5000):
        logstore.get().append(made[start : start + 5000])


@pytest.fixture
def shop(alice):
    """Return the watched workload `shop`, which for 5 hours sent a heartbeat a minute, requests, and a retry at times.

    A rule of alice's is about it.
    """
    WatchedWorkload.objects.create(namespace="alice", deployment="shop", by=alice)
    usual(range(-300, 0))
    rates.advance(at(-1))
    return AlertRule.objects.create(
        name="r", kind="template_rate", cluster="local", namespace="alice", owner=alice, direction="both", threshold=10,
        quiet_s=0, created=at(-1), checked=at(-1),
    )  # fmt: skip


def go(until: int, since: int = 0) -> None:
    """Let the services look, every few minutes."""
    for minute in [*range(since, until, 4), until - 1]:
        rates.advance(at(minute))
        rate_alerts.tell_ends(at(minute))
        alerts.check(at(minute))
        AlertRule.objects.update(next_check=None)


def usual(minutes, *but: int) -> None:
    for template, lines, every in ((BEAT, 1, 1), (REST, 3, 1), (RETRY, 2, 4)):
        if template not in but:
            send([minute for minute in minutes if minute % every == 0], template, lines)


def found() -> list[tuple[str, int]]:
    return [(anomaly.kind, anomaly.template_id) for anomaly in RateAnomaly.objects.order_by("pk")]


def test_a_retry_storm_is_told_once_with_its_end(shop, alice):
    usual(range(40))
    send(range(12, 18), RETRY, 100, pod_name="b")
    go(13)
    alert = Alert.objects.get()
    assert alert.workload == "local/alice/shop"
    assert alert.words.startswith("104 lines in 5 minutes, usually 4 to 4, since ")
    assert alert.words.endswith("UTC: retry of <*>")
    assert [sample["log"] for sample in alert.samples] == ["retry of a"] * 5
    go(40, since=13)
    alert = Alert.objects.get()
    anomaly = RateAnomaly.objects.get()
    assert (anomaly.kind, anomaly.template_id, anomaly.recovered, alert.ended is not None) == (
        "often",
        RETRY,
        True,
        True,
    )
    assert anomaly.lines >= 500
    ended, began = Notice.objects.filter(user=alice, kind="alert").order_by("-pk").values_list("reason", flat=True)
    assert began.startswith("local/alice/shop: 104 lines")
    assert ended.startswith("local/alice/shop: ended, as usual again: 104 lines")


def test_a_heartbeat_that_stops_is_told_once_with_its_end(shop):
    usual(range(45), BEAT)
    go(20)
    assert found() == [], "five hours are not long"
    send(range(40, 45), BEAT)
    go(40, since=20)
    for minute in range(40, 45):
        go(minute + 1, since=minute)
    alert = Alert.objects.get()
    assert "usually for 1 at most" in alert.words
    assert found() == [("silent", BEAT)]
    assert alert.ended is not None


def test_lines_that_are_judged_later_are_learned_from(shop):
    """A workload is watched before a model is trained."""
    RateClock.objects.all().delete()
    send(range(-300, 0), None, 5)
    usual(range(4))
    go(2)
    assert not TemplateRate.objects.exists()
    rows, _more = logstore.get().search({"query": {"bool": {"must_not": [{"exists": {"field": "masked_log"}}]}}}, 9999)
    logstore.get().update_many([(row["_id"], {"masked_log": "x", "template_cluster_id": 5}) for row in rows])
    go(4, since=2)
    assert Usual.of(TemplateRate.objects.get(template_id=BEAT).state).gaps[1] > 290


def test_what_is_usual_is_no_anomaly(shop):
    usual(range(60))
    send([30], RETRY, 6, pod_name="b")  # somewhat more
    go(60)
    assert found() == []


@pytest.mark.long
@pytest.mark.parametrize("what", few(["ends", "restarts"], 1))
def test_a_workload_that_ends_has_no_silent_templates(shop, what):
    usual(range(10))
    if what == "restarts":
        usual(range(50, 60))
        send(range(50, 53), 9, 5)
    go(60)
    assert found() == []


@pytest.mark.long
def test_lines_that_come_late_or_again_change_nothing(shop):
    usual(range(30))
    go(10)
    send(range(-60, 5), RETRY, 50, pod_name="late")
    send(range(5), REST, 3)
    go(30, since=10)
    assert found() == []


@pytest.mark.long
def test_a_template_that_always_arrives_late_is_not_silent(shop):
    usual(range(60), BEAT)
    for minute in range(0, 60, 4):
        send(range(minute - 10, minute - 6), BEAT)
        rates.advance(at(minute))
    assert found() == []


@pytest.mark.long
def test_bursts_with_short_breaks_are_one_anomaly(shop):
    usual(range(60))
    for begin in range(5, 40, 9):
        send([begin, begin + 1], RETRY, 50, pod_name="b")
    go(60)
    assert (found(), Alert.objects.count()) == ([("often", RETRY)], 1)


@pytest.mark.long
def test_after_nobody_counted_nothing_is_told_until_lines_have_arrived(shop):
    """As after a restart of the platform: the heartbeat arrives late, and the shippers' backlog at once."""
    usual(range(60, 90), BEAT)
    send(range(60, 62), RETRY, 400, pod_name="b")
    go(90, since=60)
    assert found() == []


@pytest.mark.long
def test_a_clock_that_is_set_back_or_ahead_is_no_storm(shop):
    usual(range(30))
    rates.advance(at(40_000_000))
    rates.advance(at(0))
    go(30)
    assert found() == []
    assert RateClock.objects.get().minute == BASE + 30


@pytest.mark.long
def test_lines_without_a_verdict_do_not_make_a_template_silent(shop):
    usual(range(50), BEAT)
    send(range(50), None)
    go(50)
    assert found() == []


@pytest.mark.long
def test_a_template_that_was_learned_again_is_not_silent(shop):
    usual(range(50), BEAT)
    send(range(50), 7, masked_log="heartbeat ok", template_matched="heartbeat <*>")
    go(50)
    assert found() == []
    assert not TemplateRate.objects.filter(template_id=BEAT).exists()


@pytest.mark.long
def test_a_nightly_job_is_told_once(shop, alice):
    """The same number of lines at the same time of the next day is usual."""
    rate = TemplateRate.objects.get(template_id=RETRY)
    rate.state["before"] = [[BASE + 10 - 1440, 500]]
    rate.save()
    usual(range(40))
    send(range(10, 15), RETRY, 100)
    go(40)
    assert found() == []


def test_only_one_of_two_replicas_tells(shop):
    usual(range(20))
    send(range(5, 10), RETRY, 100)
    for minute in range(20):
        rates.advance(at(minute))
        rates.advance(at(minute))
        assert alerts.check(at(minute)) + alerts.check(at(minute)) <= 1
        AlertRule.objects.update(next_check=None)
    assert (len(found()), Alert.objects.count()) == (1, 1)


def test_rules_choose_the_direction_the_number_and_the_workload(shop, alice):
    AlertRule.objects.all().delete()
    for name, fields in {
        "down": {"direction": "down"}, "many": {"threshold": 1000}, "other": {"deployment": "other"}, "fits": {},
    }.items():  # fmt: skip
        given = {"direction": "up", "threshold": 10, "namespace": "alice", "cluster": "local", **fields}
        AlertRule.objects.create(
            name=name, kind="template_rate", owner=alice, created=at(-1), checked=at(-1), **given
        )  # fmt: skip
    usual(range(12))
    send(range(5, 10), RETRY, 100)
    go(12)
    assert [alert.rule.name for alert in Alert.objects.all()] == ["fits"]


def test_of_a_workload_with_many_templates_some_are_counted(shop, monkeypatch):
    monkeypatch.setattr("aiops.judging.rate_minutes.MAX_TEMPLATES", 50)
    usual(range(2))
    for number in range(100):
        send([0], 1000 + number)
    go(2)
    assert TemplateRate.objects.count() == 50


def test_an_unwatched_workload_is_forgotten(shop):
    WatchedWorkload.objects.all().delete()
    rates.advance(at(1))
    assert not RateClock.objects.exists()
    assert not TemplateRate.objects.exists()


def test_an_administrators_rule_names_the_workload(shop, alice):
    User.objects.filter(pk=alice.pk).update(is_staff=True, is_superuser=True)
    AlertRule.objects.update(cluster="", namespace="")
    usual(range(12))
    send(range(5, 10), RETRY, 100)
    go(12)
    assert Alert.objects.get().link.startswith(
        "/aiops/workload?cluster=local&namespace=alice&deployment=shop&template="
    )


@pytest.mark.long
def test_slow_growth_does_not_become_usual_as_it_goes(shop):
    rate = TemplateRate.objects.get(template_id=RETRY)
    rate.state |= {"began": rate.state["began"] - 3 * 1440, "day": 2}
    rate.save()
    usual(range(60), RETRY)
    for minute in range(0, 60, 2):
        send([minute], RETRY, 2 + minute // 6)
    go(60)
    assert found() == [("often", RETRY)]


def test_lines_dated_far_ahead_count_as_they_arrive(shop):
    send([130_000_000], REST, 5)  # in the year 2273: stored with the present
    usual(range(10))
    go(10)
    assert found() == []
    assert (
        timedelta(0)
        <= timezone.now()
        - datetime.fromtimestamp(
            max(row["time"] for row in logstore.get().search({"query": {"match_all": {}}}, 1)[0]) / 1000, UTC
        )
        < timedelta(minutes=5)
    )


def test_users_read_the_rates_of_their_own_workloads(shop, alice, as_alice, as_bob):
    usual(range(12))
    send(range(5, 10), RETRY, 100)
    go(12)
    names = "namespace=alice&deployment=shop"
    rows = {row["template_cluster_id"]: row for row in as_alice.call("get", f"aiops/rates?{names}").json()}
    shown = {name: rows[RETRY][name] for name in ("low", "high", "most", "gap", "silent_after", "unusual")}
    assert shown == {"low": 4, "high": 4, "most": 14, "gap": 4, "silent_after": 30, "unusual": ["often"]}
    (anomaly,) = as_alice.call("get", f"aiops/rate_anomalies?current=true&{names}").json()
    assert (anomaly["kind"], anomaly["workload"]) == ("often", "local/alice/shop")
    assert anomaly["msg"].startswith("500 lines in 5 minutes, usually 4 to 4")
    assert as_alice.call("get", "aiops/rate_anomalies?current=false").json() == []
    assert as_bob.refused("get", f"aiops/rates?{names}") == "workload: no such workload"
    assert as_bob.call("get", "aiops/rate_anomalies").json() == []


def test_the_page_of_a_workload_shows_what_was_unusual(shop, alice, bob):
    usual(range(12))
    send(range(5, 10), RETRY, 100)
    go(12)
    address = "/aiops/workload?namespace=alice&deployment=shop"
    shown = visible_text(visitor(alice).get(address))
    assert "too often: 500 lines in 5 minutes, usually 4 to 4" in shown
    assert "ongoing" in shown
    assert "None" not in shown
    page = visible_text(visitor(alice).get(f"{address}&template={RETRY}"))
    assert "Lines over time normal 654 anomalies 0" in page
    assert visitor(bob).get(address).status_code == 404


@pytest.mark.parametrize("kind", ["rate_anomalies", "session_anomalies", "suppressions"])
def test_a_name_that_no_line_can_have_finds_nothing(as_alice, kind):
    for name in ("cluster", "namespace", "deployment", *(["value"] if kind == "session_anomalies" else [])):
        answer = as_alice.call("get", f"aiops/{kind}?{name}=no%00such")
        assert (answer.status_code, answer.json()) == (200, []), name
