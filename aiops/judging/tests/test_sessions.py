"""Unusual sessions: found once, with reasons and their lines, also after a restart; none among usual ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cache

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.http import urlencode

from accounts.models import Notice
from aiops import logstore
from aiops.intake.forgetting import forget_log
from aiops.judging import alerts, sessions
from aiops.judging.sessions import Judge
from aiops.models import Alert, AlertRule, SessionAnomaly, SessionClock, WatchedWorkload
from aiops.services.sessions import Sessions
from aiops.wire import folders
from kernel.errors import Fault
from mlp.tests.page_world import visible_text, visitor
from opnilog import learned_sessions
from opnilog.store import NEEDED, Versions

pytestmark = pytest.mark.django_db(transaction=True)

QUIET = 60  # seconds
BASE = int(timezone.now().timestamp()) // 60 * 60 - 3 * 3600  # the second at which a test begins
TEXTS = {
    "open": "request {0} opened by 10.0.0.7",
    "read": "{0} reads row 17",
    "write": "disk wrote 4096 bytes for {0}",
    "close": "request {0} closed after 5 ms",
    "fail": "{0} failed to write",
}
USUAL = ("open", "read", "write", "close")
WORKLOAD = {"cluster_id": "local", "namespace_name": "alice", "deployment": "shop"}


def lines(begin: int, id: str, events: tuple[str, ...], **fields) -> list[dict]:
    """Return a session's lines, one each second."""
    return [
        {
            "_id": f"{id}-{begin}-{place}", "time": (BASE + begin + place) * 1000, "log": TEXTS[event].format(id),
            "log_type": "workload", **WORKLOAD, **fields,
        }
        for place, event in enumerate(events)
    ]  # fmt: skip


def send(begin: int, id: str, events: tuple[str, ...] = USUAL, **fields) -> None:
    logstore.get().append(lines(begin, id, events, **fields))


def moment(second: int) -> datetime:
    """Return the moment at which the lines of that second, counted from BASE, are settled."""
    return datetime.fromtimestamp(BASE + second + sessions.SETTLED_MS / 1000, UTC)


@cache
def learned_from(workloads: tuple[str, ...], attribute: str, quiet: int) -> str:
    """Return what was learned from 400 usual sessions of each workload."""
    rows = []
    for workload in workloads:
        for count in range(400):
            for line in lines(-9000 + count, f"req-{count}", USUAL):
                row = {"workload": workload, "time": line["time"], "log": line["log"]}
                if attribute:
                    row |= {"log": row["log"].replace(f"req-{count}", "it"), "attributes": {attribute: f"t{count}"}}
                rows.append(row)
    rows.sort(key=lambda row: (row["workload"], row["time"]))
    learned = learned_sessions.learn(rows, quiet * 1000)
    assert set(learned["workloads"]) == set(workloads)
    return json.dumps(learned)


def serve(*workloads: str, attribute: str = "", quiet: int = QUIET) -> None:
    """Let a model version serve that has learned the sessions of the workloads."""
    folder = folders.folder() / "trained"
    folder.mkdir(parents=True, exist_ok=True)
    for name in NEEDED:
        (folder / name).write_text("{}")
    (folder / learned_sessions.FILE).write_text(learned_from(workloads, attribute, quiet))
    versions = Versions(folders.models())
    versions.serve(versions.add(folder))


@pytest.fixture
def shop(alice):
    """Return the judge of a watched workload whose sessions are known."""
    WatchedWorkload.objects.create(namespace="alice", deployment="shop", by=alice)
    serve("local/alice/shop")
    return Judge()


def found() -> list[tuple[str, list[str]]]:
    return [
        (session.value, [reason[0] for reason in session.reasons])
        for session in SessionAnomaly.objects.order_by("since")
    ]


