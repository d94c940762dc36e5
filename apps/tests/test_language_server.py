"""The server of language models by the protocol of OpenAI's API, with an engine that repeats (scripted_engine.py).

Models by transformers are in test_language_frameworks.py.
"""

from __future__ import annotations

import gzip
import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
import requests

from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S

from .language_models import SCRIPTED, chatting
from .test_openapi import require_valid, try_out

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with chatting(tmp_path_factory.mktemp("served"), program=SCRIPTED) as url:
        yield url


@pytest.fixture
def gate(tmp_path):
    """Return the path of the files for which the engine waits."""
    return tmp_path / "gate"


def body(words: str, **fields) -> dict:
    return {"messages": [{"role": "system", "content": "repeat"}, {"role": "user", "content": words}], **fields}


def ask(url: str, words: str = "hello", **fields) -> dict:
    answer = requests.post(url + CHAT, json=body(words, **fields), timeout=LIMIT_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(url: str, content, path: str = CHAT, **headers) -> tuple[int, dict]:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    answer = requests.post(url + path, data=data, headers=headers, timeout=LIMIT_S)
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status_code, error


def events(url: str, content: dict, path: str = CHAT) -> list[dict]:
    answer = requests.post(url + path, json={**content, "stream": True}, timeout=LIMIT_S)
    assert answer.headers["Content-Type"] == "text/event-stream"
    *lines, last = [line for line in answer.text.split("\n\n") if line]
    assert last == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def release(gate, *places: int) -> None:
    for at in places:
        gate.with_name(f"gate.{at}").touch()


def test_an_answer_has_its_text_its_end_and_its_usage(served):
    answer = ask(served)
    assert (answer["object"], answer["model"]) == ("chat.completion", "lm")
    choice = {"role": "assistant", "content": "hello"}
    assert answer["choices"] == [{"index": 0, "message": choice, "logprobs": None, "finish_reason": "stop"}]
    assert answer["usage"] == {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
    assert ask(served, temperature=0)["choices"][0]["message"]["content"] == "HELLO"
    assert ask(served, model="older")["model"] == "lm", "the name before the application moved"


def test_the_length_is_limited_by_the_request_and_the_context(served):
    for name in ("max_tokens", "max_completion_tokens"):
        answer = ask(served, **{name: 3})
        assert (answer["choices"][0]["message"]["content"], answer["choices"][0]["finish_reason"]) == ("hel", "length")
    endless = ask(served, "endless")
    assert (endless["choices"][0]["finish_reason"], endless["usage"]["total_tokens"]) == ("length", 200)
    short = requests.post(served + TEXT, json={"prompt": "endless"}, timeout=LIMIT_S).json()
    assert (short["usage"]["completion_tokens"], short["choices"][0]["finish_reason"]) == (16, "length")


@pytest.mark.parametrize(
    ("stop", "content"),
    [("llo", "he"), (["xx", "l"], "he"), (["o w", "wor"], "hell"), ("none", "hello world"), ("world!", "hello world")],
)
def test_an_answer_ends_before_a_stop_string(served, stop, content):
    whole = ask(served, "hello world", stop=stop)["choices"][0]
    assert (whole["message"]["content"], whole["finish_reason"]) == (content, "stop")
    pieces = [
        event["choices"][0]["delta"].get("content", "") for event in events(served, body("hello world", stop=stop))
    ]
    assert "".join(pieces) == content


def test_a_stream_has_a_role_pieces_an_end_and_usage_where_it_is_requested(served):
    seen = events(served, body("hey", stream_options={"include_usage": True}))
    assert [event["choices"][0]["delta"] for event in seen[:-1]] == [
        {"role": "assistant", "content": ""}, *({"content": letter} for letter in "hey"), {},
    ]  # fmt: skip
    assert [event["choices"][0]["finish_reason"] for event in seen[:-1]] == [None] * 4 + ["stop"]
    assert {event["object"] for event in seen} == {"chat.completion.chunk"}
    assert len({event["id"] for event in seen}) == 1
    assert (seen[-1]["choices"], seen[-1]["usage"]["completion_tokens"]) == ([], 3)
    assert {event["usage"] for event in seen[:-1]} == {None}
    assert all("usage" not in event for event in events(served, body("hey")))
    texts = [event["choices"][0]["text"] for event in events(served, {"prompt": "hey"}, TEXT)]
    assert "".join(texts) == "hey"


def test_a_prompt_may_be_text_tokens_or_parts(served):
    for prompt in ("hey", ["hey"], [104, 101, 121], [[104, 101, 121]]):
        answer = requests.post(served + TEXT, json={"prompt": prompt}, timeout=LIMIT_S).json()
        assert (answer["choices"][0]["text"], answer["usage"]["prompt_tokens"]) == ("hey", 3)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    message = {"role": "user", "content": parts}
    answer = requests.post(served + CHAT, json={"messages": [message]}, timeout=LIMIT_S).json()
    assert answer["choices"][0]["message"]["content"] == "b"


WRONG = {
    "n": 2, "logprobs": True, "top_logprobs": 3, "logit_bias": {"5": 1}, "tools": [{"type": "function"}],
    "tool_choice": "required", "response_format": {"type": "json_object"}, "presence_penalty": 0.5, "audio": {},
    "temperature": 3, "top_p": -1, "max_tokens": 0, "max_completion_tokens": 1.5, "seed": "a", "stop": [""],
    "stream": 1, "stream_options": {"include_usage": True}, "messages": [], "model": 7, "made_up": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_supported_is_refused_by_its_name(served, name):
    status, error = refused(served, body("hey", **{}) | {name: WRONG[name]})
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", name)
    assert error["message"].startswith(name)


def test_fields_that_ask_for_nothing_are_taken(served):
    nothing = {"n": 1, "logprobs": False, "tools": [], "tool_choice": "auto", "response_format": {"type": "text"},
               "presence_penalty": 0.0, "frequency_penalty": 0, "logit_bias": {}, "user": "alice", "store": False,
               "stop": None, "seed": None, "stream_options": None}  # fmt: skip
    assert ask(served, **nothing)["choices"][0]["message"]["content"] == "hello"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("hey", "messages[0]"), ({"role": "tool", "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"), ({"role": "user", "content": [1]}, "messages[0].content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content"),
        ({"role": "assistant", "content": "", "tool_calls": [1]}, "messages[0].tool_calls"),
        ({"role": "assistant", "content": "hey"}, "messages"),
    ],
)  # fmt: skip
def test_a_message_that_is_not_supported_is_refused_by_its_place(served, message, param):
    status, error = refused(served, {"messages": [message]})
    assert (status, error["param"]) == (400, param)


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b"", b'"\xff"', b"[" * 100_000, b'{"prompt": ["a", "b"]}', b'{"prompt": {}}', b'{"prompt": []}'],
)
def test_an_unreadable_request_is_refused(served, content):
    assert refused(served, content, TEXT)[0] == 400


