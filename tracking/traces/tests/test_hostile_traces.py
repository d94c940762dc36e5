"""What would spoil a trace, a list or a process: enormous numbers, too many tags, large rows, odd calls and filters."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import Func, TextField, Value
from django.db.models.functions import Cast
from django.db.models.lookups import Exact
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from accounts import lifecycle as accounts
from conftest import Api
from jobs.models import Assessment, Span, Trace
from mlp.tests.page_world import visitor
from tracking.mlflow.tests.test_tracking import experiment

from .. import meaning, mlflow_search, recording, retention, rows, storable
from .conftest import TRACE, Sender, span
from .test_mlflow_calls import ID, found, info, report

pytestmark = pytest.mark.django_db

HUGE = "1" + "0" * 400


def test_a_cost_or_tokens_without_measure_are_unknown_and_cost_no_other_span(sender, mlflow, mlflow3, alice):
    """An answer of 503 would be sent again for ever, and an infinite sum is no JSON."""
    odd = [
        {"mlflow.llm.cost": f'{{"total_cost": {HUGE}}}'}, {"gen_ai.usage.cost": HUGE}, {"gen_ai.usage.cost": 1e308},
        {"gen_ai.usage.cost": 1e308}, {"llm.token_count.prompt": 2**53}, {"gen_ai.usage.output_tokens": HUGE},
    ]  # fmt: skip
    spans = [span(number, 99, attributes=attributes) for number, attributes in enumerate(odd, 1)]
    assert sender.spans(*spans, span(7, 99, attributes={"gen_ai.usage.cost": 0.5})) == {}
    trace = Trace.objects.get()
    assert (trace.spans_kept, trace.input_tokens, trace.output_tokens, trace.cost) == (7, None, None, 0.5)
    metadata = {recording.COST: f'{{"total_cost": {HUGE}}}', recording.USAGE: f'{{"input_tokens": {HUGE}}}'}
    report(mlflow3, experiment(mlflow), trace_id="tr-" + "9" * 32, trace_metadata=metadata)
    listed = Api(accounts.token_of(alice)).call("get", "users/alice/traces").json()
    assert [row["cost"] for row in listed] == [None, 0.5]
    most = recording.MAX_SPANS
    assert most * meaning.MAX_TOKENS < 2**63
    assert most * meaning.MAX_COST < float("inf")


def test_spans_give_a_trace_no_more_tags_than_it_may_have(sender, mlflow3, monkeypatch):
    def tags(first: int, size: int = 1) -> dict:
        return {f"{recording.TAG}{number}": "x" * size for number in range(first, first + 100)}

    for request in range(12):
        sender.spans(*(span(10 * request + one, 999, attributes=tags(1000 * request + 100 * one)) for one in (1, 2)))
    trace = Trace.objects.get()
    assert len(trace.tags) == recording.MAX_TAGS
    refused = mlflow3.refused("patch", f"traces/{ID}/tags", key="more", value="x")
    assert refused == "INVALID_PARAMETER_VALUE"
    monkeypatch.setattr(recording, "MAX_DETAILS", 1000)
    sender.spans(span(1, trace="a" * 32, attributes=tags(0, 300)))
    assert list(Trace.objects.get(key="a" * 32).tags) == ["0", "1", "2"]
    for call in ({"key": "long", "value": "x" * 800}, {"key": "0", "value": "x" * 800}):
        assert mlflow3.refused("patch", f"traces/tr-{'a' * 32}/tags", **call) == "INVALID_PARAMETER_VALUE"
    too_large = {"tags": {str(number): "x" * 100 for number in range(20)}}
    given = info("0", trace_id="tr-" + "b" * 32, **too_large)
    assert mlflow3.refused("post", "traces", trace={"trace_info": given}) == "INVALID_PARAMETER_VALUE"


def test_an_answer_of_traces_or_of_what_is_said_of_them_is_bounded(sender, mlflow, mlflow3, alice, monkeypatch):
    key, api = experiment(mlflow), Api(accounts.token_of(alice))
    for letter in "ab":
        sender.spans(span(1, trace=letter * 32), HTTP_X_MLFLOW_EXPERIMENT_ID=key)
    for name in ("one", "two"):
        said = {"assessment_name": name, "feedback": {"value": "v" * 900}, "rationale": "r" * 900}
        mlflow3.call("post", f"traces/tr-{'a' * 32}/assessments", assessment=said)
    ids = [f"tr-{letter * 32}" for letter in "ab"]
    places = {"users/alice/traces": 200, f"users/alice/traces/{ids[0]}/feedback": 403}
    monkeypatch.setattr(rows, "MAX_ANSWER", 2000)
    for place, status in places.items():
        assert api.call("get", place).status_code == status, place
        assert api.call("get", f"{place}?limit=1").status_code == 200, place
    for call in (("post", "traces/batchGetInfos"), ("get", "traces/batchGet")):
        assert mlflow3.refused(*call, trace_ids=ids), call
        assert mlflow3.call(*call, trace_ids=ids[1:]), call
    assert mlflow3.refused("post", "traces/search", experiment_ids=[key])
    assert found(mlflow3, key, max_results=1) == ["step 1"]
    for letter in "ab":
        mlflow3.call("patch", f"traces/tr-{letter * 32}/tags", key="k", value="x" * 1500)
    assert api.call("get", "users/alice/traces").status_code == 403


def test_pages_read_the_beginning_of_what_is_said(sender, mlflow3, alice):
    sender.spans(span(1))
    for number in range(6):
        said = {"assessment_name": f"name{number}", "feedback": {"value": "v" * 9000}, "rationale": "r" * 9000}
        mlflow3.call("post", f"traces/{ID}/assessments", assessment=said)
    client = visitor(alice)
    for address, count in (("/traces", 3), (f"/traces/{TRACE}", 6)):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            page = client.get(address).content.decode()
        assert sum(f"name{number}" in page for number in range(6)) == count
        assert "v" * 501 not in page
        assert "r" * 2001 not in page
        read = [query["sql"] for query in queries if 'FROM "trace_assessment"' in query["sql"]]
        assert read
        assert not any('"rationale", "trace_assessment"' in sql for sql in read)


def test_odd_feedback_and_odd_masks_are_refused_in_words(sender, mlflow3):
    sender.spans(span(1))
    said = {"assessment_name": "n", "feedback": {"value": 1}}
    place = f"traces/{ID}/assessments"
    for error in ("text", [1], 5):
        wrong = {**said, "feedback": {"value": 1, "error": error}}
        assert mlflow3.refused("post", place, assessment=wrong) == "INVALID_PARAMETER_VALUE", error
    key = mlflow3.call("post", place, assessment=said)["assessment"]["assessment_id"]
    for mask in ({"paths": 5}, {"paths": [3]}, 5, ["feedback"]):
        refused = mlflow3.refused("patch", f"{place}/{key}", assessment=said, update_mask=mask)
        assert refused == "INVALID_PARAMETER_VALUE", mask
    for mask in ({"paths": ["feedback"]}, "feedback,rationale", "assessmentName"):
        mlflow3.call("patch", f"{place}/{key}", assessment={**said, "feedback": {"value": 2}}, update_mask=mask)
    assert Assessment.objects.get().value == 2


def test_a_filter_with_characters_that_cannot_be_stored_finds_nothing(sender, alice):
    sender.spans(span(1))
    api = Api(accounts.token_of(alice))
    for name, status in {"q": 200, "run": 200, "project": 403, "status": 403}.items():
        assert api.call("get", f"users/alice/traces?{name}=%00x").status_code == status, name
    assert api.call("get", "users/alice/traces?run=%00").json() == []


def test_feedback_is_compared_by_all_operators(sender, mlflow, mlflow3):
    """Each operator does what it says, as with MLflow's own server; a trace without the feedback is not unequal."""
    key = experiment(mlflow)
    values = {"a": 0.25, "b": 3, "c": "fair", "d": True, "e": int(HUGE), "f": None}
    for number, (name, value) in enumerate(values.items()):
        trace = f"{number + 1:032x}"
        sender.spans(span(1, trace=trace, name=name, begin=number), HTTP_X_MLFLOW_EXPERIMENT_ID=key)
        if value is not None:
            said = {"assessment_name": "score", "feedback": {"value": value}}
            mlflow3.call("post", f"traces/tr-{trace}/assessments", assessment=said)
    for text, names in {
        "feedback.score > 0.25": "eb", "feedback.score >= 0.25": "eba", "feedback.score < 3": "a",
        "feedback.score <= 3": "ba", "feedback.score = 3": "b", "feedback.score = '3'": "b",
        "feedback.score = 0.250": "a",
        "feedback.score = 'fair'": "c", "feedback.score != 'fair'": "edba", "feedback.score != 3": "edca",
        "feedback.score LIKE 'fa%'": "c", "feedback.score ILIKE 'FA%'": "c", "feedback.score = 'true'": "d",
        "feedback.score IS NULL": "f", "feedback.score IS NOT NULL": "edcba", "feedback.score IN ('fair', 'x')": "c",
        "feedback.other > 0": "", "feedback.score > nan": "",
    }.items():  # fmt: skip
        assert "".join(found(mlflow3, key, text)) == names, text
    refused = mlflow3.refused("post", "traces/search", experiment_ids=[key], filter="feedback.score > 'fair'")
    assert refused == "INVALID_PARAMETER_VALUE"