def test_session_anomalies_are_found_with_their_reasons(shop):
    for count in range(30):
        send(count, f"req-{500 + count}")
    send(10, "req-1", ("open", "read", "write"))
    send(11, "req-2", (*USUAL[:3], "fail", "close"))
    send(12, "req-3", ("open", "read", *["write"] * 9, "close"))
    send(13, "req-4", ("close", "read", "write", "open"))
    shop.advance(moment(300))
    assert found() == [
        ("req-1", ["missing"]),
        ("req-2", ["extra"]),
        ("req-3", ["often"]),
        ("req-4", ["order", "order", "order"]),
    ]
    missing, _, often, order = SessionAnomaly.objects.order_by("since")
    assert missing.reasons == [["missing", "request <token_with_digit> closed after <num> ms", 0, 1]]
    assert often.reasons[0][2:] == [9, 1]
    assert order.reasons[0][1].startswith("request <token_with_digit> opened")
    assert (missing.since, missing.last, missing.lines) == ((BASE + 10) * 1000, (BASE + 12) * 1000, 3)


def test_a_session_is_judged_when_it_has_been_quiet_in_the_time_of_the_log(shop):
    send(10, "req-1", USUAL[:3])
    shop.advance(moment(40))
    shop.advance(moment(12 + QUIET))
    assert found() == [], "more lines may come"
    shop.advance(moment(14 + QUIET))
    assert found() == [("req-1", ["missing"])]


def test_an_id_that_is_used_again_is_another_session(shop, monkeypatch):
    monkeypatch.setattr(sessions, "CONFIRMED", 0)
    serve("local/alice/shop", quiet=15)
    send(0, "req-1", USUAL[:3])
    send(22, "req-1")
    send(45, "req-1")
    shop.advance(moment(300))
    assert found() == [("req-1", ["missing"])]


def test_the_event_that_ends_sessions_ends_one_at_once(shop):
    send(10, "req-2", (*USUAL[:3], "fail", "close"))
    shop.advance(moment(25))
    assert found() == [("req-2", ["extra"])]


def test_a_session_over_many_looks_is_one(shop):
    for second, event in ((0, "open"), (50, "read"), (100, "write"), (150, "close")):
        send(second, "req-7", (event,))
        shop.advance(moment(second + 20))
    shop.advance(moment(500))
    assert found() == []
    assert SessionClock.objects.get().since == SessionClock.objects.get().until


def test_lines_that_come_late_or_again_make_no_session_odd(shop):
    send(10, "req-1", ("open", "read", "write"))
    shop.advance(moment(60))
    send(13, "req-1", ("close",))
    send(10, "req-1", ("open", "read", "write"))
    shop.advance(moment(300))
    shop.advance(moment(300))
    assert found() == []


def test_a_late_line_after_an_odd_session_was_found_changes_nothing(shop):
    send(10, "req-1", ("open", "read"))
    shop.advance(moment(300))
    send(310, "req-1", ("close",))
    shop.advance(moment(600))
    assert found() == [("req-1", ["missing", "missing"]), ("req-1", ["missing", "missing", "missing"])]


def test_a_log_that_is_sent_later_is_judged_once_it_is_complete(shop):
    hours = 2 * 3600 + 1800
    send(hours - 10, "req-9", USUAL[:2])
    for minute in range(3):
        shop.advance(moment(hours + 60 * minute))
    for id, events in (("req-1", USUAL[:3]), ("req-2", USUAL), ("req-3", USUAL[:2])):
        send(10, id, events)
        shop.advance(moment(hours + 200 + 65 * int(id[-1])))
    assert [value for value, _reasons in found()] == ["req-9"], "more may come"
    for minute in range(8, 12):
        shop.advance(moment(hours + 60 * minute))
    assert [value for value, _reasons in found()] == ["req-1", "req-3", "req-9"]


@pytest.mark.parametrize("restart", [True, False])
def test_a_restarted_replica_goes_on_with_the_open_sessions(shop, restart):
    send(10, "req-1", ("open", "read"))
    send(11, "req-2", ("open", "read"))
    send(0, "req-3", USUAL[:2])
    shop.advance(moment(40))
    send(50, "req-1", ("write", "close"))
    send(50, "req-4")
    judge = Judge() if restart else shop
    judge.advance(moment(300))
    assert found() == [("req-3", ["missing", "missing"]), ("req-2", ["missing", "missing"])]
    Judge().advance(moment(330))
    assert SessionAnomaly.objects.count() == 2


