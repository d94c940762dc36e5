"""The application gateway: real nginx, platform and applications."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import socketserver
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import numpy as np
import pytest
import requests
import tritonclient.http as triton
import websocket
from django.conf import settings

from apps import proof
from apps.models import Application
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few

from .conftest import NAMES, bearer_of

pytestmark = pytest.mark.django_db(transaction=True)

TENSOR = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}


def raw(status: str, *more: str, before: str = "", after: str = "") -> bytes:
    """Return a whole response, as only a program that writes it by hand gives it."""
    head = "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", *more])
    return f"{before}{head}\r\n\r\n{after}".encode()


ABOUT_THE_HOST = {
    "Set-Cookie": "sessionid=planted; Path=/",
    "Clear-Site-Data": '"*"',
    "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
    "Alt-Svc": 'h2="evil.example:443"; ma=86400',
    "NEL": '{"report_to": "x", "max_age": 86400, "include_subdomains": true}',
    "Report-To": '{"group": "x", "max_age": 86400, "endpoints": [{"url": "https://evil.example"}]}',
    "Reporting-Endpoints": 'x="https://evil.example"',
    "Service-Worker-Allowed": "/",
    "WWW-Authenticate": 'Basic realm="your password, please"',
    "Access-Control-Allow-Credentials": "true",
    "Set-Login": "logged-out",
    "Origin-Agent-Cluster": "?1",
    "X-Sendfile": "/etc/passwd",
}
LINES = [f"{name}: {value}" for name, value in ABOUT_THE_HOST.items()]
PLANTED = "Set-Cookie: sessionid=planted"
RAW = {
    "/plain": raw("200 OK", *LINES, "X-Own: kept", "Access-Control-Allow-Origin: *", "Content-Length: 0"),
    "/lower": raw("200 OK", *(line.lower() for line in LINES), "X-Own: kept", "Content-Length: 0"),
    "/failed": raw("500 Oops", *LINES, "X-Own: kept", "Content-Length: 0"),
    "/asking": raw("401 Unauthorized", *LINES, "X-Own: kept", "Content-Length: 0"),
    "/early": raw("200 OK", "X-Own: kept", "Content-Length: 0", before=raw("103 Early Hints", *LINES).decode()),
    "/trailer": raw("200 OK", "X-Own: kept", "Transfer-Encoding: chunked", "Trailer: Set-Cookie",
                    after=f"1\r\nx\r\n0\r\n{PLANTED}\r\n\r\n"),
    "/space": raw("200 OK", "X-Own: kept", PLANTED.replace(":", " :"), "Content-Length: 0"),
    "/folded": raw("200 OK", "X-Own: kept", f"X-Other: a\r\n {PLANTED}", "Content-Length: 0"),
    "/bare": raw("200 OK", "X-Own: kept", f"X-Other: a\r{PLANTED}", f"X-More: a\n{PLANTED}", "Content-Length: 0"),
    "/null": raw("200 OK", "X-Own: kept", f"X-Other: a\0\r\n{PLANTED}", "Content-Length: 0"),
    "/switched": raw("101 Switching Protocols", "Upgrade: websocket", *LINES, "X-Own: kept")
                 .replace(b"Connection: close", b"Connection: Upgrade"),
}  # fmt: skip


class Echo(BaseHTTPRequestHandler):
    """A fake application that returns the request it received."""

    def do_GET(self):
        if self.path in RAW:
            self.close_connection = True
            return self.wfile.write(RAW[self.path])
        if self.headers.get("Upgrade") == "websocket":
            return self.websocket()
        if self.path == "/slow":
            return self.slow()
        if self.path == "/hang":
            return self.server.arrived.wait(LIMIT_S)
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
        said = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(length)))
        self.wfile.write(bytes([0x81, length]) + said)
        self.close_connection = True

    def slow(self):
        """Send the second half of the response after the client has received the first."""
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"1")
        assert self.server.arrived.wait(LIMIT_S)
        self.wfile.write(b"2")

    def log_message(self, *_):
        pass


class AtSocket(ThreadingHTTPServer):
    """Echo on a unix socket, as an application of this machine."""

    address_family = socket.AF_UNIX
    request_queue_size = 128  # a full queue of a unix socket refuses at once; that of a port lets the caller wait

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0


@pytest.fixture(params=["unix"])
def echo(request, adder, tmp_path):
    """A ready application of alice's, served by Echo on a unix socket or, where a test asks for it, on a port."""
    if request.param == "unix":
        server = AtSocket(str(tmp_path / "echo"), Echo)
        address = f"unix:{tmp_path / 'echo'}"
    else:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
        address = f"127.0.0.1:{server.server_port}"
    server.arrived = threading.Event()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    app = Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name=next(NAMES), port=31000, state="ready", reserved=False,
        run_name="none", address=address,
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
    other, nothing = (requests.get(f"{front}/alice/{target}/v2", headers=bearer_of(bob)) for target in (name, "no"))
    assert (other.status_code, other.content) == (nothing.status_code, nothing.content) == (404, nothing.content)
    assert as_alice.call("delete", f"users/alice/apps/{name}").status_code == 200
    until(lambda: not Application.objects.exists())
    assert requests.get(f"{address}/v2", headers=bearer_of(alice)).status_code == 404


