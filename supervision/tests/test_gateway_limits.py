"""What the gateway does by itself: it refuses too many requests from one address and slow clients, and asks again."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from datasets.tests.live import Service
from mlp.tests.patience import LIMIT_S
from supervision import nginx

UNFINISHED = "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
ADDRESSES = ("/api/v1/users", "/", "/v1/logs", "/ModelTraining/x", "/data/alice/x/file")
MSG = (
    "too many requests from your address at the same time: 3 may be open (MLP_CONNECTIONS_PER_ADDRESS); try again later"
)


@pytest.fixture
def gateway(tmp_path, settings):
    """Start nginx with a low limit, and nothing behind it."""
    settings.CONNECTIONS_PER_ADDRESS = 3
    service = Service(tmp_path)
    service.start_nginx()
    yield service
    service.stop(service.nginx)


@pytest.fixture
def impatient(monkeypatch, request):
    """Start nginx with short time-outs."""
    fill, times = nginx.fill, re.compile(r"(client_header_timeout|client_body_timeout) \d+s")
    monkeypatch.setattr(nginx, "fill", lambda name, values: times.sub(r"\1 1s", fill(name, values)))
    return request.getfixturevalue("gateway")


@contextlib.contextmanager
def unfinished(gateway, count: int):
    """Hold requests whose body never ends, each counted by nginx: it asks for the body after it has counted it."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), LIMIT_S))
            link.sendall(UNFINISHED.format(path="/api/v1/users").encode())
            assert link.recv(1 << 10).startswith(b"HTTP/1.1 100 ")
        yield


def test_more_requests_from_one_address_than_the_limit_are_refused(gateway):
    with unfinished(gateway, 3):
        refusals = [requests.get(gateway.url + path, timeout=LIMIT_S) for path in ADDRESSES]
        put = requests.put(f"{gateway.url}/data/alice/x/file", b"x", timeout=LIMIT_S)
        handshake = {"Upgrade": "websocket", "Connection": "Upgrade"}
        live = requests.get(f"{gateway.url}/ws/live", headers=handshake, timeout=LIMIT_S)
        app = requests.get(f"http://127.0.0.1:{gateway.app_port}/alice/net/", timeout=LIMIT_S)
        chat = requests.get(f"http://127.0.0.1:{gateway.app_port}/alice/net/v1/models", timeout=LIMIT_S)
        assert requests.get(f"{gateway.url}/healthz/nginx", timeout=LIMIT_S).ok, "its supervisor still sees it"
    for refusal in (*refusals, put, live):
        assert (refusal.status_code, refusal.json()) == (503, {"msg": MSG}), refusal.url
        assert refusal.headers["Retry-After"] == "2"
    assert (app.status_code, app.json()["msg"]) == (503, MSG)
    assert (chat.status_code, chat.json()["error"]["message"]) == (429, MSG), "clients of OpenAI's API read this"
    assert (chat.json()["error"]["type"], chat.headers["Retry-After"]) == ("rate_limit_error", "2")


def test_a_body_that_is_too_large_is_refused_in_the_form_of_its_endpoint(gateway):
    app = f"http://127.0.0.1:{gateway.app_port}"
    for address, most, said in (
        (f"{app}/alice/net/predict", 64, "msg"),
        (f"{app}/alice/net/v2/models/net/infer", 64, "error"),
        (f"{gateway.url}/v1/logs", 20, "message"),
        (f"{gateway.url}/loki/api/v1/push", 20, "message"),
        (f"{gateway.url}/ModelTraining/x", 20, "message"),
        (f"{gateway.url}/mlflow/api/2.0/mlflow/runs/create", 20, "message"),
    ):
        request = requests.Request("POST", address, headers={"Content-Length": str((most << 20) + 1)}).prepare()
        with requests.Session() as session:
            answer = session.send(request, timeout=LIMIT_S)
        assert (answer.status_code, answer.headers["Content-Type"]) == (413, "application/json"), address
        assert f"at most {most} MiB" in answer.json()[said]
    away = requests.post(f"{gateway.url}/v1/logs", b"x", timeout=LIMIT_S)
    assert (away.status_code, away.json()["code"]) == (503, 503)


@pytest.mark.parametrize("sent", ["GET / HTTP/1.1\r\nX-Slow: a", UNFINISHED.format(path="/api/v1/users")])
def test_a_client_that_does_not_finish_its_request_is_disconnected(impatient, sent):
    with socket.create_connection(("127.0.0.1", impatient.port), LIMIT_S) as link:
        link.sendall(sent.encode())
        with contextlib.suppress(ConnectionResetError):
            while link.recv(1 << 16):
                pass


def test_a_client_that_sends_its_header_byte_by_byte_is_disconnected(impatient):
    """The limit is for the whole header, not from one byte to the next."""
    with socket.create_connection(("127.0.0.1", impatient.port), LIMIT_S) as link:
        link.settimeout(0.2)
        link.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        end = time.monotonic() + LIMIT_S
        while _goes_on(link):
            assert time.monotonic() < end


def body_of(file) -> bytes:
    """Read the headers of a request and return its body."""
    length = 0
    while (line := file.readline()) and line.strip():
        name, _, value = line.lower().partition(b":")
        length = int(value) if name == b"content-length" else length
    return file.read(length)


@pytest.fixture
def behind(gateway):
    """Keep the bodies that nginx sends to the web server, and answer each request with the status in its path."""
    bodies: list[bytes] = []

    class Counting(socketserver.StreamRequestHandler):
        def handle(self):
            status = re.search(rb"/(40\d) ", self.rfile.readline())
            bodies.append(body_of(self.rfile))
            self.wfile.write(
                b"HTTP/1.1 %s OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
                % (status[1] if status else b"200")
            )

    server = socketserver.ThreadingTCPServer(("127.0.0.1", gateway.web_port), Counting)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield bodies
    server.shutdown()
    server.server_close()