def test_a_prompt_that_does_not_fit_the_context_is_refused(served):
    for content in (body("x" * 300), body("hey", max_tokens=4000)):
        status, error = refused(served, content)
        assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
        assert "200 tokens" in error["message"]


def test_bodies_are_bounded_also_unpacked(served):
    large = json.dumps(body("x" * (2 << 20))).encode()
    assert refused(served, large)[1]["code"] == "request_too_large"
    assert refused(served, gzip.compress(large), **{"Content-Encoding": "gzip"})[0] == 413
    assert refused(served, b"x", **{"Content-Encoding": "br"})[0] == 415
    small = gzip.compress(json.dumps(body("hey")).encode())
    answer = requests.post(served + CHAT, data=small, headers={"Content-Encoding": "gzip"}, timeout=LIMIT_S)
    assert answer.json()["choices"][0]["message"]["content"] == "hey"
    status, error = refused(served, body("x" * 200), **{"X-App-Body": "100"})
    assert (status, error["message"]) == (413, "body: too large, at most 100 bytes")


def test_other_addresses_and_models_are_refused_in_the_same_form(served):
    status, error = refused(served, {"input": "x"}, "/v1/embeddings")
    assert (status, error["code"], "no embeddings" in error["message"]) == (404, "unknown_url", True)
    status, error = refused(served, body("hey", model="other"))
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    moving = {"X-App-Also": "other"}  # what the gateway says while a canary is up
    answer = requests.post(served + CHAT, json=body("hey", model="other"), headers=moving, timeout=LIMIT_S)
    assert answer.status_code == 200
    shown = requests.get(served + "/v1/models", headers=moving, timeout=LIMIT_S).json()
    assert "other" in [model["id"] for model in shown["data"]]
    answer = requests.get(served + CHAT, timeout=LIMIT_S)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert answer.json()["error"]["message"] == "/v1/chat/completions takes POST, not GET"


