"""The application gateway: real nginx, platform and applications (contract 6)."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import requests
import tritonclient.http as triton
import websocket

from apps import proof
from apps.models import Application

from .conftest import NAMES, bearer_of

pytestmark = pytest.mark.django_db(transaction=True)

TENSOR = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}


class Echo(BaseHTTPRequestHandler):
    """A fake application that returns the request it received."""

    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            return self.websocket()
        if self.path == "/slow":
            return self.slow()
        body = json.dumps({"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}).encode()
        self.send_response(200)
        self.send_header("Set-Cookie", "sessionid=planted")
        if self.path == "/elsewhere":
            self.send_header("X-Accel-Redirect", "/-app")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def websocket(self):
        """Send one short message back."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        length = self.rfile.read(2)[1] & 127
        mask = self.rfile.read(4)
        said = bytes(one ^ mask[at % 4] for at, one in enumerate(self.rfile.read(length)))
        self.wfile.write(bytes([0x81, length]) + said)
        self.close_connection = True

    def slow(self):
        """Send the second half of the response after the client has received the first."""
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"1")
        assert self.server.arrived.wait(10)
        self.wfile.write(b"2")

    def log_message(self, *_):
        pass


@pytest.fixture
def echo(adder):
    """A ready application of alice's, served by Echo."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.arrived = threading.Event()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    app = Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name=next(NAMES), port=31000, state="ready", reserved=False,
        run_name="none", address=f"127.0.0.1:{server.server_port}",
    )  # fmt: skip
    app.arrived = server.arrived
    yield app
    server.shutdown()
    server.server_close()


def test_only_the_owners_token_reaches_the_application(front, deploy, ready, alice, bob, staff, as_alice, until):
    name = next(NAMES)
    address = f"{front}/alice/{name}"
    assert requests.get(f"{address}/v2", headers=bearer_of(alice)).status_code == 404
    app = deploy(name)
    starting = requests.get(f"{address}/v2", headers={**bearer_of(alice), "Accept": "text/html"})
    assert (starting.status_code, starting.headers["Retry-After"]) == (503, "2")
    assert "starting" in starting.text
    ready(app)
    for user in (alice, staff):
        answer = requests.post(f"{address}/v2/models/adder/infer", json={"inputs": [TENSOR]}, headers=bearer_of(user))
        assert answer.json()["outputs"][0]["data"] == [2, 3]
    assert requests.get(f"{address}/v2").status_code == 401
    other, nothing = (requests.get(f"{front}/alice/{one}/v2", headers=bearer_of(bob)) for one in (name, "no"))
    assert (other.status_code, other.content) == (nothing.status_code, nothing.content) == (404, nothing.content)
    assert as_alice.call("delete", f"users/alice/apps/{name}").status_code == 200
    until(lambda: not Application.objects.exists())
    assert requests.get(f"{address}/v2", headers=bearer_of(alice)).status_code == 404


def test_a_public_one_needs_no_token(front, deploy, ready, alice, until):
    app = deploy(next(NAMES), public=True)
    ready(app)
    address = f"{front}/alice/{app.name}"
    assert requests.post(f"{address}/predict", json={"x": [1, 2]}).json() == {"y": [2, 3]}
    bad = requests.post(f"{address}/v2/models/adder/infer", json={"inputs": []})
    assert (bad.status_code, set(bad.json())) == (400, {"error"})
    assert requests.get(f"{address}?x=1", allow_redirects=False).headers["Location"] == f"/alice/{app.name}/?x=1"
    assert "sandbox" in requests.get(f"{address}/v2").headers["Content-Security-Policy"]


def test_tokens_and_cookies_are_neither_forwarded_nor_set(front, echo, alice):
    headers = {
        **bearer_of(alice),
        "Cookie": "sessionid=secret",
        "X-Internal-Key": "guess",
        "X-App-Secret": "guess",
        "X-Own": "kept",
    }
    answer = requests.get(f"{front}/alice/{echo.name}/a%2Fb/../c?token=x&y=%20", headers=headers)
    seen = answer.json()
    assert seen["headers"]["x-own"] == "kept"
    assert seen["headers"]["x-forwarded-prefix"] == f"/alice/{echo.name}"
    assert not {"authorization", "cookie", "x-internal-key"} & set(seen["headers"])
    assert seen["headers"]["x-app-secret"] == proof.secret("none"), "not what the caller has sent"
    assert seen["path"].endswith("?token=x&y=%20")
    assert "Set-Cookie" not in answer.headers


def test_internal_redirects_of_applications_are_ignored(front, echo, alice):
    """With this header one of our servers makes nginx answer from an internal location."""
    answer = requests.get(f"{front}/alice/{echo.name}/elsewhere", headers=bearer_of(alice))
    assert (answer.status_code, answer.json()["path"]) == (200, "/elsewhere")


def test_an_application_that_does_not_answer_is_a_503(front, echo, alice):
    Application.objects.filter(pk=echo.pk).update(address="127.0.0.1:9")
    answer = requests.get(f"{front}/alice/{echo.name}/v2", headers=bearer_of(alice))
    assert answer.status_code == 503
    assert "is being restarted" in answer.json()["error"]


def test_websockets_and_streams_are_forwarded(front, echo, alice):
    there = websocket.create_connection(
        f"{front.replace('http', 'ws')}/alice/{echo.name}/talk", header=bearer_of(alice), timeout=10
    )
    there.send("hello")
    assert there.recv() == "hello"
    there.close()
    with requests.get(f"{front}/alice/{echo.name}/slow", headers=bearer_of(alice), stream=True, timeout=20) as answer:
        assert answer.raw.read(1) == b"1"  # while the application holds the rest back
        echo.arrived.set()
        assert answer.raw.read(1) == b"2"


def test_the_standard_client_works_unchanged(front, deploy, ready, alice):
    app = ready(deploy(next(NAMES)))
    client = triton.InferenceServerClient(f"{front.removeprefix('http://')}/alice/{app.name}")
    try:
        headers = bearer_of(alice)
        assert client.is_server_ready(headers=headers)
        assert not client.is_server_ready()
        assert client.get_model_metadata("adder", headers=headers)["inputs"][0]["name"] == "x"
        tensor = triton.InferInput("x", [2], "FP32")
        for binary in (True, False):
            tensor.set_data_from_numpy(np.array([1, 2], np.float32), binary_data=binary)
            result = client.infer("adder", [tensor], headers={**headers})  # it writes into them
            assert result.as_numpy("y").tolist() == [2, 3]
    finally:
        client.close()
