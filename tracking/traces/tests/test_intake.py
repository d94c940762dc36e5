"""The intake of spans: both forms of OTLP, any order, repeated requests, odd spans, projects, bounds."""

from __future__ import annotations

import gzip
import json
import math
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import pytest
from django.db import connection
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

from accounts import lifecycle as accounts
from accounts import named_tokens
from accounts.models import User
from jobs.auth import job_token
from jobs.models import Job, Project, Span, Trace
from kernel import disk, stored
from mlp.operators.tests.admin_world import put

from .. import meaning, otlp, recording, storable
from .conftest import BEGIN, TRACE, Sender, body, span

pytestmark = pytest.mark.django_db

PROTOBUF = "application/x-protobuf"
LLM = {
    "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o-mini", "gen_ai.usage.input_tokens": 1000,
    "gen_ai.usage.output_tokens": 200,
    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "why?"}]}]),
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "so"}]}]),
}  # fmt: skip


def test_what_opentelemetry_encodes_is_stored_with_its_tokens_and_messages(sender):
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "shop", "mlp.project": "chat"}))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("tests")
    with tracer.start_as_current_span("answer") as root:
        root.set_attribute("session.id", "s-1")
        with tracer.start_as_current_span("chat gpt-4o-mini", attributes=LLM) as call:
            call.add_event("first token", {"n": 1})
        with tracer.start_as_current_span("search") as tool:
            tool.set_status(Status(StatusCode.ERROR, "the index is away"))
    data = encode_spans(kept.get_finished_spans()).SerializeToString()
    answer = sender.raw(gzip.compress(data), PROTOBUF, HTTP_CONTENT_ENCODING="gzip")
    assert (answer.status_code, answer["Content-Type"]) == (200, PROTOBUF)
    assert not ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans
    trace = Trace.objects.get()
    assert (trace.project.name, trace.name, trace.status, trace.session) == ("chat", "answer", "ok", "s-1")
    assert (trace.spans_kept, trace.errors, trace.model) == (3, 1, "gpt-4o-mini")
    assert (trace.input_tokens, trace.output_tokens, trace.cost) == (1000, 200, None)
    assert trace.duration_ns > 0
    chat = trace.spans.get(type="CHAT_MODEL")
    assert chat.parent == trace.spans.get(parent="").key
    assert (chat.events[0]["name"], chat.events[0]["attributes"]) == ("first token", {"n": 1})
    assert chat.resource["service.name"] == "shop"
    assert trace.spans.get(name="search").message == "the index is away"


def test_spans_come_in_any_order_and_again(sender):
    """Late roots, several requests, and an exporter that repeats what was answered too late."""
    spans = [
        span(1, lasted=5, attributes={"input.value": "question", "output.value": "answer"}),
        span(2, 1, begin=1, attributes=LLM), span(3, 2, begin=1.5, lasted=0.2, attributes=LLM),
    ]  # fmt: skip
    seen = set()
    for number, order in enumerate(permutations(spans)):
        key = f"{number + 1:032x}"
        for one in (*order, order[0]):
            assert sender.spans({**one, "traceId": key}) == {}
        trace = Trace.objects.get(key=key)
        seen.add(
            (trace.name, trace.status, trace.spans_kept, trace.duration_ns, trace.input_tokens, trace.request,
             trace.response, trace.model)
        )  # fmt: skip
    # a span within another with usage repeats it, and does not count
    assert seen == {("step 1", "ok", 3, 5 * 10**9, 1000, "question", "answer", "gpt-4o-mini")}


def test_a_trace_without_its_root_is_in_progress_and_the_later_end_of_a_span_counts(sender):
    sender.spans(span(2, 1))
    trace = Trace.objects.get()
    assert (trace.status, trace.duration_ns, trace.name) == ("in_progress", None, "step 2")
    sender.spans(span(1, lasted=None))
    assert Trace.objects.get().status == "in_progress"
    sender.spans(span(1, lasted=3, status={"code": 2, "message": "no"}), span(1, lasted=2))
    sender.spans(span(1, lasted=None))
    trace = Trace.objects.get()
    assert (trace.status, trace.duration_ns, trace.spans_kept, trace.errors) == ("error", 3 * 10**9, 2, 1)


def test_a_span_whose_parent_is_in_another_process_stands_for_the_root(sender):
    """The browser has begun the trace, and sends its spans to elsewhere (Arize-ai/phoenix#2069)."""
    sender.spans(span(3, 2, begin=1), span(2, 9, lasted=4, name="server", flags=0x301))
    trace = Trace.objects.get()
    assert (trace.status, trace.name, trace.duration_ns) == ("ok", "server", 4 * 10**9)
    sender.spans(span(9, lasted=5, name="browser", status={"code": "STATUS_CODE_ERROR"}))
    trace = Trace.objects.get()
    assert (trace.status, trace.name, trace.duration_ns) == ("error", "browser", 5 * 10**9)