def test_two_replicas_find_a_session_once(shop):
    other = Judge()
    for second in range(0, 300, 20):
        send(second, f"req-{second}", USUAL[: 4 - second % 3])
        for judge in (shop, other):
            judge.advance(moment(second))
    for judge in (other, shop, other):
        judge.advance(moment(400))
    values = [value for value, _reasons in found()]
    assert values == [f"req-{second}" for second in range(0, 300, 20) if second % 3]


def test_what_was_found_and_how_far_was_read_are_written_together(shop, monkeypatch):
    send(10, "req-1", ("open",))
    write = sessions._write

    def fail(*given) -> None:
        write(*given)
        raise Fault("the connection is lost")

    monkeypatch.setattr(sessions, "_write", fail)
    shop.advance(moment(300))
    assert found() == []
    monkeypatch.setattr(sessions, "_write", write)
    shop.advance(moment(301))
    assert [value for value, _reasons in found()] == ["req-1"]


def test_the_lines_of_the_last_day_are_read_first(shop):
    send(-20 * 3600, "req-1", ("open",))
    send(-2 * 24 * 3600, "req-2", ("open",))
    shop.advance(moment(0))
    assert [value for value, _reasons in found()] == ["req-1"]


def test_hours_without_lines_cost_few_queries_and_no_line_is_left_out(shop):
    for hour in (20, 13, 2):
        send(-hour * 3600 - 7, f"req-{hour}", ("open",))
        for count in range(30):
            send(-hour * 3600 + 10 * count, f"req-{hour}{100 + count}")
    send(-10 * 3600 - 1, "req-1", ("open", "read"))  # alone in eleven hours
    with CaptureQueriesContext(connection) as queries:
        shop.advance(moment(0))
    assert [value for value, _reasons in found()] == ["req-20", "req-13", "req-1", "req-2"]
    assert len(queries) < 400, "a day has 1,440 minutes"


def test_an_attribute_ties_lines_together(alice):
    WatchedWorkload.objects.create(namespace="alice", deployment="shop", by=alice)
    serve("local/alice/shop", attribute="trace_id")
    for trace, events in (("a1", USUAL), ("a2", USUAL[:2]), ("a3", USUAL)):
        send(10, trace, events, attributes={"trace_id": trace})
    for line in lines(20, "it", ("open",)):  # of no session
        logstore.get().append([line])
    logstore.get().append([{**line, "log": line["log"].replace("a9", "it")} for line in lines(5, "a9", ("read",))])
    Judge().advance(moment(300))
    assert [value for value, _reasons in found()] == ["a2"]
    assert SessionAnomaly.objects.get().attribute == "trace_id"


