"""The application gateway: a real nginx before the real platform and real applications (contract 6)."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from accounts import lifecycle as accounts
from apps.models import Application
from datasets.tests.live import Service

pytestmark = pytest.mark.django_db(transaction=True)

TENSOR = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}


class Echo(BaseHTTPRequestHandler):
    """Stands where an application would, and tells what it was sent."""

    def do_GET(self):
        body = json.dumps({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "sessionid=planted")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def echo(adder):
    """A ready application of alice's whose place is taken by Echo."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name="calc", port=31000, state="ready", reserved=False,
        run_name="none", address=f"127.0.0.1:{server.server_port}",
    )  # fmt: skip
    server.shutdown()
    server.server_close()


@pytest.fixture
def front(tmp_path, transactional_db):
    service = Service(tmp_path)
    service.start_web()
    service.start_nginx()
    yield f"http://127.0.0.1:{service.app_port}"
    service.stop(service.nginx)
    service.stop_web()


def bearer_of(user) -> dict:
    return {"Authorization": f"Bearer {accounts.token_of(user)}"}


def test_it_reaches_the_application_with_the_owners_token_only(
    front, deploy, ready, alice, bob, staff, as_alice, until
):
    address = f"{front}/alice/calc"
    assert requests.get(f"{address}/v2", headers=bearer_of(alice)).status_code == 404
    app = deploy()
    starting = requests.get(f"{address}/v2", headers={**bearer_of(alice), "Accept": "text/html"})
    assert (starting.status_code, starting.headers["Retry-After"]) == (503, "2")
    assert "starting" in starting.text
    ready(app)
    for user in (alice, staff):
        answer = requests.post(f"{address}/v2/models/adder/infer", json={"inputs": [TENSOR]}, headers=bearer_of(user))
        assert answer.json()["outputs"][0]["data"] == [2, 3]
    assert requests.get(f"{address}/v2").status_code == 401
    other, nothing = (requests.get(f"{front}/alice/{name}/v2", headers=bearer_of(bob)) for name in ("calc", "no"))
    assert (other.status_code, other.content) == (nothing.status_code, nothing.content) == (404, nothing.content)
    assert as_alice.call("delete", "users/alice/apps/calc").status_code == 200
    until(lambda: not Application.objects.exists())
    assert requests.get(f"{address}/v2", headers=bearer_of(alice)).status_code == 404


def test_a_public_one_needs_no_token(front, deploy, ready, alice, until):
    app = deploy(public=True)
    ready(app)
    address = f"{front}/alice/calc"
    assert requests.post(f"{address}/predict", json={"x": [1, 2]}).json() == {"y": [2, 3]}
    bad = requests.post(f"{address}/v2/models/adder/infer", json={"inputs": []})
    assert (bad.status_code, set(bad.json())) == (400, {"error"})
    assert requests.get(f"{front}/alice/calc?x=1", allow_redirects=False).headers["Location"] == "/alice/calc/?x=1"
    assert "sandbox" in requests.get(f"{address}/v2").headers["Content-Security-Policy"]


def test_no_token_or_cookie_reaches_an_application_and_it_sets_none(front, echo, alice):
    headers = {**bearer_of(alice), "Cookie": "sessionid=secret", "X-Internal-Key": "guess", "X-Own": "kept"}
    answer = requests.get(f"{front}/alice/calc/a%2Fb/../c?token=x&y=%20", headers=headers)
    seen = answer.json()
    assert seen["headers"]["x-own"] == "kept"
    assert seen["headers"]["x-forwarded-prefix"] == "/alice/calc"
    assert not {"authorization", "cookie", "x-internal-key"} & set(seen["headers"])
    assert seen["path"].endswith("?token=x&y=%20")
    assert "Set-Cookie" not in answer.headers


def test_one_that_does_not_answer_is_told_as_503(front, echo, alice):
    Application.objects.filter(pk=echo.pk).update(address="127.0.0.1:9")
    answer = requests.get(f"{front}/alice/calc/v2", headers=bearer_of(alice))
    assert answer.status_code == 503
    assert "started again" in answer.json()["error"]