def test_another_machines_clock_changes_no_latency(sender):
    """Its spans begin before the root, or end after it (elastic/kibana#240415); one has no kind (langwatch#5898)."""
    early = span(2, 1, begin=-7)
    del early["kind"]
    assert sender.spans(span(1, lasted=2), early, span(3, 1, begin=60)) == {}
    trace = Trace.objects.get()
    assert (trace.duration_ns, trace.started_ns, trace.spans_kept) == (2 * 10**9, BEGIN, 3)


def test_the_span_of_an_agent_repeats_the_tokens_of_its_calls_and_costs_what_they_cost(sender):
    """Vercel's AI SDK, Pydantic AI and others: tokens and cost were counted twice elsewhere (mlflow/mlflow#24307)."""
    call = {**LLM, "mlflow.llm.cost": {"total_cost": 0.25}}
    agent = {"gen_ai.usage.input_tokens": 2000, "gen_ai.usage.output_tokens": 400, "mlflow.traceTag.team": "red"}
    linked = {"mlflow.linkedPrompts": '[{"name": "summary", "version": "1"}]'}
    sender.spans(
        span(1, attributes={**agent, **linked}), span(2, 1), span(3, 2, attributes=call), span(4, 2, attributes=call)
    )
    trace = Trace.objects.get()
    assert (trace.input_tokens, trace.output_tokens, trace.cost) == (2000, 400, 0.5)
    assert trace.tags == {"team": "red", "mlflow.linkedPrompts": linked["mlflow.linkedPrompts"]}
    sender.spans(span(5, 1, attributes=LLM))  # without a price
    assert Trace.objects.get().cost is None


def test_odd_spans_do_not_cost_the_others(sender):
    odd = [
        span(2, trace="0" * 32), span(3, trace="xyz"), {**span(4), "spanId": "0" * 16}, {**span(5), "spanId": "12"},
        "no span", {**span(6, 1), "name": "a\x00b\ud800", "endTimeUnixNano": "1"},
        span(7, 7, attributes={"nan": math.nan, "inf": math.inf, "deep": {"a": [{"b": None}]}, "数": "汉字 😀"}),
    ]  # fmt: skip
    answer = sender.raw(json.dumps(body(span(1), *odd)).encode()).json()["partialSuccess"]
    assert answer == {"rejectedSpans": "5", "errorMessage": "a span id must be 8 bytes that are not all zero"} or (
        answer["rejectedSpans"] == "5"
    )
    assert Span.objects.count() == 3
    backwards = Span.objects.get(key=f"{6:016x}")  # a clock that was set back
    assert (backwards.name, backwards.ended_ns) == ("a\ufffdb\ufffd", backwards.started_ns)
    attributes = Span.objects.get(key=f"{7:016x}").attributes
    assert attributes == {"nan": "nan", "inf": "inf", "deep": {"a": [{"b": None}]}, "数": "汉字 😀"}
    assert Trace.objects.get().spans_kept == 3  # the span that is its own parent ends nothing


def test_a_protobuf_span_keeps_what_can_be_read_of_a_large_one(sender):
    request = ExportTraceServiceRequest()
    made = request.resource_spans.add().scope_spans.add().spans.add()
    made.trace_id, made.span_id, made.name = bytes.fromhex(TRACE), b"\1" * 8, "large"
    made.start_time_unix_nano, made.end_time_unix_nano = 5, 2**64 - 1
    prompt = made.attributes.add()
    prompt.key, prompt.value.string_value = "gen_ai.prompt", "x" * (10 << 20)
    small = made.attributes.add()
    small.key, small.value.bytes_value = "picture", b"\x89PNG\xff\xfe"
    data = request.SerializeToString().replace(b"large", b"lar\xffe")  # not UTF-8
    answer = sender.raw(data, PROTOBUF)
    assert answer.status_code == 200
    row = Span.objects.get()
    assert (row.name, row.ended_ns) == ("lar\ufffde", otlp.LAST_NS)
    assert len(row.attributes["gen_ai.prompt"]) <= storable.MAX_TEXT + 1
    assert row.attributes["gen_ai.prompt"].endswith("…")
    assert row.attributes["picture"]
    cut = sender.raw(data[:-5], PROTOBUF)
    assert (cut.status_code, cut.json()["message"][:30]) == (400, "no ExportTraceServiceRequest: ")


