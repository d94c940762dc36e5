"""Sessions that people mark as normal: sessions of that shape are not reported again, until it is undone."""

from __future__ import annotations

import json

import pytest
from django.utils import timezone

from accounts.lifecycle import token_of
from accounts.tenancy import members
from aiops.intake.forgetting import forget_log
from aiops.judging import alerts, suppressions
from aiops.judging.sessions import Judge
from aiops.models import Alert, AlertRule, SessionAnomaly, Suppression, WatchedWorkload
from aiops.wire import folders
from conftest import Api
from mlp.tests.page_world import visible_text, visitor
from opnilog import learned_sessions
from opnilog.store import Versions

from .test_sessions import TEXTS, USUAL, moment, send, serve, shop  # noqa: F401 (shop is a fixture)

pytestmark = pytest.mark.django_db(transaction=True)

SHORT = USUAL[:3]
FAILED = (*USUAL[:3], "fail", "close")
PAGE = "/aiops/workload?namespace=alice&deployment=shop"


@pytest.fixture
def led(alice, make_user):
    """Return the calls of a user who administers alice's tenant, and so sees her lines."""
    carol = make_user("carol")
    members.put(tenant="default", user="carol", role="admin", by="test")
    return Api(token_of(carol))


def listed(api) -> list[str]:
    rows = api.call("get", "aiops/session_anomalies?deployment=shop").json()
    return sorted((row["value"] for row in rows), reverse=True)


def mark(api, value: str, **fields) -> dict:
    row = SessionAnomaly.objects.get(value=value)
    return api.call("post", "aiops/suppressions", {"session": row.pk, **fields}).json()


def test_sessions_of_a_marked_shape_are_not_reported_again(shop, as_alice):  # noqa: F811
    send(10, "req-1", SHORT)
    send(20, "req-2", SHORT)
    send(30, "req-3", FAILED)
    shop.advance(moment(300))
    assert listed(as_alice) == ["req-3", "req-2", "req-1"]
    mark(as_alice, "req-1")
    assert listed(as_alice) == ["req-3"], "the same shape"
    send(310, "req-4", SHORT)
    send(320, "req-5", FAILED)
    send(330, "req-6", USUAL[:2])
    shop.advance(moment(700))
    assert listed(as_alice) == ["req-6", "req-5", "req-3"]


def test_the_order_and_the_number_of_lines_belong_to_the_shape(shop, as_alice):  # noqa: F811
    send(10, "req-1", ("open", "read", *["write"] * 9, "close"))
    shop.advance(moment(300))
    mark(as_alice, "req-1")
    send(310, "req-2", ("open", *["write"] * 9, "read", "close"))
    send(330, "req-3", ("close", "read", *["write"] * 9, "open"))
    send(350, "req-4", ("open", "read", *["write"] * 30, "close"))
    send(390, "req-5", ("open", "read", *["write"] * 9, "close"))
    shop.advance(moment(800))
    shown = listed(as_alice)
    assert "req-5" not in shown
    assert {"req-3", "req-4"} <= set(shown)


def test_a_new_line_with_other_values_is_of_the_same_shape(shop, as_alice, monkeypatch):  # noqa: F811
    monkeypatch.setitem(TEXTS, "odd", "{0} gave up on the remote disk of alpha")
    send(10, "req-1", (*SHORT, "odd", "close"))
    shop.advance(moment(300))
    mark(as_alice, "req-1")
    monkeypatch.setitem(TEXTS, "odd", "{0} gave up on the remote disk of omega")
    send(310, "req-2", (*SHORT, "odd", "close"))
    monkeypatch.setitem(TEXTS, "odd", "{0} lost all it had ever stored there today")
    send(330, "req-3", (*SHORT, "odd", "close"))
    shop.advance(moment(700))
    assert listed(as_alice) == ["req-3"]


@pytest.mark.parametrize("what", ["restart", "retraining", "read again", "watched again"])
def test_it_holds_after(shop, as_alice, alice, what):  # noqa: F811
    send(10, "req-1", FAILED)
    send(20, "req-2", SHORT)
    shop.advance(moment(300))
    mark(as_alice, "req-1")
    judge = shop
    if what == "restart":
        judge = Judge()
    elif what == "retraining":
        _learn_other_numbers()
    elif what == "watched again":
        WatchedWorkload.objects.all().delete()
        judge.advance(moment(310))
        WatchedWorkload.objects.create(namespace="alice", deployment="shop", by=alice)
    else:
        hours = 2 * 3600
        for minute in range(3):
            judge.advance(moment(hours + 60 * minute))
        send(40, "req-7", FAILED)
        send(50, "req-8", SHORT)
        for minute in range(3, 9):
            judge.advance(moment(hours + 65 * minute))
        assert listed(as_alice) == ["req-8", "req-2"]
        return
    send(400, "req-3", FAILED)
    send(410, "req-4", SHORT)
    judge.advance(moment(800))
    assert listed(as_alice) == ["req-4", "req-2"]


