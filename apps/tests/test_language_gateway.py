"""Language models through the application gateway and as the platform starts them; the engine repeats."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import pytest
import requests

from apps import callers, keys, launching, proof
from apps.models import Application
from kernel.tests.nats_tools import until as until_true
from mlp.tests.patience import LIMIT_S
from models_app import reconcile as models_reconcile
from models_app.models import Model
from models_app.tests.test_hugging_face import made

from .conftest import NAMES, bearer_of
from .language_models import SCRIPTED, chatting
from .test_language_server import CHAT, body, next_event, release

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def gate(tmp_path):
    return tmp_path / "gate"


@pytest.fixture
def spoken(adder, tmp_path):
    """A ready application of alice's, served by the scripted engine."""
    folder = tmp_path / "lm"
    folder.mkdir()
    with chatting(folder, program=SCRIPTED, MLP_APP_SECRET=proof.secret("none")) as url:
        yield Application.objects.create(
            user=adder.user, tenant=adder.tenant, model=adder, name=next(NAMES), port=31000, state="ready",
            reserved=False, run_name="none", address=urlsplit(url).netloc,
        )  # fmt: skip


def streamed(front: str, app: Application, words: str, headers: dict):
    place = urlsplit(front)
    link = http.client.HTTPConnection(place.hostname, place.port, timeout=LIMIT_S)
    link.request("POST", f"/alice/{app.name}{CHAT}", json.dumps(body(words, stream=True)), headers)
    return link, link.getresponse()


def test_the_first_piece_passes_the_gateway_before_the_last_is_made(front, spoken, gate, alice):
    link, answer = streamed(front, spoken, f"wait {gate} ab", bearer_of(alice))
    assert answer.headers["Content-Type"] == "text/event-stream"
    assert json.loads(next_event(answer))["choices"][0]["delta"]["role"] == "assistant"
    assert json.loads(next_event(answer))["choices"][0]["delta"] == {"content": "a"}
    release(gate, 1)
    assert json.loads(next_event(answer))["choices"][0]["delta"] == {"content": "b"}
    link.close()


def test_a_caller_that_leaves_the_gateway_stops_the_engine(front, spoken, gate, alice):
    link, answer = streamed(front, spoken, f"wait {gate} ab", bearer_of(alice))
    next_event(answer)
    answer.close()
    link.close()
    until_true(gate.with_name("gate.cancelled").exists)


def test_a_key_opens_it_until_it_is_revoked(front, spoken):
    _row, text = keys.create(app=spoken, name="shop", by="alice")
    headers = {"Authorization": f"Bearer {text}"}
    address = f"{front}/alice/{spoken.name}/v1"
    assert requests.get(f"{address}/models", headers=headers).json()["data"][0]["id"] == "lm"
    answer = requests.post(f"{address}/chat/completions", json=body("hey"), headers=headers, timeout=LIMIT_S)
    assert answer.json()["choices"][0]["message"]["content"] == "hey"
    keys.revoke(app=spoken, name="shop", by="alice")
    assert requests.get(f"{address}/models", headers=headers).status_code == 401


def test_refusals_of_the_server_pass_the_gateway(front, spoken, alice):
    address = f"{front}/alice/{spoken.name}{CHAT}"
    answer = requests.post(address, json=body("x" * 300), headers=bearer_of(alice), timeout=LIMIT_S)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    answer = requests.post(f"{front}/alice/{spoken.name}/v1/embeddings", json={}, headers=bearer_of(alice))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    failed = requests.post(address, json=body("fail"), headers=bearer_of(alice), timeout=LIMIT_S)
    assert (failed.status_code, failed.json()["error"]["type"]) == (500, "server_error")


def test_the_time_of_the_application_ends_a_stream(front, spoken, gate, alice):
    callers.set_access(user=alice, name=spoken.name, by="alice", answer_s=1)
    link, answer = streamed(front, spoken, f"wait {gate} ab", bearer_of(alice))
    last = answer.read().decode().strip().rpartition("data: ")[2]
    assert json.loads(last)["error"]["message"] == "the model did not answer within 1 s, the limit of the application"
    link.close()


@pytest.mark.parametrize(("kind", "program"), [("transformers", "chat.py"), ("predictor", "server.py")])
def test_a_language_model_is_started_by_its_own_program(alice, adder, kind, program):
    Model.objects.filter(pk=adder.pk).update(format=kind)
    app = Application.objects.create(
        user=alice, tenant=alice.tenant, model_id=adder.pk, name="talk", port=31000, reserved=False, run_name="app-1-1"
    )
    assert launching.spec_of(app).command[2].endswith(f"/serving/{program}")


def test_a_model_without_its_packages_says_which_is_missing(as_alice, until, home):
    made(home / "lm")
    assert as_alice.call("post", "users/alice/models", {"name": "lm", "src": "home/lm"}).status_code == 201

    def checked() -> bool:
        models_reconcile.run()
        return Model.objects.get().state in ("ready", "error")

    until(checked)
    model = Model.objects.get()
    assert (model.state, "the package transformers is missing" in model.reason) == ("error", True)