def test_what_a_filter_says_of_spans_is_true_of_one_span(sender, mlflow, mlflow3):
    key = experiment(mlflow)
    error = {"status": {"code": 2}}
    for number, (first, second) in enumerate((({}, error), (error, {}))):
        spans = [span(1, name="plan", **first), span(2, 1, name="search", **second, attributes={"k": "v"})]
        spans = [{**one, "traceId": f"{number + 1:032x}"} for one in spans]
        sender.spans(*spans, HTTP_X_MLFLOW_EXPERIMENT_ID=key)
    ids = [f"{number + 1:032x}" for number in range(2)]

    def keys(text: str) -> list[str]:
        given = mlflow3.call("post", "traces/search", experiment_ids=[key], filter=text)["traces"]
        return sorted(one["trace_id"].removeprefix("tr-") for one in given)

    assert keys("span.name = 'search' AND span.status = 'error'") == ids[:1]
    assert keys("span.name = 'plan' AND span.status = 'error'") == ids[1:]
    assert keys("span.name = 'search' AND trace.text LIKE '%\"v\"%'") == ids
    assert keys("span.name = 'plan' AND span.attributes.k = 'v'") == []
    assert keys("span.attributes.`k` = 'v' AND name != 'span.attributes.`k`'") == ids
    assert keys("span.name != 'plan'") == ids
    assert Span.objects.count() == 4


