"""An application and the platform know each other: nobody else is answered, nobody else is taken as the application."""

from __future__ import annotations

import hashlib
import hmac
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

import runners
from apps import launching, proof
from kernel import outbound, sockets
from mlp.tests.patience import LIMIT_S

from .conftest import NAMES, bearer_of

pytestmark = pytest.mark.django_db(transaction=True)

CHALLENGE = "5" * 64
ASKED = [
    *(("GET", path) for path in ("/", "/v2", "/schema", "/v2/models/adder", f"/-proof/{CHALLENGE[1:]}")),
    *(("POST", path) for path in ("/predict", "/v2/models/adder/infer", "/v2/health/ready")),
]


def test_it_answers_only_those_who_know_its_secret(front, deploy, ready, alice):
    app, other = ready(deploy(next(NAMES), public=True)), deploy(next(NAMES))
    address, secret = sockets.parse(app.address), proof.secret(app.run_name)
    wrong = proof.secret(f"app-{other.pk}-1")
    for headers in ({}, {"X-App-Secret": wrong}, {"X-App-Secret": ""}, {"X-App-Secret": f"{secret},{secret}"}):
        for method, path in ASKED:
            answer = outbound.exchange(address, method, path, b'{"x": [1]}', headers, limit_s=LIMIT_S, most=1000)
            assert answer[0] == 401, (method, path)
            assert b"gateway only" in answer[1]
    healthy = outbound.exchange(address, "GET", "/v2/health/ready", limit_s=LIMIT_S, most=1000)
    assert healthy == (200, b'{"live":true,"ready":true}')
    shown = outbound.exchange(address, "GET", f"/-proof/{CHALLENGE}", limit_s=LIMIT_S, most=1000)
    assert shown == (200, hmac.new(secret.encode(), CHALLENGE.encode(), hashlib.sha256).hexdigest().encode())
    for headers in ({}, {"X-App-Secret": wrong}, bearer_of(alice)):
        called = requests.post(f"{front}/alice/{app.name}/predict", json={"x": [1]}, headers=headers)
        assert called.json() == {"y": [2]}
        proven = requests.get(f"{front}/alice/{app.name}/-proof/{CHALLENGE}", headers=headers)
        assert proven.status_code == 404, "the gateway's callers get no proofs"


class Impostor(BaseHTTPRequestHandler):
    """A server that answers 200 to everything, as what is not the application may."""

    def do_GET(self):
        self.server.heard.append((self.path, str(self.headers)))
        self.send_response(200)
        self.send_header("Content-Length", "64")
        self.end_headers()
        self.wfile.write(b"a" * 64)

    def log_message(self, *_):
        pass


def test_an_impostor_at_its_address_is_not_taken_as_the_application(deploy, tasks, monkeypatch, ready):
    app = deploy()
    with ThreadingHTTPServer(("127.0.0.1", 0), Impostor) as server:
        server.heard = []
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with monkeypatch.context() as patched:
            patched.setattr(type(runners.get()), "address", lambda *_: server.server_address)
            launching.launch(app.pk, follow=False)
            launching.launch(app.pk, follow=False)
        server.shutdown()
    app.refresh_from_db()
    assert (app.state, app.address) == ("creating", "")
    assert server.heard
    assert proof.secret(app.run_name) not in str(server.heard)
    assert ready(app).address.startswith("unix:")
