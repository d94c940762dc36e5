"""What of a request is recorded: by its owner's settings, masked and cut, of all kinds of bodies and answers."""

from __future__ import annotations

import gzip
import json

import pytest
from django.test import RequestFactory

from apps import gateway_access, keys, places
from apps.models import AppRun, Rollout
from apps.records import collecting
from datasets.webdav.gate import internal_key
from models_app.models import Model
from resources.models import Tenant

from .conftest import RUN

pytestmark = pytest.mark.django_db


def routed(app, **headers) -> dict:
    """Return the headers with which nginx sends a request to the application."""
    given = {"X-App-User": "alice", "X-App-Name": app.name, "X-Internal-Key": internal_key(), **headers}
    answer = gateway_access.route(RequestFactory().get("/internal/apps/route", headers=given))
    assert answer.status_code == 204
    return dict(answer.headers)


def test_nothing_is_recorded_until_the_owner_turns_it_on(app, ask, listed, record, as_alice, as_bob):
    ask()
    assert listed() == []
    assert AppRun.objects.get(name=RUN).records is None
    settings = as_alice.call("get", f"users/alice/apps/{app.name}/recording").json()
    assert (settings["on"], settings["stored"], settings["dropped"]) == (False, 0, 0)
    assert record()[0] == 200
    ask()
    assert len(listed()) == 1
    assert as_bob.refused("get", f"users/alice/apps/{app.name}/records")
    assert as_bob.refused("put", f"users/alice/apps/{app.name}/recording", {})
    assert record(on=False)[1]["on"] is False
    ask()
    assert len(listed()) == 1  # what is recorded stays


def test_a_record_says_what_was_asked_and_answered(app, ask, listed, record):
    assert record(share=1)[0] == 200
    _row, text = keys.create(app=app, name="shop", by="alice")
    sent = routed(app, Authorization=f"Bearer {text}")
    assert json.loads(sent["X-App-Record"]) == {"share": 1, "bytes": 16384, "mask": []}
    ask(headers={"x-app-key": sent["X-App-Key"], "x-request-id": "order-17"})
    ask(b"nonsense", b'{"error": "body: no JSON"}', status=400)
    ask(b"", b'{"error": "no such address"}', status=404)
    refused, one = listed()
    assert (one["id"], one["key"], one["model"], one["canary"]) == ("order-17", "shop", "adder", "")
    assert (one["input"], one["output"]) == ({"x": [1.0, 2.0]}, {"y": [2.0, 3.0]})
    assert (one["input_kept"], one["input_bytes"], one["status"], one["complete"]) == ("all", 17, 200, True)
    assert one["ms"] >= 0
    assert one["time"].endswith("Z")
    assert one["path"] == "/predict"
    assert (refused["status"], refused["input"], refused["key"]) == (400, "nonsense", "")
    assert len(refused["id"]) == 32  # where the caller has given none


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "-a", "ä"])
def test_an_id_that_is_none_is_replaced(ask, listed, record, given):
    record()
    ask(headers={"x-request-id": given})
    assert len(listed()[0]["id"]) == 32


def test_bodies_are_cut_and_binary_ones_left_out(ask, listed, record):
    record(record_kib=1)
    ask(("é" * 4000).encode(), b"\x93NUMPY\x00\x01", kind="application/octet-stream")
    ask(gzip.compress(b'{"x": [1]}'), b"", headers={"content-encoding": "gzip"})
    ask(gzip.compress(b"x" * (1 << 20)), headers={"content-encoding": "gzip"})  # more than is read
    ask(b'{"x": "\\ud800 \\u0000"}', b"a\x00b", kind="text/plain")
    surrogate, bomb, packed, cut = listed()
    assert (cut["input"], cut["input_kept"], cut["input_bytes"]) == ("é" * 512, "cut", 8000)
    assert (cut["output"], cut["output_kept"], cut["output_bytes"]) == (None, "binary", 8)
    assert (packed["input"], packed["output"], packed["output_kept"]) == ({"x": [1]}, None, "none")
    assert (bomb["input"], bomb["input_kept"]) == (None, "binary")
    assert (surrogate["input_kept"], surrogate["output_kept"]) == ("all", "binary")


MASKS = ["email", "$.user.name", "$.messages[*].content", "$['a b'][1]"]