def test_callers_that_ask_at_the_same_time_are_told_apart(front, echo, alice, bob):
    """Requests that arrive together are judged together; none may get the answer to another."""
    address, callers = f"{front}/alice/{echo.name}/v2", [bearer_of(alice), bearer_of(bob), {}]
    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda headers: requests.get(address, headers=headers).status_code, callers * 16))
    assert statuses == [200, 404, 401] * 16


def test_requests_have_the_callers_id_or_one_of_the_gateway(front, echo, alice, as_alice):
    as_alice.call("put", f"users/alice/apps/{echo.name}/recording", {"mask": ["email"]})
    address, evil = f"{front}/alice/{echo.name}/v2", {"X-App-Record": "evil", "X-App-Arm": "evil"}
    answer = requests.get(address, headers={**bearer_of(alice), **evil, "X-Request-Id": "order-17"})
    seen = answer.json()["headers"]
    assert (answer.headers["X-Request-Id"], seen["x-request-id"]) == ("order-17", "order-17")
    assert json.loads(seen["x-app-record"]) == {"share": 1.0, "bytes": 16384, "mask": ["email"]}
    assert "x-app-arm" not in seen, "there is no canary"
    for odd in ("a b", "x" * 65, "-a", '"', "a\tb"):
        answer = requests.get(address, headers={**bearer_of(alice), "X-Request-Id": odd})
        assert re.fullmatch("[0-9a-f]{32}", answer.headers["X-Request-Id"]), odd
        assert answer.json()["headers"]["x-request-id"] == answer.headers["X-Request-Id"]


def test_a_public_one_needs_no_token(front, deploy, ready, alice, until):
    app = deploy(next(NAMES), public=True)
    ready(app)
    address = f"{front}/alice/{app.name}"
    assert requests.post(f"{address}/predict", json={"x": [1, 2]}).json() == {"y": [2, 3]}
    assert requests.head(f"{address}/v2/health/ready").status_code == 200
    assert requests.get(f"{address}/predict").headers["Allow"] == "POST"
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
        "X-Forwarded-Host": "evil.example",
        "Forwarded": "host=evil.example",
        "X-Own": "kept",
    }
    answer = requests.get(f"{front}/alice/{echo.name}/a%2Fb/../c?token=x&y=%20", headers=headers)
    seen = answer.json()
    assert seen["headers"]["x-own"] == "kept"
    assert seen["headers"]["x-forwarded-prefix"] == f"/alice/{echo.name}"
    assert seen["headers"]["x-forwarded-host"] == urlsplit(front).netloc
    assert not {"authorization", "cookie", "x-internal-key", "forwarded"} & set(seen["headers"])
    assert seen["headers"]["x-app-secret"] == proof.secret("none"), "not what the caller has sent"
    assert seen["path"].endswith("?token=x&y=%20")
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("path", few(RAW, 4))
def test_what_a_response_says_about_the_whole_host_is_hidden(front, echo, alice, path):
    """Browsers share cookies, and trust in the host, between its ports: so with the platform."""
    place = urlsplit(front)
    lines = [f"GET /alice/{echo.name}{path} HTTP/1.1", f"Host: {place.netloc}",
             *(f"{name}: {value}" for name, value in bearer_of(alice).items())]  # fmt: skip
    lines += ["Upgrade: websocket", "Connection: Upgrade"] if path == "/switched" else ["Connection: close"]
    with socket.create_connection((place.hostname, place.port), LIMIT_S) as link:
        link.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while piece := link.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 ")
    names = {line.partition(b":")[0].strip().lower().decode() for line in re.split(rb"[\r\n]+", answer)}
    assert not {name.lower() for name in ABOUT_THE_HOST} & names
    assert b"planted" not in answer
    if path in {"/plain", "/lower", "/failed", "/asking", "/early", "/switched"}:
        assert "x-own" in names
        assert b"sandbox" in answer
    if path == "/plain":
        assert "access-control-allow-origin" in names, "what a response says about itself is the application's own"


def test_internal_redirects_of_applications_are_ignored(front, echo, alice):
    """With this header one of our servers makes nginx answer from an internal location."""
    answer = requests.get(f"{front}/alice/{echo.name}/elsewhere", headers=bearer_of(alice))
    assert (answer.status_code, answer.json()["path"]) == (200, "/elsewhere")


@pytest.mark.parametrize("address", ["unix:/nowhere/run-none", "127.0.0.1:9"])
def test_an_application_that_does_not_answer_is_a_503(front, echo, alice, address):
    Application.objects.filter(pk=echo.pk).update(address=address)
    answer = requests.get(f"{front}/alice/{echo.name}/v2", headers=bearer_of(alice))
    assert answer.status_code == 503
    assert "is being restarted" in answer.json()["error"]