def test_bodies_that_are_none_are_refused_in_words(sender):
    for data, kind, status in (
        (b"{", "application/json", 400), (b"[]", "application/json", 400), (b'{"spans": []}', "application/json", 400),
        (b"\xff\xff\xff", PROTOBUF, 400), (b"x", "application/json", 400),
    ):  # fmt: skip
        answer = sender.raw(data, kind)
        assert answer.status_code == status
        assert answer.json()["message"]
    assert sender.raw(b"x", HTTP_CONTENT_ENCODING="br").status_code == 415
    assert sender.raw(b"x", HTTP_CONTENT_ENCODING="gzip").status_code == 400
    bomb = gzip.compress(b" " * (33 << 20))
    assert sender.raw(bomb, HTTP_CONTENT_ENCODING="gzip").status_code == 400
    assert sender.raw(b"{}").status_code == sender.raw(b"", PROTOBUF).status_code == 200
    assert sender.get("/v1/traces").status_code == 405
    assert Sender("nobody").raw(b"{}").status_code == 401


def test_spans_land_in_the_project_that_they_name(sender, alice, bob):
    own = Project.objects.create(user=alice, name="own")
    theirs = Project.objects.create(user=bob, name="theirs")
    gone = Project.objects.create(user=alice, name="gone", trashed="2026-01-01T00:00Z")
    sender.spans(span(1, trace="a" * 32), HTTP_X_MLFLOW_EXPERIMENT_ID=str(own.pk))
    sender.spans(span(1, trace="b" * 32), HTTP_X_MLP_PROJECT="néu".encode().decode("latin-1"))
    sender.spans(span(1, trace="c" * 32), resource={"openinference.project.name": "phoenix"})
    sender.spans(span(1, trace="d" * 32))
    names = {trace.key[0]: trace.project.name for trace in Trace.objects.select_related("project")}
    assert names == {"a": "own", "b": "néu", "c": "phoenix", "d": "default"}
    for project in (theirs.pk, gone.pk, 2**63, 10**9):
        answer = sender.raw(b"{}", HTTP_X_MLFLOW_EXPERIMENT_ID=str(project))
        assert answer.status_code == 400, answer.content
        assert "project" in answer.json()["message"]
    assert sender.raw(b"{}", HTTP_X_MLFLOW_EXPERIMENT_ID="x").status_code == 400
    # A trace is in one project: what names none joins it, what names another one is rejected.
    sender.spans(span(2, 1, trace="a" * 32))
    refused = sender.spans(span(3, 1, trace="a" * 32), resource={"mlp.project": "phoenix"})
    assert refused["rejectedSpans"] == "1"
    assert "another project" in refused["errorMessage"]
    assert sender.spans(span(1, trace="e" * 32), resource={"mlp.project": "a//b"})["rejectedSpans"] == "1"
    assert Trace.objects.get(key="a" * 32).spans_kept == 2


def test_a_jobs_token_sends_to_the_jobs_project(alice):
    job = put(Job, alice, "fit", "running")
    job.project = Project.objects.create(user=alice, name="vision")
    job.save()
    sender = Sender(job_token(job))
    sender.spans(span(1), resource={"mlp.project": "elsewhere"}, HTTP_X_MLFLOW_EXPERIMENT_ID="0")
    assert Trace.objects.get().project == job.project
    assert not Project.objects.filter(name="elsewhere").exists()


def test_two_users_may_have_traces_of_one_id(sender, bob):
    sender.spans(span(1))
    Sender(accounts.token_of(bob)).spans(span(1), span(2, 1))
    kept = {User.objects.get(pk=trace.user_id).username: trace.spans_kept for trace in Trace.objects.all()}
    assert kept == {"alice": 1, "bob": 2}


def test_traces_are_bounded_and_count_to_their_user(sender, alice, monkeypatch, settings):
    monkeypatch.setattr(recording, "MAX_SPANS", 3)
    refused = sender.spans(*(span(number, 1 if number > 1 else 0) for number in range(1, 6)))
    assert (refused["rejectedSpans"], Trace.objects.get().spans_kept) == ("2", 3)
    assert sender.spans(span(1)) == {}
    before = stored.used(alice.pk)
    sender.spans(span(1, trace="b" * 32, attributes={"prompt": "x" * 2000 + "".join(map(chr, range(300, 2300)))}))
    assert stored.used(alice.pk) - before > 4000
    settings.DATABASE_LIMIT_MIB = 0
    monkeypatch.setattr(stored, "FRESH_S", -1.0)
    answer = sender.raw(json.dumps(body(span(9))).encode())
    assert (answer.status_code, "MLP_DATABASE_LIMIT_MIB" in answer.json()["message"]) == (403, True)