def test_masked_values_are_recorded_nowhere(ask, listed, record):
    record(mask=MASKS)
    secret = "SECRET"
    nested = {"a b": [1, secret], "user": {"name": secret, "age": 3}, "list": [{"email": secret}]}
    ask({**nested, "messages": [{"role": "user", "content": secret}]}, json.dumps({"email": secret}).encode())
    tensors = [{"name": "email", "datatype": "BYTES", "shape": [1], "data": [secret]}, {"name": "x", "data": [1]}]
    ask({"inputs": tensors})
    ask({"dataframe_split": {"columns": ["x", "email"], "data": [[1, secret], [2, secret]]}})
    ask(b'{"email": "SECRET", "x": NaN, "email": "SECRET"}')
    ask(b"x,email\n1,SECRET\n", headers={"content-type": "text/csv"})
    ask({"x": 1}, b'{"error": "email: SECRET is no number"}', status=400)
    ask(b'{"email": "SECRET"' + b" " * (300 << 10) + b"}")
    ask(b"[" * 5000 + b'{"email": "SECRET"}' + b"]" * 5000)
    collecting.collect()
    found = listed()
    assert secret not in json.dumps(found)
    kept = [each["input_kept"] for each in found]
    assert kept == ["withheld", "withheld", "all", "withheld", "all", "all", "all", "all"]
    assert found[2]["output_kept"] == "withheld"  # a refusal may repeat the value
    assert found[-1]["input"]["user"] == {"name": "***", "age": 3}
    assert found[-1]["input"]["messages"] == [{"role": "user", "content": "***"}]
    assert found[-2]["input"]["inputs"][1] == {"name": "x", "data": [1]}
    assert found[-3]["input"]["dataframe_split"]["data"] == [[1, "***"], [2, "***"]]


@pytest.mark.parametrize(
    "given",
    [
        {"call": {"arguments": json.dumps({"to": [{"email": "SECRET"}]})}},  # of a call that a language model makes
        {"lines": '{"email": "SECRET"}\n{"email": "SECRET"}'},
        {"text": '{"name": "email", "name": "x", "data": "SECRET"}'},
        {"inputs": [{"name": "email", "datatype": "BYTES", "parameters": {"v": "SECRET"}, "raw": ["SECRET"]}]},
        {"fields": [{"name": "email", "value": "SECRET"}]},
        {"columns": [["email", "first"], "x"], "data": [["SECRET", 1]]},
        {"tensors": [{"name": "email", "data": ["SECRET"]}]},  # whose name is masked, too
        b'{"inputs": [{"name": "email", "data": ["SECRET"], "name": "x"}]}',
        b'{"columns": ["email"], "data": [["SECRET"]], "columns": ["x"]}',
        b'{"\\u0065mail": "SECRET"}',
    ],
)
def test_no_form_of_a_field_gets_past_its_mask(ask, listed, record, given):
    record(mask=["$.tensors[*].name", "email"])
    ask(given)
    (row,) = listed()
    assert "SECRET" not in json.dumps(row)
    assert row["input_kept"] == ("withheld" if isinstance(given, bytes) and b"u0065" not in given else "all")


def test_texts_without_masked_fields_are_kept_as_they_are(ask, listed, record):
    record(mask=["email"])
    given = {"a": '{ "b":[1.50]}', "c": "[half", "d": "{}", "e": "email"}
    ask(given)
    assert listed()[0]["input"] == given