def test_models_health_and_description_are_read(served):
    models = requests.get(f"{served}/v1/models").json()
    assert [(model["id"], model["object"]) for model in models["data"]] == [("lm", "model"), ("older", "model")]
    assert requests.get(f"{served}/v1/models/lm").json()["max_model_len"] == 200
    assert requests.get(f"{served}/v1/models/none").status_code == 404
    for path in ("/health", "/v2/health/live", "/v2/models/lm/ready", "/schema"):
        assert requests.get(served + path).status_code == 200
    prefix = {"X-Forwarded-Prefix": "/alice/lm"}
    document = requests.get(f"{served}/openapi.json", headers=prefix).json()
    assert (document["openapi"], document["servers"]) == ("3.1.0", [{"url": "/alice/lm"}])
    assert set(document["paths"]) == {"/v1/models", CHAT, TEXT}


def test_the_answers_are_those_that_it_describes(served):
    document = requests.get(f"{served}/openapi.json", timeout=LIMIT_S).json()
    require_valid(document)
    assert try_out(document, served, {}, 25) == {"GET /v1/models", f"POST {CHAT}", f"POST {TEXT}"}


def test_a_model_that_fails_says_why_whole_and_in_a_stream(served):
    for stream in (False, True):
        status, error = refused(served, body("fail", stream=stream))
        assert (status, error["type"]) == (500, "server_error")
        assert error["message"] == "the model failed: RuntimeError: out of memory"
    assert ask(served)["choices"][0]["message"]["content"] == "hello"


def test_without_a_template_messages_are_refused(tmp_path):
    (tmp_path / "no-template").touch()
    with chatting(tmp_path, program=SCRIPTED) as url:
        status, error = refused(url, body("hey"))
        assert (status, error["code"]) == (400, "chat_template_missing")
        assert CHAT not in requests.get(f"{url}/openapi.json").json()["paths"]
        answer = requests.post(url + TEXT, json={"prompt": "hey"}, timeout=LIMIT_S).json()
        assert answer["choices"][0]["text"] == "hey"


# --- streams, queues and limits --------------------------------------------------------------------------------------
def begun(url: str, words: str, **fields) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    place = urlsplit(url)
    link = http.client.HTTPConnection(place.hostname, place.port, timeout=LIMIT_S)
    link.request("POST", CHAT, json.dumps(body(words, stream=True, **fields)))
    return link, link.getresponse()


def next_event(answer: http.client.HTTPResponse) -> str:
    line = answer.readline().decode().strip()
    assert answer.readline() == b"\n"
    return line.removeprefix("data: ")


