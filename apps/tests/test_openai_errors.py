"""What the application gateway refuses at the addresses of OpenAI's API, in the form that its clients read."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket

import pytest
import requests
from django.core.cache import cache

from apps import callers, keys
from apps.models import Application
from mlp.tests.patience import LIMIT_S

from .conftest import NAMES, bearer_of

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/v1/chat/completions"
FORM = {"message", "type", "param", "code"}


@pytest.fixture
def gone(adder):
    """An application of alice's that is ready in the database and does not answer."""
    return Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name=next(NAMES), port=31000, state="ready",
        reserved=False, run_name="none", address="unix:/nowhere/run-none",
    )  # fmt: skip


def refused(address: str, headers: dict | None = None, content: bytes = b"{}") -> tuple:
    """Return the status, the type and the code of a refusal, and after how many seconds to try again."""
    answer = requests.post(address, data=content, headers=headers, timeout=LIMIT_S)
    assert answer.headers["Content-Type"] == "application/json"
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == FORM
    assert error["message"]
    return answer.status_code, error["type"], error["code"], answer.headers.get("Retry-After")


def test_who_may_not_call_it_gets_an_authentication_error(front, gone, alice, bob):
    unknown = (401, "authentication_error", "invalid_api_key", None)
    assert refused(f"{front}/alice/{gone.name}{PATH}") == unknown
    assert refused(f"{front}/alice/{gone.name}{PATH}", {"Authorization": "Bearer mlp_a1_wrong"}) == unknown
    missing = (404, "not_found_error", "application_not_found", None)
    assert refused(f"{front}/alice/{gone.name}{PATH}", bearer_of(bob)) == missing
    for address in ("/alice/none", "/Alice/Some_Thing", ""):
        assert refused(f"{front}{address}{PATH}", bearer_of(alice)) == missing


def test_what_is_not_there_at_the_moment_says_when_to_try_again(front, gone, alice):
    address = f"{front}/alice/{gone.name}{PATH}"
    away = (503, "server_error", "application_unavailable", "2")
    assert refused(address, bearer_of(alice)) == away
    Application.objects.filter(pk=gone.pk).update(state="creating")
    cache.clear()
    assert refused(address, bearer_of(alice)) == away


def test_a_body_that_is_too_large_is_refused(front, gone, alice):
    callers.set_access(user=alice, name=gone.name, by="alice", body_mib=1)
    large = refused(f"{front}/alice/{gone.name}{PATH}", bearer_of(alice), b"x" * (2 << 20))
    assert large == (413, "invalid_request_error", "request_too_large", None)
    too_large_for_all = requests.post(
        f"{front}/alice/{gone.name}{PATH}",
        headers={**bearer_of(alice), "Content-Length": str(1 << 30)},
        timeout=LIMIT_S,
    )
    assert (too_large_for_all.status_code, set(too_large_for_all.json()["error"])) == (413, FORM)


def test_a_key_beyond_its_limit_gets_a_rate_limit_error(front, gone):
    _row, text = keys.create(app=gone, name="shop", by="alice", rate=1)
    address, headers = f"{front}/alice/{gone.name}{PATH}", {"Authorization": f"Bearer {text}"}
    assert refused(address, headers)[0] == 503, "the first one is admitted"
    status, kind, code, wait_s = refused(address, headers)
    assert (status, kind, code) == (429, "rate_limit_error", "rate_limit_exceeded")
    assert int(wait_s) > 0


def test_other_addresses_keep_their_form(front, gone):
    for path in ("/v2", "/predict", "/v10", "/a/v1/models"):
        answer = requests.get(f"{front}/alice/{gone.name}{path}", timeout=LIMIT_S)
        assert (answer.status_code, set(answer.json())) == (401, {"error", "msg"}), path


@pytest.mark.parametrize(
    "line",
    [b"POST /alice/calc/v1/chat/completions x HTTP/1.1", b"POST /alice/calc/v1/\x01 HTTP/1.1", b"post /v1/x HTTP/1.1",
     b"POST /alice/calc/v1/chat/completions HTTP/9.1", b"POST /alice/calc/v1?" + b"a" * 90_000 + b" HTTP/1.1",
     b"POST /alice/calc/v1/x HTTP/1.1\r\nno header"],
)  # fmt: skip
def test_what_is_no_valid_http_is_refused_in_the_same_form(service, line):
    with contextlib.closing(socket.create_connection(("127.0.0.1", service.app_port), LIMIT_S)) as link:
        with contextlib.suppress(ConnectionError):
            link.sendall(line + b"\r\nHost: x\r\n\r\n")
        response = http.client.HTTPResponse(link)
        response.begin()
        body = json.loads(response.read())
    assert (response.status, set(body), body["error"]["type"]) == (400, {"error"}, "invalid_request_error")
