"""vLLM itself: a tiny random model from its folder to the answers that OpenAI's client gets, and what is left of it.

The package is larger than all others together, so it is installed apart; MLP_VLLM is the Python that has it, and what
programs of runs need (requirements-runs.txt). Without a GPU it has to be a build for the processor (docs/testing.md).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from django.conf import settings

from apps import keys
from kernel.tests.nats_tools import until as until_true
from mlp.tests.patience import LIMIT_S
from models_app import reconcile as models_reconcile
from models_app.models import Model
from resources.models import Tenant

from .conftest import NAMES
from .language_models import LOG, started
from .test_language_engines import CALL
from .test_language_frameworks import ASK, HELLO, MAKE
from .test_language_server import CHAT, begun, next_event

PYTHON = os.environ.get("MLP_VLLM", "")
ROOM_MIB = 3200
MANY = 40  # answers at once

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PYTHON, reason="MLP_VLLM, a Python with the package vllm, is not given"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The model of the other engines' tests, with heads of a size that vLLM computes, and calls of tools."""
    place = tmp_path_factory.mktemp("vllm")
    larger = MAKE.replace("hidden_size=16, intermediate_size=16", "hidden_size=64, intermediate_size=64")
    run(larger.replace("max_position_embeddings=128", "max_position_embeddings=1024"), str(place))
    template = place / "llama" / "chat_template.jinja"
    template.write_text(template.read_text() + "{% if tools %}{{ tools | tojson }}<tool_call></tool_call>{% endif %}")
    return place / "llama"


@pytest.fixture
def other(folder, tmp_path):
    """The model for a server of its own, with a log of its own."""
    shutil.copytree(folder, tmp_path / "lm", ignore=shutil.ignore_patterns("*.log"))
    return tmp_path / "lm"


@pytest.fixture(scope="module")
def served(folder):
    with serving(folder) as (_process, url):
        yield url


@contextlib.contextmanager
def serving(folder: Path):
    """Yield the process of the server and its address; nothing that it has started is left at the end."""
    process, url = started(folder, python=PYTHON, MLP_RAM_MIB=str(ROOM_MIB))
    seen = below(process.pid)
    assert (len(seen) > 1, "(vllm)" in said(folder)) == (True, True), "it computes in processes of its own"
    yield process, url
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) in (1, -signal.SIGTERM), said(folder)
    until_true(lambda: not alive(seen))


def said(folder: Path) -> str:
    return (folder / LOG).read_text()[-2000:]


def below(pid: int) -> set[int]:
    found = set()
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for each in map(int, (thread / "children").read_text().split()):
                found |= {each, *below(each)}
    return found