def test_there_is_room_for_so_many_open_sessions_only(shop, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_OPEN", 5)
    for count in range(20):
        send(count, f"req-{count}", ("open", "read"))
    shop.advance(moment(30))
    assert sum(len(reader.open) for reader in shop.readers.values()) == 5
    shop.advance(moment(300))
    assert [value for value, _reasons in found()] == [f"req-{count}" for count in range(15, 20)]


def test_of_many_session_anomalies_the_newest_are_kept(shop, monkeypatch):
    monkeypatch.setattr(sessions, "LEAST_KEPT", 3)
    for count in range(9):
        send(count, f"req-{count}", ("open", "read"))
    shop.advance(moment(300))
    assert [value for value, _reasons in found()] == ["req-6", "req-7", "req-8"]


def test_without_a_model_or_its_sessions_nothing_is_judged(alice):
    WatchedWorkload.objects.create(namespace="alice", deployment="shop", by=alice)
    send(10, "req-1", ("open",))
    judge = Judge()
    judge.advance(moment(300))
    serve("local/alice/other")
    judge.advance(moment(301))
    folder = Versions(folders.models()).folder_of("v000001")
    (folder / learned_sessions.FILE).write_text("damaged")
    Judge().advance(moment(302))
    assert not SessionClock.objects.exists()
    serve("local/alice/shop")
    judge.advance(moment(303))
    assert [value for value, _reasons in found()] == ["req-1"]


def test_an_unwatched_workload_is_forgotten(shop):
    send(10, "req-1", ("open",))
    shop.advance(moment(300))
    WatchedWorkload.objects.all().delete()
    shop.advance(moment(301))
    assert not SessionAnomaly.objects.exists()
    assert not SessionClock.objects.exists()


def test_the_sessions_of_removed_lines_are_removed(shop):
    send(10, "req-1", ("open",))
    shop.advance(moment(300))
    forget_log("jobs", "alice", "shop")
    assert not SessionAnomaly.objects.exists()
    shop.advance(moment(301))
    assert not SessionAnomaly.objects.exists()


def test_the_service_reads_while_it_is_active(shop):
    service = Sessions()
    try:
        send(10, "req-1", ("open",))
        service.read()
        assert [value for value, _reasons in found()] == ["req-1"]
    finally:
        service.stop()


def test_users_list_the_session_anomalies_of_their_own_workloads(shop, alice, as_alice, as_bob):
    send(10, "req-1", ("open", "read", "write"))
    send(20, "req-2", ("close", "read", "write", "open"))
    shop.advance(moment(300))
    second, first = as_alice.call("get", "aiops/session_anomalies?deployment=shop").json()
    assert (first["value"], first["workload"], first["lines"]) == ("req-1", "local/alice/shop", 3)
    assert first["reasons"][0] == {
        "kind": "missing", "template_matched": "request <token_with_digit> closed after <num> ms", "second": None,
        "lines": 0, "usual": 1,
        "msg": "missing: “request <token_with_digit> closed after <num> ms”, usually 1×",
    }  # fmt: skip
    assert second["reasons"][0]["msg"].startswith("out of order: “")
    rows = as_alice.call("get", f"aiops/logs?{urlencode(first['filters'])}").json()
    assert [row["log"] for row in rows] == [TEXTS[event].format("req-1") for event in ("write", "read", "open")]
    assert [session["value"] for session in as_alice.call("get", "aiops/session_anomalies?value=req-2").json()] == [
        "req-2"
    ]
    assert as_alice.call("get", "aiops/session_anomalies?deployment=other").json() == []
    assert as_bob.call("get", "aiops/session_anomalies").json() == []


def test_the_page_of_a_workload_shows_session_anomalies_with_a_link_to_their_lines(shop, alice, bob):
    send(10, "req-1", ("open", "read", "write"))
    shop.advance(moment(300))
    address = "/aiops/workload?namespace=alice&deployment=shop"
    page = visitor(alice).get(address)
    shown = visible_text(page)
    assert "req-1" in shown
    assert "missing: “request <token_with_digit> closed after <num> ms”, usually 1×" in shown
    assert "q=%22req-1%22" in page.content.decode()
    assert visitor(bob).get(address).status_code == 404
    SessionAnomaly.objects.all().delete()
    assert "No session of this workload was unusual" in visible_text(visitor(alice).get(address))
    SessionClock.objects.all().delete()
    assert "No training has found an id yet" in visible_text(visitor(alice).get(address))


def test_a_rule_notifies_of_unusual_sessions_once(shop, alice, bob):
    for name, fields in {"one": {"threshold": 1}, "many": {"threshold": 3}, "other": {"deployment": "other"}}.items():
        given = {"threshold": 1, "namespace": "alice", "cluster": "local", **fields}
        now = timezone.now()
        AlertRule.objects.create(name=name, kind="session", owner=alice, created=now, checked=now, quiet_s=0, **given)
    assert alerts.check(timezone.now()) == 0
    send(10, "req-1", ("open", "read", "write"))
    send(20, "req-2", ("open", "read", "write"))
    shop.advance(moment(300))
    for _ in range(2):
        AlertRule.objects.update(next_check=None)
        alerts.check(timezone.now())
    alert = Alert.objects.get()
    assert (alert.rule.name, alert.workload, alert.count) == ("one", "local/alice/shop", 2)
    assert alert.words.startswith("2 unusual sessions within 300 s, for example req-2: missing: “request")
    assert [sample["log"] for sample in alert.samples] == [TEXTS[event].format("req-2") for event in USUAL[2::-1]]
    assert alert.link == "/aiops/workload?cluster=local&namespace=alice&deployment=shop"
    assert visitor(alice).get(alert.link).status_code == 200
    assert Notice.objects.get(user=alice, kind="alert").reason.startswith("local/alice/shop: 2 unusual sessions")
    assert not Notice.objects.filter(user=bob).exists()