def test_the_first_piece_arrives_before_the_last_is_made(served, gate):
    link, answer = begun(served, f"wait {gate} abc")
    assert json.loads(next_event(answer))["choices"][0]["delta"]["role"] == "assistant"
    assert json.loads(next_event(answer))["choices"][0]["delta"] == {"content": "a"}
    release(gate, 1, 2)  # the engine waits for it before "b"
    assert [json.loads(next_event(answer))["choices"][0]["delta"] for _ in "bc?"] == [
        {"content": "b"},
        {"content": "c"},
        {},
    ]
    assert next_event(answer) == "[DONE]"
    link.close()


def test_when_the_caller_leaves_the_engine_stops_and_the_next_is_answered(served, gate):
    link, answer = begun(served, f"wait {gate} abcdef")
    next_event(answer)
    next_event(answer)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, served, "next")
        answer.close()
        link.close()
        until(gate.with_name("gate.cancelled").exists)
        assert waiting.result(LIMIT_S)["choices"][0]["message"]["content"] == "next"


def test_whoever_leaves_before_a_whole_answer_stops_the_engine_too(served, gate):
    link = begun_without_answer(served, f"wait {gate} ab")
    waiting = begun_without_answer(served, f"wait {gate.with_name('other')} ab")
    waiting.close()
    link.close()
    until(gate.with_name("gate.cancelled").exists)
    assert ask(served)["choices"][0]["finish_reason"] == "stop"


def test_a_prompt_is_encoded_once_that_of_a_request_whose_time_is_over_is_done(served, gate):
    late = requests.post(served + CHAT, json=body(f"encode {gate}"), headers={"X-App-Time": "1"}, timeout=LIMIT_S)
    assert late.status_code == 504
    assert gate.with_name("gate.encoding").exists()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, served, "next")
        assert requests.get(f"{served}/v1/models", timeout=LIMIT_S).status_code == 200
        gate.with_name("gate.encoded").touch()
        assert waiting.result(LIMIT_S)["choices"][0]["message"]["content"] == "next"


def test_beyond_the_time_of_the_application_the_answer_is_given_up(served, gate):
    headers = {"X-App-Time": "1"}
    whole = requests.post(served + CHAT, json=body(f"wait {gate} ab"), headers=headers, timeout=LIMIT_S)
    assert (whole.status_code, whole.json()["error"]["type"]) == (504, "timeout_error")
    cancelled = gate.with_name("gate.cancelled")
    until(cancelled.exists)
    cancelled.unlink()
    content = body(f"wait {gate} ab", stream=True)
    stream = requests.post(served + CHAT, json=content, headers=headers, timeout=LIMIT_S)
    assert stream.status_code == 200
    assert json.loads(stream.text.strip().rpartition("data: ")[2])["error"]["type"] == "timeout_error"
    until(cancelled.exists)
    assert ask(served)["choices"][0]["finish_reason"] == "stop"


def test_too_many_requests_at_once_are_asked_to_try_again(served, gate):
    links = [begun_without_answer(served, f"wait {gate} ab")]
    links += [begun_without_answer(served, "hello") for _ in range(31)]
    status, headers, error = until_crowded(served)
    assert (status, error["code"], headers["Retry-After"]) == (429, "rate_limit_exceeded", "1")
    release(gate, 1)
    assert [link.getresponse().status for link in links] == [200] * 32
    assert ask(served)["choices"][0]["finish_reason"] == "stop"


def begun_without_answer(url: str, words: str) -> http.client.HTTPConnection:
    place = urlsplit(url)
    link = http.client.HTTPConnection(place.hostname, place.port, timeout=LIMIT_S)
    link.request("POST", CHAT, json.dumps(body(words)))
    return link


def until_crowded(url: str) -> tuple[int, dict, dict]:
    """Send requests until one is refused. Those that come before the others have arrived are given up."""
    seen = []

    def crowded() -> bool:
        try:
            answer = requests.post(url + CHAT, json=body("hello"), timeout=1)
        except requests.Timeout:
            return False
        seen.append((answer.status_code, answer.headers, answer.json().get("error")))
        return answer.status_code == 429

    until(crowded)
    return seen[-1]