def alive(pids: set[int]) -> list[str]:
    """Return the states of those that have not ended; one that waits to be reaped has."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            found += [state] if state != "Z" else []
    return found


def run(script: str, *arguments: str) -> str:
    environment = {"PATH": os.defpath, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [PYTHON, "-c", script, *arguments], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def ask(url: str, **fields) -> dict:
    content = {"messages": [{"role": "user", "content": "hello"}], **fields}
    answer = requests.post(url + CHAT, json=content, timeout=LIMIT_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_openais_client_gets_the_same_as_from_the_other_engines(served):
    seen = json.loads(run(ASK.replace('"x" * 500', '"x" * 2000'), served))
    assert (seen["models"], seen["model"]) == (["lm", "older"], "lm")
    first = seen["first"]
    assert first == seen["again"] == seen["streamed"], "the same seed"
    assert first["text"] not in (seen["other"]["text"], seen["greedy"]["text"]), "its own temperature does not count"
    assert (first["finish"], first["usage"]["completion_tokens"]) == ("length", 20)
    assert first["usage"]["prompt_tokens"] == len("system: be brief\nuser: hello\n")
    before = first["text"].partition(seen["stop"])[0]
    assert (seen["stopped"]["text"], seen["stopped"]["finish"]) == (before, "stop")
    assert (seen["text"]["text"], seen["tokens"]) == (seen["streamed_text"], 2)
    assert seen["unlimited"]["usage"]["total_tokens"] <= 1024
    assert [each[:2] for each in seen["refused"]] == [
        ["BadRequestError", "unsupported_parameter"],
        ["NotFoundError", "model_not_found"],
        ["BadRequestError", "context_length_exceeded"],
        ["BadRequestError", "context_length_exceeded"],
        ["NotFoundError", "unknown_url"],
        ["BadRequestError", None],
    ]


def test_calls_and_json_follow_their_schema(served):
    calls = re.sub(r"(?m)^from langchain_openai.*\n|^tool = ChatOpenAI.*\n", "", CALL)
    seen = json.loads(run(calls.replace('"lang": tool.invoke("hello").tool_calls[0]["name"]', '"lang": ""'), served))
    finish, name, arguments = seen["called"]
    assert (finish, name, seen["streamed"]) == ("tool_calls", "move", ["move"])
    for given in (arguments, seen["arguments"], seen["shaped"]):
        assert set(given) == {"x", "kind"}
        assert (0 <= given["x"] <= 99, given["kind"] in ("a", "b")) == (True, True)
    assert (seen["after"], seen["refused"]) == (3, "response_format")


def test_a_strict_call_within_a_text_follows_its_schema(served):
    """The model writes anything; what it calls by chance among 20 answers has the form of the schema."""
    schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "move", "strict": True, "parameters": schema}}]
    answer = ask(served, tools=tools, max_tokens=50, seed=1)
    assert answer["usage"]["completion_tokens"] <= 50
    for call in answer["choices"][0]["message"].get("tool_calls", []):
        assert json.loads(call["function"]["arguments"])["x"] in (1, 2)


def test_many_answers_are_computed_at_once_and_those_left_make_room(served):
    """More are begun than one after the other would allow: each has its first piece before one has ended."""
    for _round in range(3):
        links = [begun(served, "hello", max_tokens=900, seed=at) for at in range(MANY)]
        for _link, answer in links:
            assert json.loads(next_event(answer))["choices"][0]["delta"]["role"] == "assistant"
        for link, answer in links:
            answer.close()
            link.close()
    with ThreadPoolExecutor(MANY) as pool:
        answers = [*pool.map(lambda at: ask(served, max_tokens=20, seed=at), range(MANY))]
    assert {answer["usage"]["completion_tokens"] for answer in answers} <= {*range(1, 21)}


def test_what_has_begun_is_answered_when_the_group_gets_sigterm(other):
    """A run gets SIGTERM as a group; vLLM's processes do not see it."""
    with serving(other) as (process, url):
        link, answer = begun(url, "hello", max_tokens=200, seed=1)
        next_event(answer)
        for each in {process.pid, *below(process.pid)}:
            os.kill(each, signal.SIGTERM)
        events = []
        while not events or events[-1] != "[DONE]":
            events.append(next_event(answer))
        assert json.loads(events[-2])["choices"][0]["finish_reason"] in ("length", "stop")
        link.close()


def test_when_vllm_dies_the_server_ends_and_says_why(other):
    with serving(other) as (process, _url):
        for each in below(process.pid):
            os.kill(each, signal.SIGKILL)
        until_true(lambda: process.poll() is not None)
        assert (process.returncode, "the processes of vLLM have ended" in said(other)) == (1, True), said(other)


def test_a_stop_while_it_loads_leaves_nothing(other):
    process, _url = started(other, python=PYTHON, wait=False, MLP_RAM_MIB=str(ROOM_MIB))
    until_true(lambda: len(below(process.pid)) > 1 or process.poll() is not None)
    seen = below(process.pid)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) == -signal.SIGTERM, said(other)
    until_true(lambda: not alive(seen))


def test_too_little_memory_is_said_at_once(other):
    process, _url = started(other, python=PYTHON, wait=False, MLP_RAM_MIB="1024")
    assert process.wait(LIMIT_S) == 1
    assert "vLLM needs at least" in said(other)


@pytest.mark.django_db(transaction=True)
def test_it_serves_an_application_in_a_run_of_the_platform(folder, as_alice, home, until, ready, front, monkeypatch):
    """Isolated, with the memory of the application, no internet, and tokens counted for the key."""
    monkeypatch.setattr(settings, "RUN_PYTHON", PYTHON)
    home.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, home / "lm", ignore=shutil.ignore_patterns("*.log"))
    Tenant.objects.update(ram=8192)
    assert as_alice.call("post", "users/alice/models", {"name": "lm", "src": "home/lm"}).status_code == 201

    def checked() -> bool:
        models_reconcile.run()
        return Model.objects.get().state in ("ready", "error")

    until(checked)
    model = Model.objects.get()
    assert (model.state, model.format) == ("ready", "transformers"), model.reason
    order = {"name": next(NAMES), "model_name": "lm", "cpu": 1, "ram": ROOM_MIB}
    assert as_alice.call("post", "users/alice/apps", order).status_code == 201
    app = ready(model.served_by.get())
    assert "(vllm)" in as_alice.call("get", f"users/alice/apps/{app.name}/log").content.decode()
    _row, text = keys.create(app=app, name="shop", by="alice")
    assert json.loads(run(HELLO, f"{front}/alice/{app.name}", text)) == 6
