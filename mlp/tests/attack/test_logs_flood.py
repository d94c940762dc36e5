"""One user who sends log lines without number: those of others stay, and the sender is asked to wait, not refused."""

from __future__ import annotations

import json
import time

import pytest
from django.core.cache import cache

from accounts import lifecycle as accounts
from aiops.intake import accept, quota
from aiops.models import LogLine, Workload
from aiops.services.housekeeping import Housekeeping
from mlp.tests.page_world import visible_text, visitor
from operations.checkup import state

pytestmark = pytest.mark.django_db(transaction=True)
MANY, BEGUN = 3000, 1_700_000_000
ROUTES = ("/loki/api/v1/push", "/v1/logs", "/api/v1/aiops/logs")


@pytest.fixture
def keeper(settings):
    """The housekeeping, with the least that a user may have, and all lines young enough."""
    settings.AIOPS_USER_MIB, settings.AIOPS_RETENTION_DAYS = 1, 3650
    housekeeping = Housekeeping()
    yield housekeeping
    housekeeping.stop()
    cache.delete(quota.KEPT)


def fill(name: str, count: int) -> None:
    """Store lines of half a kilobyte, the oldest first."""
    text = "a line of half a kilobyte " * 20
    lines = [
        accept.line(f"{number} {text}", namespace=name, deployment="shop", id=f"{name}{number}",
                    at_ms=BEGUN * 1000 + number)
        for number in range(count)
    ]  # fmt: skip
    accept.append(lines)


def push(client, user, route: str, seconds: int = BEGUN):
    """Send one line, as a shipper does."""
    at = str(seconds * 10**9)
    record = {"timeUnixNano": at, "body": {"stringValue": "one more"}}
    body = {
        ROUTES[0]: {"streams": [{"stream": {"app": "shop"}, "values": [[at, "one more"]]}]},
        ROUTES[1]: {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]},
        ROUTES[2]: {"log": "one more", "deployment": "shop", "_id": "one"},
    }[route]
    token = {"authorization": f"Bearer {accounts.token_of(user)}"}
    return client.post(route, json.dumps(body), content_type="application/json", headers=token)


def test_the_oldest_lines_of_who_has_too_many_make_room_and_no_others(keeper, alice, bob):
    fill("alice", MANY)
    fill("bob", 10)
    fill("shop", MANY)  # an administrator's shipper may send it, and it is no user's
    assert quota.use_of("alice").size == 0  # nothing is known before the first round
    keeper.retain()
    kept = list(LogLine.objects.filter(namespace="alice").order_by("time").values_list("time", flat=True))
    assert 0 < len(kept) < MANY
    assert kept == [BEGUN * 1000 + number for number in range(MANY - len(kept), MANY)]
    lines = dict(Workload.objects.values_list("namespace", "lines"))
    assert lines == {"alice": len(kept), "bob": 10, "shop": MANY}
    keeper.retain()
    assert LogLine.objects.filter(namespace="alice").count() == len(kept)
    client = visitor()
    client.force_login(alice)
    assert "Your oldest lines are removed first." in visible_text(client.get("/aiops"))
    client.force_login(bob)
    assert "Your oldest lines are removed first." not in visible_text(client.get("/aiops"))
    assert ["alice" in log.what for log in state.logs() if log.level == "warning"] == [True]


@pytest.mark.parametrize("route", ROUTES)
def test_who_sends_faster_than_lines_are_removed_is_asked_to_wait(keeper, client, alice, bob, staff, route):
    """With what every shipper sends again: some drop for good what is answered 429."""
    quota.measured({"alice": quota.Share(2 << 20)})
    before = LogLine.objects.count()
    answer = push(client, alice, route)
    assert (answer.status_code, answer["Retry-After"]) == (503, "60")
    assert "MLP_AIOPS_USER_MIB" in answer.content.decode()
    assert LogLine.objects.count() == before
    for other in (bob, staff):
        assert push(client, other, route).status_code < 300
    keeper.retain()
    for _again in range(2):
        assert push(client, alice, route).status_code < 300
    assert LogLine.objects.filter(namespace="alice").count() == 1


def test_what_arrives_between_two_rounds_counts(keeper, client, alice, monkeypatch):
    """Nobody sends without end until the next round."""
    quota.measured({})
    monkeypatch.setattr(quota, "ROW", 700 << 10)
    statuses = [push(client, alice, ROUTES[0], BEGUN + number).status_code for number in range(4)]
    assert statuses == [204, 204, 503, 503]


def test_a_request_is_stored_as_a_whole_or_not_at_all(keeper, client, alice, monkeypatch):
    """Whoever is asked to wait sends all of it again."""
    quota.measured({})
    monkeypatch.setattr(quota, "ROW", 700 << 10)
    monkeypatch.setattr("aiops.web.logs_api.CHUNK", 1)
    body = [{"log": f"line {number}", "deployment": "shop"} for number in range(5)]
    token = {"authorization": f"Bearer {accounts.token_of(alice)}"}
    answers = [
        client.post(ROUTES[2], json.dumps(body), content_type="application/json", headers=token).status_code
        for _again in range(2)
    ]
    assert answers == [200, 503]
    assert LogLine.objects.count() == 5


def test_without_the_cache_nobody_waits(keeper, client, alice, settings):
    quota.measured({"alice": quota.Share(2 << 20)})
    cache.delete(quota.KEPT)
    assert push(client, alice, ROUTES[0]).status_code == 204


def test_a_workload_for_each_line_leaves_nothing_behind(keeper, alice, settings):
    """Workloads are named by the senders, and counted in rows of their own."""
    settings.AIOPS_RETENTION_DAYS = 1
    at = {"shop": int(time.time() * 1000), "old": BEGUN * 1000}
    for kind, at_ms in at.items():
        lines = [
            accept.line("one", namespace="alice", deployment=f"{kind}{number}", id=f"{kind}{number}", at_ms=at_ms)
            for number in range(20)
        ]
        accept.append(lines)
    assert Workload.objects.count() == 40
    keeper.retain()
    assert set(Workload.objects.values_list("deployment", flat=True)) == {f"shop{number}" for number in range(20)}