def test_what_shippers_ask_in_vain_is_answered_in_their_form(gateway, behind):
    for path, status in (("v1/404", 404), ("loki/api/405", 405)):
        answer = requests.get(f"{gateway.url}/{path}", timeout=LIMIT_S)
        assert (answer.status_code, answer.json()["code"], answer.headers.get("Allow")) == (
            status, status, "POST" if status == 405 else None)  # fmt: skip
    assert len(behind) == 2


@pytest.fixture
def taking(gateway):
    """Listen where small requests with log lines go: keep their bodies, and send on those that say so."""
    bodies: list[bytes] = []

    class Taking(socketserver.StreamRequestHandler):
        def handle(self):
            bodies.append(body_of(self.rfile))
            place = {b"other": b"X-Accel-Redirect: @other_lines\r\n", b"pushed": b"X-Accel-Redirect: @other_pushed\r\n"}
            more = place.get(bodies[-1], b"")
            self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n%sContent-Length: 5\r\n\r\ntaken" % more)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", gateway.logs_port), Taking)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield bodies
    server.shutdown()
    server.server_close()


def test_small_requests_with_log_lines_go_to_their_listener_and_others_to_the_web_server(gateway, behind, taking):
    def post(path: str, body: bytes, **more) -> str:
        answer = requests.post(gateway.url + path, body, timeout=LIMIT_S, **more)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        return answer.text

    for path in ("/api/v1/aiops/logs", "/v1/logs", "/loki/api/v1/push"):
        assert post(path, b"usual") == "taken"
        assert post(path, b"usual", headers={"Content-Encoding": "snappy"}) == "taken"
        assert post(f"{path}?a=b", b"other") == post(path, b"x" * 10_000) == "ok"
        assert post(path, b"x", headers={"Content-Encoding": "gzip"}) == post(path, iter([b"x"])) == "ok"
        assert requests.get(gateway.url + path, timeout=LIMIT_S).text == "ok"
    assert (taking, len(behind)) == ([b"usual"] * 6, 15)
    assert post("/api/v1/aiops/logs", b"other") == post("/v1/logs", b"pushed") == "ok"
    assert post("/api/v1/users", b"usual") == "ok"
    assert (taking[6:], behind[15:]) == ([b"other", b"pushed"], [b"other", b"pushed", b"usual"])


def test_without_the_listener_the_web_server_takes_small_requests_with_log_lines(gateway, behind):
    answers = [requests.post(f"{gateway.url}/v1/logs", b"usual", timeout=LIMIT_S).text for _ in range(5)]
    assert (answers, behind) == (["ok"] * 5, [b"usual"] * 5)


def test_slow_senders_hold_no_thread_of_the_web_server_and_hinder_nobody(gateway, behind):
    """A body may drip for ever; it waits in nginx, each address has a number of connections, and nobody else waits."""
    with contextlib.ExitStack() as stack:
        links = []
        for number in range(300):
            source = (f"127.0.1.{number // 3 + 1}", 0)
            link = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), LIMIT_S, source))
            link.sendall(UNFINISHED.format(path="/api/v1/users").encode() + b"{")
            links.append(link)
        assert all(link.recv(1 << 10).startswith(b"HTTP/1.1 100 ") for link in links), "all of them are held"
        for round in range(3):
            for link in links:
                link.sendall(b'"')
            answers = [requests.get(f"{gateway.url}/api/v1/users/x", timeout=LIMIT_S) for _ in range(5)]
            assert [answer.text for answer in answers] == ["ok"] * 5
            assert len(behind) == 5 * (round + 1), "none of the slow ones has reached the web server"
        link = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), LIMIT_S, ("127.0.1.1", 0)))
        link.sendall(b"GET /api/v1/users/x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert link.recv(1 << 10).startswith(b"HTTP/1.1 503 "), "a fourth request of one address"


def _goes_on(link: socket.socket) -> bool:
    """Send one more byte and return whether the connection is still open."""
    try:
        link.sendall(b"a")
        return bool(link.recv(1))
    except TimeoutError:
        return True
    except ConnectionError:
        return False


@pytest.mark.parametrize("header", [f"X-Long: {'x' * 60_000}", "\r\n".join(f"X-{n}: {'x' * 30_000}" for n in range(9))])
def test_headers_have_a_size(gateway, header):
    with socket.create_connection(("127.0.0.1", gateway.port), LIMIT_S) as link, contextlib.suppress(ConnectionError):
        link.sendall(f"GET /api/v1/users HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n".encode())
        status, body = link.recv(1 << 16).decode().split("\r\n\r\n")
        assert status.split()[1] == "403"
        assert set(json.loads(body)) == {"msg"}


@pytest.mark.parametrize("method", ["get", "post", "delete"])
def test_a_request_is_answered_by_another_pod_where_that_of_one_attempt_is_lost(tmp_path, settings, method):
    class Answer(BaseHTTPRequestHandler):
        def answer(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(method)))
            self.end_headers()
            self.wfile.write(method.encode())

        do_GET = do_POST = do_DELETE = answer

    there = ThreadingHTTPServer(("127.0.0.2", 0), Answer)
    settings.WEB_ADDRESS = there.server_address
    threading.Thread(target=there.serve_forever, args=(0.05,), daemon=True).start()
    service = Service(tmp_path)  # where nobody listens: the first attempt fails
    service.start_nginx()
    try:
        for _ in range(4):
            answer = requests.request(method, f"{service.url}/api/v1/users", timeout=LIMIT_S)
            assert (answer.status_code, answer.text) == (200, method)
    finally:
        service.stop(service.nginx)
        there.shutdown()
        there.server_close()