def test_a_full_disk_is_tried_again(sender, monkeypatch):
    monkeypatch.setattr(disk, "free", lambda place=None: disk.Free(0, 1 << 20))
    answer = sender.raw(json.dumps(body(span(1))).encode())
    assert (answer.status_code, answer["Retry-After"]) == (503, "30")
    assert not Trace.objects.exists()


def test_the_cost_is_that_of_the_span_or_of_the_prices_and_else_unknown(sender, settings):
    settings.TRACE_PRICES = (("gpt-4o", (2.5, 10.0)), ("gpt-4o-mini", (0.15, 0.6)))
    sender.spans(span(1, trace="a" * 32, attributes={**LLM, "gen_ai.request.model": "gpt-4o-mini-2026-01-01"}))
    sender.spans(span(1, trace="b" * 32, attributes={**LLM, "mlflow.llm.cost": json.dumps({"total_cost": 0.5})}))
    sender.spans(span(1, trace="c" * 32, attributes={**LLM, "gen_ai.request.model": "other"}))
    sender.spans(
        span(1, trace="d" * 32), span(2, 1, trace="d" * 32, attributes=LLM),
        span(3, 1, trace="d" * 32, attributes={**LLM, "gen_ai.request.model": "other"}),
    )  # fmt: skip
    costs = {trace.key[0]: trace.cost for trace in Trace.objects.all()}
    assert costs == {"a": pytest.approx(0.00027), "b": 0.5, "c": None, "d": None}


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "why", "gen_ai.completion.0.content": "so"},
        {
            "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "why",
            "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "so",
        },
        {
            "mlflow.spanInputs": {"messages": [{"role": "user", "content": "why"}]},
            "mlflow.spanOutputs": json.dumps({"choices": [{"message": {"role": "assistant", "content": "so"}}]}),
        },
        {"ai.prompt.messages": '[{"role":"user","content":[{"type":"text","text":"why"}]}]', "ai.response.text": "so"},
        {"gen_ai.prompt": "why", "gen_ai.completion": "so"},
        {"input.value": '{"input": [{"role": "user", "content": "why"}]}',
         "output.value": '{"output": [{"role": "assistant", "content": [{"type": "output_text", "text": "so"}]}]}'},
    ],
)  # fmt: skip
def test_messages_are_read_by_all_conventions(attributes):
    assert meaning.messages(attributes, []) == [("user", "why"), ("assistant", "so")]


def test_messages_may_be_events_or_odd():
    events = [
        {"name": "gen_ai.system.message", "attributes": {"content": "be brief"}},
        {"name": "gen_ai.user.message", "attributes": {"content": "why"}},
        {"name": "gen_ai.choice", "attributes": {"message": '{"role": "assistant", "content": "so"}'}},
        {"name": "exception", "attributes": None},
    ]
    assert meaning.messages({}, events) == [("system", "be brief"), ("user", "why"), ("assistant", "so")]
    for odd in ({"gen_ai.input.messages": odd} for odd in ("[", "[1, null]", 5, [[]], {"messages": 3}, '"x"')):
        assert meaning.messages(odd, []) == []
    called = [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "find"}}]}]
    assert meaning.messages({"gen_ai.output.messages": called}, [])[0].text == '[{"function": {"name": "find"}}]'


@pytest.mark.parametrize(("scope", "status"), [("full", 200), ("submit", 200), ("read", 403)])
def test_a_named_token_sends_when_it_may_submit(alice, scope, status):
    token = named_tokens.create(user=alice, name="ci", scope=scope, by="test")[1]
    answer = Sender(token).raw(json.dumps(body(span(1))).encode(), address="/mlflow/v1/traces")
    assert (answer.status_code, Trace.objects.count()) == (status, int(status == 200))


@pytest.mark.django_db(transaction=True)
def test_requests_at_the_same_time_store_each_span_once(alice):
    token, keys = accounts.token_of(alice), ("a" * 32, "b" * 32, "c" * 32)
    spans = [span(number, number // 2, trace=key, attributes=LLM) for key in keys for number in range(1, 16)]

    def send(step: int) -> int:
        try:
            some = spans[:: -1 if step % 2 else 1]
            refused = Sender(token).spans(*some[step:], resource={"mlp.project": "together"})
            return len(refused)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(send, range(6))) == 0
    assert sorted(Trace.objects.values_list("key", "spans_kept", "status")) == [(key, 15, "ok") for key in keys]
    assert Span.objects.count() == len(spans)
    assert Project.objects.filter(name="together").count() == 1
