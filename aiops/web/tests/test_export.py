"""Export of a search, filters by severity, trace and attributes, and lines that nobody watches."""

from __future__ import annotations

import csv
import io
import json
import time

import pytest

from accounts.models import User
from accounts.tenancy import members
from aiops import logstore
from aiops.intake import accept
from aiops.models import WatchedWorkload
from aiops.web import export
from aiops.wire import kv
from kernel.errors import Fault
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db(transaction=True)

NOW = int(time.time() * 1000)
TRACE = "5b8efff798038103d269b633813fc60c"
EVIL = ["=1+1", "+1+1", "-1+1", "＝1", "@SUM(A1)", "  =1+1", "\t=1"]


def content(response) -> str:
    assert response.status_code == 200, response.content
    return b"".join(response.streaming_content).decode()


def store(*texts: str, namespace: str = "alice", **fields) -> list[dict]:
    stored = [
        accept.line(text, namespace=namespace, deployment="web", at_ms=NOW - number * 1000, **fields)
        for number, text in enumerate(texts)
    ]
    logstore.get().append(stored)
    return stored


@pytest.fixture
def lines() -> None:
    store("disk gone", attributes={"severity": "ERROR", "trace_id": TRACE, "span_id": "eee19b7ec3c1b174", "team": "a"})
    store("slow", attributes={"level": "Warn", "trace_id": TRACE})
    store("good", attributes={"severity": "9", "team": "b"})
    store("plain")
    store("secret of bob", namespace="bob", attributes={"severity": "ERROR", "trace_id": TRACE})


def test_an_export_has_the_own_lines_that_match(as_alice, as_bob, lines):
    rows = [json.loads(line) for line in content(as_alice.call("get", "aiops/logs:export?severity=error")).splitlines()]
    assert [(row["log"], row["attributes"]["team"]) for row in rows] == [("disk gone", "a")]
    everything = content(as_alice.call("get", "aiops/logs:export"))
    assert len(everything.splitlines()) == 4
    assert "secret" not in everything
    for address in ("namespace=alice", f"trace={TRACE}&namespace=alice", "q=disk"):
        assert content(as_bob.call("get", f"aiops/logs:export?{address}")) == ""
        assert content(visitor(User.objects.get(username="bob")).get(f"/aiops/export?format=ndjson&{address}")) == ""


def test_as_csv_no_cell_is_a_formula(as_alice):
    store(*EVIL, 'a "quoted", line\nof two', attributes={"severity": "=cmd()", "trace_id": "@x"})
    response = as_alice.call("get", "aiops/logs:export?format=csv")
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert "attachment" in response["Content-Disposition"]
    text = content(response)
    assert text.startswith("\ufeff")  # by which Excel knows UTF-8
    rows = list(csv.reader(io.StringIO(text[1:])))
    assert tuple(rows[0]) == export.COLUMNS
    assert len(rows) == len(EVIL) + 2
    for row in rows[1:]:
        assert not any(cell.strip(" ").startswith(("=", "+", "-", "@", "＝", "\t")) for cell in row), row
    texts = {row[export.COLUMNS.index("line")] for row in rows[1:]}
    assert {"'=1+1", "'-1+1", "'＝1", "'\t=1", 'a "quoted", line\nof two'} <= texts


def test_the_newest_lines_are_exported_page_by_page_up_to_the_limit(as_alice, settings, monkeypatch):
    monkeypatch.setattr(export, "PAGE", 3)
    settings.AIOPS_EXPORT_LINES = 8
    store(*(f"line {number}" for number in range(10)))
    response = as_alice.call("get", "aiops/logs:export")
    assert response["X-Line-Limit"] == "8"
    texts = [json.loads(line)["log"] for line in content(response).splitlines()]
    assert texts == [f"line {number}" for number in range(8)]


def test_a_right_that_is_lost_ends_an_export(as_alice, bob, monkeypatch):
    monkeypatch.setattr(export, "PAGE", 2)
    members.put(tenant="default", user="alice", role="admin", by="test")
    store(*(f"line {number}" for number in range(6)), namespace="bob")
    response = as_alice.call("get", "aiops/logs:export")
    stream = response.streaming_content
    assert next(stream).count(b"\n") == 2
    members.put(tenant="default", user="alice", role="member", by="test")
    assert b"".join(stream) == b""


def test_wrong_filters_and_a_store_that_is_away_are_answered(as_alice, alice, monkeypatch):
    assert as_alice.refused("get", "aiops/logs:export?format=xml").startswith("format")
    assert as_alice.refused("get", "aiops/logs:export?level=odd").startswith("level")
    assert as_alice.refused("get", "aiops/logs:export?attribute==x").startswith("attribute")
    assert visitor(alice).get("/aiops/export?level=odd").status_code == 403

    def away():
        raise Fault("the log store does not answer")

    monkeypatch.setattr(logstore, "get", away)
    assert as_alice.call("get", "aiops/logs:export").status_code == 503
    assert visitor(alice).get("/aiops/export").status_code == 503


@pytest.mark.parametrize(
    ("address", "shown"),
    few(
        [
            ("severity=error", {"disk gone"}),
            ("severity=warning", {"slow"}),
            ("severity=info", {"good"}),
            ("severity=ERROR", {"disk gone"}),
            (f"trace={TRACE}", {"disk gone", "slow"}),
            ("span=eee19b7ec3c1b174", {"disk gone"}),
            ("attribute=team", {"disk gone", "good"}),
            ("attribute=team%3Db", {"good"}),
            ("attribute=team%3Dc", set()),
        ],
        3,
    ),
)
def test_filters_on_what_the_sender_said(lines, as_alice, alice, address, shown):
    assert {row["log"] for row in as_alice.call("get", f"aiops/logs?{address}").json()} == shown
    text = visible_text(visitor(alice).get(f"/aiops?{address}"))
    assert {word for word in ("disk gone", "slow", "good", "plain", "secret of bob") if word in text} == shown


def test_the_page_of_a_line_leads_to_its_trace(alice, as_alice, lines):
    page = visitor(alice)
    (row,) = as_alice.call("get", "aiops/logs?q=disk").json()
    shown = page.get(f"/aiops/line?id={row['_id']}").content.decode()
    assert f'href="/aiops?trace={TRACE}&amp;hours=168"' in shown
    assert 'href="/aiops?attribute=team=a&amp;hours=168"' in shown
    text = visible_text(page.get(f"/aiops?trace={TRACE}&hours=168"))
    assert "disk gone" in text
    assert "slow" in text
    assert "plain" not in text


def test_lines_that_nobody_watches_are_shown_as_such(alice, lines):
    kv.ensure()
    page = visitor(alice)
    assert "not watched" in visible_text(page.get("/aiops?q=disk"))
    WatchedWorkload.objects.create(namespace="alice", deployment="web")
    text = visible_text(page.get("/aiops?q=disk"))
    assert "not judged yet" in text
    assert "not watched" not in text.split("Live tail")[-1].split("disk gone")[0]


def test_the_chart_can_be_zoomed_out_and_exported(alice, lines):
    shown = visitor(alice).get("/aiops?q=disk&since=1000000&until=1600000").content.decode()
    assert "since=700000&amp;until=1900000" in shown
    assert "/aiops/export?q=disk" in shown