@pytest.fixture
def hasty(service, settings):
    """Start nginx with a short time for applications."""
    settings.APP_ANSWER_S = 1
    service.stop(service.nginx)
    service.start_nginx()
    yield
    service.stop(service.nginx)  # the next test starts it again


@pytest.mark.usefixtures("hasty")
def test_an_application_that_hangs_holds_its_caller_for_a_bounded_time(front, echo, alice):
    address = f"{front.replace('http', 'ws')}/alice/{echo.name}/talk"
    there = websocket.create_connection(address, header=bearer_of(alice), timeout=LIMIT_S)
    answer = requests.get(f"{front}/alice/{echo.name}/hang", headers=bearer_of(alice), timeout=LIMIT_S)
    assert answer.status_code == 503
    assert answer.json()["msg"] == "The application did not respond within 1 s (MLP_APP_ANSWER_S)."
    there.send("hello")  # a websocket that was silent for as long is kept
    assert there.recv() == "hello"
    there.close()
    echo.arrived.set()


@pytest.mark.parametrize("echo", ["unix", "port"], indirect=True)
def test_websockets_and_streams_are_forwarded(front, echo, alice):
    there = websocket.create_connection(
        f"{front.replace('http', 'ws')}/alice/{echo.name}/talk", header=bearer_of(alice), timeout=60
    )
    there.send("hello")
    assert there.recv() == "hello"
    there.close()
    with requests.get(f"{front}/alice/{echo.name}/slow", headers=bearer_of(alice), stream=True, timeout=60) as answer:
        assert answer.raw.read(1) == b"1"  # while the application holds the rest back
        echo.arrived.set()
        assert answer.raw.read(1) == b"2"


@pytest.mark.parametrize("echo", ["unix", "port"], indirect=True)
def test_the_address_is_passed_on_as_it_was_sent(front, echo, alice):
    """In its own form, with every character that its parts may have."""
    sent = "/a%2Fb:c/%E5%A5%BD/%3Fx/;y=1,2?q=a:b&u=http://x/%00"
    with requests.Session() as session:
        for _ in range(2):
            answer = session.get(f"{front}/alice/{echo.name}{sent}", headers=bearer_of(alice))
            assert (answer.status_code, answer.json()["path"]) == (200, sent)


def test_nothing_but_a_websocket_makes_a_tunnel(front, echo, alice):
    """By any other protocol, a client could speak with the application without the gateway's look at each request."""
    for upgrade in ("h2c", "HTTP/2.0", "TLS/1.0", "websocket, h2c"):
        headers = {**bearer_of(alice), "Upgrade": upgrade, "Connection": "Upgrade, HTTP2-Settings"}
        seen = requests.get(f"{front}/alice/{echo.name}/", headers=headers).json()["headers"]
        assert not {"upgrade"} & set(seen)
        assert seen.get("connection", "close") == "close"


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


def test_no_answer_of_a_gateway_may_be_framed_or_loaded_by_another_origin(service, front, alice):
    home = service.path("alice", ".home")
    home.mkdir(parents=True, exist_ok=True)
    (home / "page.html").write_text("<script>alert(1)</script>")
    token = bearer_of(alice)
    asked = {
        "/static/mlp/socket.js": 200, "/static/mlp/none.js": 404, "/regist_login": 200, "/nothing": 404,
        "/healthz": 503, "/healthz/nginx": 200, "/internal/apps/route": 404, f"/{'x' * 70000}": 403,
        "/api/v1/auth": 200, "/api/v1/nothing": 403, "/api/v1/users/alice": 200, f"/api/v1/{'x' * 70000}": 403,
        "/data/alice/.home/page.html": 200, "/data/alice/.home/none": 404, "/data/bob/x/y": 404,
        f"{front}/": 404, f"{front}/healthz": 200, f"{front}/alice/none/": 404,
    }  # fmt: skip
    wanted = {
        "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }  # fmt: skip
    got = {}
    for path in asked:
        answer = requests.get(path if path.startswith("http") else service.url + path, headers=token)
        got[path] = answer.status_code, {name: answer.headers.get(name) for name in wanted}
    assert got == {path: (status, wanted) for path, status in asked.items()}


def test_a_browser_keeps_static_files_for_as_long_as_they_are_the_same(service):
    """Where their address has no version, or that of another release, it is asked each time."""
    here, style = service.url + settings.STATIC_URL, "mlp/base.css"
    got = {
        path: requests.get(path)
        for path in (here + style, f"{service.url}/static/v0123456789ab/{style}", f"{service.url}/static/{style}")
    }
    assert {answer.status_code for answer in got.values()} == {200}
    assert len({answer.content for answer in got.values()}) == 1
    assert [answer.headers["Cache-Control"] for answer in got.values()] == [
        "public, max-age=31536000, immutable", "no-cache", "no-cache",
    ]  # fmt: skip
    for path in (here + "mlp/none.css", here + "..%2f..%2fsecret-key", here + "../../secret-key"):
        refused = requests.get(path)
        assert refused.status_code in {400, 404}
        assert "immutable" not in refused.headers.get("Cache-Control", "")