def event(**choice) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "lm", "usage": None}
    return b"data: " + json.dumps({**head, "choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


def test_a_stream_is_recorded_as_one_answer(ask, listed, record):
    record()
    words = [event(delta={"role": "assistant", "content": ""}), event(delta={"content": "hel"}),
             event(delta={"content": "lo"}), event(delta={}, finish_reason="stop"), b"data: [DONE]\n\n"]  # fmt: skip
    ask({"messages": []}, words, kind="text/event-stream", path="/v1/chat/completions")
    ask({"messages": []}, words[:2], kind="text/event-stream", leaves=True)
    ask({"prompt": "a"}, [event(text="b", delta=None)[:-2] + b"\n\n"], kind="text/event-stream")
    _odd, left, whole = listed()
    said = {"role": "assistant", "content": "hello"}
    assert whole["output"]["choices"] == [{"index": 0, "message": said, "finish_reason": "stop"}]
    assert (whole["complete"], left["complete"], left["output"]["choices"][0]["message"]["content"]) == (
        True, False, "hel",
    )  # fmt: skip
    record(mask=["content"])
    ask({"messages": [{"content": "SECRET"}]}, words, kind="text/event-stream")
    assert "SECRET" not in json.dumps(listed()[0])
    assert listed()[0]["output"]["choices"][0]["message"]["content"] == "***"


def test_calls_of_tools_in_a_stream_are_recorded_and_masked(ask, listed, record):
    record(mask=["email"])
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"email": "SECRET", "x": 1}'}}
    events = [event(delta={"role": "assistant", "content": ""}), event(delta={"tool_calls": [{"index": 0, **call}]}),
              event(delta={}, finish_reason="tool_calls"), b"data: [DONE]\n\n"]  # fmt: skip
    ask({"messages": []}, events, kind="text/event-stream", path="/v1/chat/completions")
    [choice] = listed()[0]["output"]["choices"]
    call["function"]["arguments"] = '{"email": "***", "x": 1}'
    assert choice["message"] == {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.mark.parametrize("text", [
    '<tool_call>\n{"name": "f", "arguments": {"email": "SECRET", "x"', 'Sure: ```json\n{"email": "SECRET"}\n```',
    'He wrote {\\"email\\": \\"SECRET\\"}', 'of [{"name": "email", "value": "SECRET"}] I know',
])  # fmt: skip
def test_a_field_within_a_text_around_it_is_masked(ask, listed, record, text):
    record(mask=["email"])
    ask({"messages": [{"role": "user", "content": text}, {"role": "user", "content": 'the "email" field'}]})
    assert [one["content"] for one in listed()[0]["input"]["messages"]] == ["***", 'the "email" field']


def test_a_stream_is_passed_on_piece_by_piece_and_recorded_before_its_end(ask, record):
    record()
    pieces = [event(delta={"content": word}) for word in "abc"]
    ask({"messages": []}, pieces, kind="text/event-stream", write=False)
    assert ask.passed == pieces
    assert ask.seen == [0, 0, 1]  # feedback may come as soon as the caller has the end


def test_a_process_writes_what_is_queued_when_it_is_asked(ask, listed, record):
    record()
    ask(write=False)
    assert listed() == []
    ask(b"", method="GET", path="/-records", write=False)
    assert len(listed()) == 1


def test_a_share_of_the_requests_is_recorded(app, ask, listed, record, monkeypatch):
    record(share=0.25)
    drawn = iter([0.1, 0.3, 0.24, 0.25, 0.9])
    monkeypatch.setattr(ask.module.random, "random", lambda: next(drawn))
    for _ in range(5):
        ask()
    assert len(listed()) == 2


def test_what_does_not_fit_the_queue_is_dropped_and_counted(app, ask, listed, record, as_alice, monkeypatch):
    record()
    monkeypatch.setattr(ask.module, "MAX_QUEUED", 3)
    for _ in range(5):
        ask(write=False)
    ask.write()
    ask()
    assert len(listed()) == 4
    settings = as_alice.call("get", f"users/alice/apps/{app.name}/recording").json()
    assert (settings["dropped"], settings["reason"]) == (2, "more requests came than could be recorded")


def test_the_model_of_a_canary_is_recorded(app, ask, listed, record):
    record()
    other = Model.objects.create(user=app.user, tenant=app.tenant, name="other", src="x", size=1, state="ready")
    Rollout.objects.create(app=app, model=other, phase="canary", run_name="app-7-2", slot=1, percent=100,
                           address="127.0.0.1:2", by="alice")  # fmt: skip
    places._places.clear()
    sent = routed(app, **{"X-App-Request": "1", "Authorization": f"Bearer {keys.create(app=app, name='a', by='')[1]}"})
    assert (sent["X-App-Model"], sent["X-App-Arm"]) == ("other", "canary")
    ask(headers={"x-app-arm": sent["X-App-Arm"]})
    ask(headers={"x-app-arm": "base"})
    assert [each["canary"] for each in listed()] == ["base", "canary"]
    assert len(listed("?canary=canary")) == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"share": 0}, "share"),
        ({"share": 1.1}, "share"),
        ({"days": 0}, "days"),
        ({"days": 366}, "days"),
        ({"record_kib": 65}, "record_kib"),
        ({"most_mib": 0}, "most_mib"),
        ({"mask": ["a.b"]}, "mask: a.b is neither"),
        ({"mask": ["$"]}, "mask: $ is neither"),
        ({"mask": ["$..a"]}, "mask"),
        ({"mask": ["\x00"]}, "mask"),
        ({"mask": [f"field{number:090}" for number in range(20)]}, "mask: at most 30 masks"),
        ({"mask": "email"}, "mask"),
        ({"other": 1}, "other"),
    ],
)
def test_wrong_settings_are_refused_by_name(app, as_alice, given, words):
    assert words in as_alice.refused("put", f"users/alice/apps/{app.name}/recording", given)


def test_the_tenant_forbids_or_caps(app, ask, listed, record, as_alice):
    path = f"users/alice/apps/{app.name}/recording"
    Tenant.objects.update(record_days=7)
    assert "at most 7 days" in as_alice.refused("put", path, {"days": 8})
    assert record()[1]["days"] == 7
    ask(write=False)
    Tenant.objects.update(record_days=0)
    places._places.clear()
    ask()  # the gateway sends no plan any more; what waits is not stored
    assert listed() == []
    assert "does not allow requests to be recorded" in as_alice.refused("put", path, {"share": 1})