def _learn_other_numbers() -> None:
    """Let a version serve that has learned another template as well, so that all have other numbers."""
    folder = Versions(folders.models()).folder_of("v000001")
    state = json.loads((folder / learned_sessions.FILE).read_text())
    (workload,) = state["workloads"].values()
    workload["templates"] = [["first", "of", "all"], *workload["templates"]]
    sessions = workload["sessions"]
    sessions["known"] = [[[event + 1, times] for event, times in row] for row in sessions["known"]]
    sessions["optional"] = [[event + 1, *span] for event, *span in sessions["optional"]]
    sessions["ordered"] = [[first + 1, second + 1] for first, second in sessions["ordered"]]
    workload["ends"] = [event + 1 for event in workload["ends"]]
    serve("local/alice/shop")
    versions = Versions(folders.models())
    (versions.folder_of(versions.serving()) / learned_sessions.FILE).write_text(json.dumps(state))


def test_undone_it_is_listed_and_reported_again(shop, as_alice):  # noqa: F811
    send(10, "req-1", SHORT)
    shop.advance(moment(300))
    made = mark(as_alice, "req-1")
    shop.advance(moment(310))
    as_alice.call("delete", f"aiops/suppressions/{made['id']}")
    assert listed(as_alice) == ["req-1"]
    send(320, "req-2", SHORT)
    shop.advance(moment(700))
    assert listed(as_alice) == ["req-2", "req-1"]
    assert as_alice.refused("delete", f"aiops/suppressions/{made['id']}") == "suppression: no such suppression"


def test_what_was_found_at_the_same_moment_is_not_listed_for_long(shop, as_alice):  # noqa: F811
    """A judge that has not read the suppression yet."""
    send(10, "req-1", SHORT)
    shop.advance(moment(300))
    mark(as_alice, "req-1")
    SessionAnomaly.objects.update(suppression=None)
    shop.advance(moment(310))
    assert listed(as_alice) == []


def test_it_is_listed_with_who_when_and_why(shop, as_alice, as_bob):  # noqa: F811
    send(10, "req-1", SHORT)
    shop.advance(moment(300))
    before = timezone.now()
    made = mark(as_alice, "req-1", note="a client that keeps its connection")
    assert (made["kind"], made["workload"], made["value"], made["by"]) == (
        "session", "local/alice/shop", "req-1", "alice",
    )  # fmt: skip
    assert made["note"] == "a client that keeps its connection"
    assert made["reasons"][0]["msg"].startswith("missing: “request")
    assert before.isoformat()[:13] == made["at"][:13]
    assert as_alice.call("get", "aiops/suppressions?deployment=shop").json() == [made]
    assert as_alice.call("get", f"aiops/suppressions/{made['id']}").json() == made
    assert as_alice.call("get", "aiops/suppressions?deployment=other").json() == []
    assert as_bob.call("get", "aiops/suppressions").json() == []
    assert as_bob.refused("get", f"aiops/suppressions/{made['id']}") == "suppression: no such suppression"


def test_marking_twice_is_marking_once(shop, as_alice):  # noqa: F811
    send(10, "req-1", SHORT)
    shop.advance(moment(300))
    assert mark(as_alice, "req-1") == mark(as_alice, "req-1", note="again")
    assert Suppression.objects.count() == 1


def test_only_owners_and_administrators_mark(shop, as_alice, as_bob, as_staff, alice, led):  # noqa: F811
    send(10, "req-1", SHORT)
    shop.advance(moment(300))
    row = {"session": SessionAnomaly.objects.get().pk}
    assert as_bob.refused("post", "aiops/suppressions", row) == "unusual session: no such unusual session"
    assert led.refused("post", "aiops/suppressions", row) == (
        "only the owner of the namespace and administrators can mark what is normal"
    )
    made = as_staff.call("post", "aiops/suppressions", row).json()
    assert "only the owner" in led.refused("delete", f"aiops/suppressions/{made['id']}")
    as_alice.call("delete", f"aiops/suppressions/{made['id']}")
    assert not Suppression.objects.exists()


