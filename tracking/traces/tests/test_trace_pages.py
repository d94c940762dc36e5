"""The pages and REST calls of traces: what they show, who reads them, what is deleted and when."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.utils import timezone

from accounts import lifecycle as accounts
from conftest import Api
from jobs import trash as jobs_trash
from jobs.models import Assessment, Project, Span, Trace
from mlp.tests.page_world import EVIL, visitor
from tracking.mlflow.tests.test_shared import share
from tracking.runs import projects

from .. import retention, rows, waterfall
from .conftest import TRACE, span

pytestmark = pytest.mark.django_db

CHAT = {
    "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-x", "gen_ai.usage.input_tokens": 7,
    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": f"why {EVIL}"}]}]),
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "即使 so"}]}]),
}  # fmt: skip


@pytest.fixture
def vision(alice):
    return Project.objects.create(user=alice, name="vision")


@pytest.fixture
def sent(sender, vision):
    """A trace of three spans in the project vision, with a message of hostile HTML."""
    sender.spans(
        span(1, lasted=2, name="answer"), span(2, 1, begin=0.5, name="chat", attributes=CHAT),
        span(9, 8, begin=1, name="late", lasted=None), HTTP_X_MLFLOW_EXPERIMENT_ID=str(vision.pk),
    )  # fmt: skip
    return Trace.objects.get()


def page(client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return answer.content.decode()


def test_the_list_and_the_page_show_a_trace(alice, sent, monkeypatch):
    client = visitor(alice)
    shown = page(client, "/traces?project=vision")
    for text in ("answer", "2.00 s", "unknown", "gpt-x", f"/traces/{TRACE}"):
        assert text in shown, text
    assert "No trace matches." in page(client, "/traces?status=error")
    for query in ("ANSWER", "why", "即使", f"tr-{TRACE}", "x onerror", "gen_ai.request.model"):
        assert f"/traces/{TRACE}" in page(client, f"/traces?q={query}"), query
    monkeypatch.setattr(rows, "SEARCHED", 0)  # of older traces only what stands in the list is searched
    assert f"/traces/{TRACE}" not in page(client, "/traces?q=gen_ai.request.model")
    assert f"/traces/{TRACE}" in page(client, "/traces?q=ANSWER")
    for query in ("nothing here", "%", "_nswer"):
        assert f"/traces/{TRACE}" not in page(client, f"/traces?q={query}"), query
    whole = page(client, f"/traces/tr-{TRACE}")
    assert EVIL not in whole
    for text in ("why &quot;", "即使 so", "1.00 s", "parent not received", "CHAT_MODEL", "in progress"):
        assert text in whole or text == "in progress", text
    assert "gen_ai.request.model" not in page(client, f"/traces/{TRACE}?span={1:016x}")
    assert "late" in page(client, f"/traces/{TRACE}?span={9:016x}")
    assert page(client, f"/traces/{TRACE}?span=nothing")
    assert client.get("/traces/" + "f" * 32).status_code == 404
    assert client.get("/traces?project=none").status_code == 404


def test_feedback_is_given_on_the_page_and_removed(alice, bob, sent):
    client = visitor(alice)
    said = {"do": "feedback", "value": "0", "rationale": EVIL}
    assert client.post(f"/traces/{TRACE}/change", said).status_code == 302
    row = Assessment.objects.get()
    assert (row.value, row.source, row.rationale) == (False, "alice", EVIL)
    shown = page(client, f"/traces/{TRACE}")
    assert EVIL not in shown
    assert "false" in shown
    assert visitor(bob).post(f"/traces/{TRACE}/change", said).status_code == 404
    assert client.post(f"/traces/{TRACE}/change", {"do": "remove", "key": row.key}).status_code == 302
    assert not Assessment.objects.exists()
    assert client.post(f"/traces/{TRACE}/change", {"do": "delete"}).headers["Location"] == "/traces?project=vision"
    assert (Trace.objects.count(), Span.objects.count()) == (0, 0)


def test_who_reads_the_project_reads_its_traces_and_changes_none(bob, sent, vision):
    client, api = visitor(bob), Api(accounts.token_of(bob))
    places = (f"/u/alice/traces/{TRACE}", "/u/alice/traces?project=vision")
    rest = [f"users/alice/traces/{TRACE}{rest}" for rest in ("", "/spans", "/feedback")]
    assert {client.get(place).status_code for place in places} == {404}
    assert {api.call("get", place).status_code for place in rest} == {403}
    share(vision, bob)
    assert "answer" in page(client, places[0])
    assert "answer" in page(client, places[1])
    assert "Delete" not in page(client, places[0]).split("<main", 1)[1]
    assert client.get(f"/traces/{TRACE}").headers["Location"] == places[0]
    assert {api.call("get", place).status_code for place in rest} == {200}
    assert api.call("delete", rest[0]).status_code == 403
    assert api.call("post", rest[2], {"name": "good", "value": True}).status_code == 403
    assert api.call("get", "users/alice/traces").status_code == 403
    assert client.get("/u/alice/traces").status_code == 404


def test_the_traces_of_a_run_have_its_evaluation(alice, sent):
    """As mlflow.genai.evaluate leaves them."""
    Trace.objects.update(metadata={"mlflow.sourceRun": "a" * 32})
    Assessment.objects.create(user=alice, trace=sent, name="exact", value=False)
    Assessment.objects.create(user=alice, trace=sent, name="old", value=True, valid=False)
    shown = page(visitor(alice), f"/traces?run={'a' * 32}")
    assert "exact <code>false</code>" in shown
    assert "old <code>" not in shown
    assert "No trace matches." in page(visitor(alice), f"/traces?run={'b' * 32}")
    api = Api(accounts.token_of(alice))
    assert len(api.call("get", f"users/alice/traces?run={'a' * 32}").json()) == 1
    assert api.call("get", f"users/alice/traces?run={'b' * 32}").json() == []


def test_rest_lists_shows_and_deletes(alice, sent, monkeypatch):
    api = Api(accounts.token_of(alice))
    [row] = api.call("get", "users/alice/traces?project=vision&status=ok&q=why").json()
    assert (row["id"], row["spans"], row["input_tokens"], row["cost"]) == (f"tr-{TRACE}", 3, 7, None)
    assert api.call("get", "users/alice/traces?status=bad").status_code == 403
    assert api.call("get", f"users/alice/traces/{TRACE}").json() == row
    spans = api.call("get", f"users/alice/traces/tr-{TRACE}/spans?limit=1").json()
    assert [one["name"] for one in spans] == ["late"]
    place = f"users/alice/traces/{TRACE}/feedback"
    made = api.call("post", place, {"name": "good", "value": 0.5}).json()
    assert (made["value"], made["source"]) == (0.5, "alice")
    for wrong in ({"name": "good"}, {"name": "good", "value": [1]}, {"name": "", "value": 1}):
        assert api.call("post", place, wrong).status_code == 403
    assert len(api.call("get", place).json()) == 1
    monkeypatch.setattr(rows, "MAX_ANSWER", 100)
    assert "ask for fewer" in api.call("get", f"users/alice/traces/{TRACE}/spans").json()["msg"]
    assert api.call("get", f"users/alice/traces/{TRACE}/spans?limit=1").status_code == 200
    assert api.call("delete", f"{place}/{made['id']}").status_code == 200
    assert api.call("delete", f"users/alice/traces/{TRACE}").status_code == 200
    assert api.call("get", f"users/alice/traces/{TRACE}").status_code == 403
    assert not Span.objects.exists()


def test_traces_go_to_the_trash_with_their_project_and_are_deleted_with_it(alice, sent, vision, settings):
    client, now = visitor(alice), timezone.now()
    projects.delete(alice, vision.pk, "alice")
    assert client.get(f"/traces/{TRACE}").status_code == 404
    assert f"/traces/{TRACE}" not in page(client, "/traces")
    retention.run(now)
    jobs_trash.purge()
    projects.restore(alice, vision.pk, "alice")
    assert "answer" in page(client, f"/traces/{TRACE}")
    projects.delete(alice, vision.pk, "alice")
    Project.objects.filter(pk=vision.pk).update(trashed=now - timedelta(days=settings.TRASH_DAYS + 1))
    jobs_trash.purge()
    assert Project.objects.filter(pk=vision.pk).exists()  # as long as it has traces
    retention.run(now)
    jobs_trash.purge()
    assert (Trace.objects.count(), Span.objects.count()) == (0, 0)
    assert not Project.objects.filter(pk=vision.pk).exists()


def test_old_traces_are_deleted_by_the_time_at_which_they_came(sent, settings):
    now = timezone.now()
    Trace.objects.update(created=now - timedelta(days=3))
    retention.run(now)
    assert Trace.objects.exists()
    settings.TRACE_DAYS = 4
    retention.run(now)
    assert Trace.objects.exists()
    settings.TRACE_DAYS = 2
    retention.run(now)
    assert not Trace.objects.exists()


def test_a_waterfall_has_each_span_once_within_its_bounds():
    def made(key: str, parent: str = "", begin: int = 0, end: int | None = 10) -> Span:
        return Span(key=key, parent=parent, name=key, started_ns=begin, ended_ns=end)

    spans = [
        made("a", end=100), made("b", "a", 50, 60), made("c", "a", 10, None), made("d", "b", 55, 56),
        made("e", "gone", 5), made("f", "g", 1), made("g", "f", 2), made("h", "h", 3),
        made("i", begin=0, end=0),
    ]  # fmt: skip
    rows = waterfall.rows(spans)
    assert [row.span.key for row in rows] == ["a", "b", "d", "c", "e", "i", "f", "g", "h"]
    assert {row.span.key: row.depth for row in rows if row.depth} == {"b": 1, "c": 1, "d": 2, "g": 1}
    assert [row.span.key for row in rows if row.is_orphan] == ["e"]
    for row in rows:
        assert 0 <= row.x <= row.x + row.width <= waterfall.WIDTH + 0.01
    assert waterfall.rows([]) == []
    assert waterfall.rows([made("a", begin=5, end=5)])[0].width > 0