def test_a_span_that_fails_in_an_unknown_way_costs_no_other(sender, monkeypatch):
    """Elsewhere one such span has cost its whole request, sent again and again (langfuse/langfuse#15026)."""
    deep = json.dumps({"messages": []}).replace("[]", "[" * 5000)
    attributes = [{"mlflow.spanInputs": deep}, {"mlflow.chat.tokenUsage": HUGE}, {"session.id": {"a": [1]}}]
    odd = [span(number, 9, attributes=one) for number, one in enumerate(attributes, 1)]
    odd.append({**span(4, 9), "attributes": [{"key": "nothing"}, {"value": {"intValue": 1}}]})
    assert sender.spans(*odd) == {}
    model_of = meaning.model_of
    monkeypatch.setattr(meaning, "model_of", lambda given: 1 // 0 if "bad" in given else model_of(given))
    refused = sender.spans(span(5, 9, attributes={"bad": 1}), span(6, 9))
    assert refused == {"rejectedSpans": "1", "errorMessage": "a span cannot be read"}
    assert sorted(Span.objects.values_list("key", flat=True)) == [f"{number:016x}" for number in (1, 2, 3, 4, 6)]
    assert Trace.objects.get().spans_kept == 5


def test_logs_that_are_sent_to_the_address_of_traces_are_rejected(sender):
    """Both messages have the same numbers of fields, so that log records look like spans without ids."""
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add(severity_text="INFO")
    record.body.string_value = "a line"
    answer = sender.raw(request.SerializeToString(), "application/x-protobuf")
    assert answer.status_code == 200
    assert ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans == 1
    assert not Trace.objects.exists()


def test_a_search_that_takes_too_long_says_so(sender, mlflow, mlflow3, alice, monkeypatch):
    """Spans have no index by their text; a search of all of them would keep a thread of the web server."""
    key = experiment(mlflow)
    sender.spans(span(1), HTTP_X_MLFLOW_EXPERIMENT_ID=key)
    slow = Cast(Func(Value(600.0), function="pg_sleep", output_field=TextField()), TextField())
    monkeypatch.setattr(mlflow_search, "SPAN_TEXTS", {"content": slow})
    monkeypatch.setattr(rows, "_contains", lambda _rows, _query: Exact(slow, Value("x")))
    monkeypatch.setattr(rows, "SEARCH_S", 0.1)
    asked = {"experiment_ids": [key], "filter": "trace.text LIKE '%x%'"}
    answer = mlflow3.send("post", "traces/search", asked)
    assert (answer.status_code // 100, "longer than 0.1 s" in answer.json()["message"]) == (4, True)
    api = Api(accounts.token_of(alice))
    assert "longer than 0.1 s" in api.refused("get", "users/alice/traces?q=x")
    page = visitor(alice).get("/traces?q=x")
    assert (page.status_code, "longer than 0.1 s" in page.content.decode()) == (200, True)
    assert TRACE in visitor(alice).get("/traces").content.decode()


def test_large_traces_are_deleted_in_parts_that_end(sender, settings, monkeypatch):
    """One statement for all of many large traces would be over its time limit, each time again."""
    monkeypatch.setattr(retention, "MANY", 5)
    for letter, count in {"a": 12, "b": 3, "c": 2, "d": 1}.items():
        sender.spans(*(span(number, 1, trace=letter * 32) for number in range(1, count + 1)))
    Trace.objects.exclude(key="d" * 32).update(created=timezone.now() - timedelta(days=3))
    settings.TRACE_DAYS = 2
    with CaptureQueriesContext(connection) as queries:
        retention.run(timezone.now())
    assert list(Trace.objects.values_list("key", flat=True)) == ["d" * 32]
    assert Span.objects.count() == 1
    deleted = [query["sql"] for query in queries if query["sql"].startswith('DELETE FROM "trace_span"')]
    assert len(deleted) >= 4  # of the first trace three, of the others one
    assert sum(query["sql"].startswith('DELETE FROM "trace" ') for query in queries) == 2


@pytest.mark.django_db(transaction=True)
def test_a_trace_is_deleted_while_its_spans_come(alice):
    token, api = accounts.token_of(alice), Api(accounts.token_of(alice))

    def send(lane: int) -> int:
        try:
            sender = Sender(token)
            return sum(sender.spans(span(100 * lane + number, 999)) == {} for number in range(15))
        finally:
            connection.close()

    def delete(_lane: int) -> int:
        try:
            return sum(api.call("delete", f"users/alice/traces/{TRACE}").status_code in (200, 403) for _ in range(15))
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        done = [threads.submit(work, lane) for lane, work in enumerate((send, delete, send, delete), 1)]
        assert [each.result() for each in done] == [15] * 4
    for trace in Trace.objects.all():
        assert trace.spans_kept == trace.spans.count()


def test_a_large_object_or_list_keeps_the_beginnings_of_its_texts(sender):
    """MLflow's client sends what a function was given as an object: with a picture of some MiB nothing was left."""
    request = ExportTraceServiceRequest()
    made = request.resource_spans.add().scope_spans.add().spans.add(trace_id=bytes.fromhex(TRACE), span_id=b"\1" * 8)
    given = made.attributes.add(key="mlflow.spanInputs").value.kvlist_value.values
    given.add(key="model").value.string_value = "gpt-x"
    given.add(key="n").value.int_value = 5
    messages = given.add(key="messages").value.array_value.values
    for text in ("why?", "p" * (6 << 20)):
        message = messages.add().kvlist_value.values
        message.add(key="role").value.string_value = "user"
        message.add(key="content").value.string_value = text
    deep = made.attributes.add(key="deep").value
    for _ in range(60):
        deep = deep.array_value.values.add()
    deep.string_value = "q" * (1 << 20)
    for _ in range(50_000):
        made.attributes.add(key="many").value.array_value.values.add().string_value = "x" * 10
    answer = sender.raw(request.SerializeToString(), "application/x-protobuf")
    assert answer.status_code == 200, answer.content
    row = Span.objects.get()
    kept = row.attributes["mlflow.spanInputs"]
    assert (kept["model"], kept["n"], row.model) == ("gpt-x", 5, "gpt-x")
    assert [one["role"] for one in kept["messages"]] == ["user", "user"]
    assert kept["messages"][0]["content"] == "why?"
    assert len(kept["messages"][1]["content"]) == storable.MAX_TEXT + 1
    assert kept["messages"][1]["content"].endswith("p…")