def test_there_is_room_for_so_many_in_a_workload(shop, as_alice, monkeypatch):  # noqa: F811
    monkeypatch.setattr(suppressions, "MAX_OF_A_WORKLOAD", 1)
    send(10, "req-1", SHORT)
    send(20, "req-2", FAILED)
    shop.advance(moment(300))
    mark(as_alice, "req-1")
    row = {"session": SessionAnomaly.objects.get(value="req-2").pk}
    assert as_alice.refused("post", "aiops/suppressions", row) == "at most 1 suppression of a workload"


@pytest.mark.parametrize(("body", "says"), [
    ({}, "session: must be either a session or a rate"),
    ({"session": 1, "rate": 1}, "session: must be either a session or a rate"),
    ({"session": 1, "note": "a\nb"}, "note: must be printable text"),
    ({"session": 999}, "unusual session: no such unusual session"),
    ({"rate": 999}, "unusual rate: no such unusual rate"),
])  # fmt: skip
def test_wrong_calls_are_refused(as_alice, body, says):
    assert as_alice.refused("post", "aiops/suppressions", body) == says


def test_a_session_of_an_earlier_release_cannot_be_marked(shop, as_alice):  # noqa: F811
    send(10, "req-1", SHORT)
    shop.advance(moment(300))
    SessionAnomaly.objects.update(shape=[])
    row = {"session": SessionAnomaly.objects.get().pk}
    assert as_alice.refused("post", "aiops/suppressions", row).startswith("session: cannot be marked: it was found")


def test_marked_sessions_fire_no_rule(shop, alice, as_alice):  # noqa: F811
    now = timezone.now()
    AlertRule.objects.create(
        name="r", kind="session", owner=alice, created=now, checked=now, threshold=1, namespace="alice",
        cluster="local", quiet_s=0,
    )  # fmt: skip
    send(10, "req-1", SHORT)
    shop.advance(moment(300))
    mark(as_alice, "req-1")
    send(310, "req-2", SHORT)
    shop.advance(moment(700))
    alerts.check(timezone.now())
    assert not Alert.objects.exists()


def test_with_the_lines_the_suppressions_are_removed(shop, as_alice):  # noqa: F811
    send(10, "req-1", SHORT)
    shop.advance(moment(300))
    mark(as_alice, "req-1")
    forget_log("jobs", "alice", "shop")
    assert not Suppression.objects.exists()


def test_who_marked_may_be_gone(shop, as_alice, as_staff):  # noqa: F811
    send(10, "req-1", SHORT)
    shop.advance(moment(300))
    mark(as_staff, "req-1")
    Suppression.objects.update(by=None)
    assert [row["by"] for row in as_alice.call("get", "aiops/suppressions").json()] == [""]


def test_the_page_marks_and_undoes(shop, alice, bob):  # noqa: F811
    send(10, "req-1", SHORT)
    send(20, "req-2", FAILED)
    shop.advance(moment(300))
    browser = visitor(alice)
    assert "Mark as normal" in visible_text(browser.get(PAGE))
    row = SessionAnomaly.objects.get(value="req-1")
    given = {"do": f"session:{row.pk}", "note": "as it should be", "next": PAGE}
    assert visitor(bob).post("/aiops/suppress", given).status_code == 302
    assert not Suppression.objects.exists()
    answer = browser.post("/aiops/suppress", given)
    assert (answer.status_code, answer["Location"]) == (302, PAGE)
    shown = visible_text(browser.get(PAGE))
    for piece in ("no longer reported", "Marked as normal", "sessions like req-1", "as it should be", "Report again"):
        assert piece in shown
    assert "q=%22req-1%22" not in browser.get(PAGE).content.decode()
    browser.post("/aiops/suppress", {"do": f"undo:{Suppression.objects.get().pk}", "next": PAGE})
    assert "q=%22req-1%22" in browser.get(PAGE).content.decode()
    for wrong in ("", "session:", "session:x", "undo:999", "other:1", "session:999999999999999999999"):
        assert browser.post("/aiops/suppress", {"do": wrong, "next": PAGE}).status_code == 302
    assert browser.post("/aiops/suppress", {"do": "undo:1", "next": "//evil.example"})["Location"] == "/aiops/watched"


def test_a_session_that_goes_on_after_it_was_marked_is_judged_anew(shop, as_alice, monkeypatch):  # noqa: F811
    monkeypatch.setattr("aiops.judging.sessions.LOOK_MS", 0)
    send(10, "req-1", SHORT)
    shop.advance(moment(300))
    mark(as_alice, "req-1")
    hours = 2 * 3600
    for minute in range(-2, 1):
        shop.advance(moment(hours + 65 * minute))
    send(13, "req-1", ("fail",))
    for minute in range(1, 9):
        shop.advance(moment(hours + 65 * minute))
    assert listed(as_alice) == ["req-1"]
