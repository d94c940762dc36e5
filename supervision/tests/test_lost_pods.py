"""Connections of the gateways to parts on other machines, which may be gone without a word."""

from __future__ import annotations

import socket
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from supervision import nginx
from supervision.tests.test_client_address import gateway  # noqa: F401

ELSEWHERE = ("web.example.org", 30003)
KEPT_ALIVE = "02"  # the timer of a connection whose other end is asked whether it is there, in /proc/net/tcp


def timers(port: int) -> list[str]:
    """Return the timers of the open connections to a port of this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[5].partition(":")[0] for row in rows if row[2].endswith(f":{port:04X}") and row[3] == "01"]


@pytest.mark.parametrize(("address", "watched"), [(ELSEWHERE, True), (("127.0.0.1", 30003), False)])
def test_nginx_asks_whether_a_part_elsewhere_is_still_there(gateway, settings, address, watched):  # noqa: F811
    """While it waits for an answer; Kubernetes sets after how many seconds it gives up (the chart's sysctls)."""
    own, settings.WEB_ADDRESS = settings.WEB_ADDRESS, address
    given, settings.WEB_ADDRESS = nginx.variables()["watched"], own  # that name leads nowhere
    with socket.create_server(("127.0.0.1", 0)) as behind:
        behind.settimeout(LIMIT_S)
        port = behind.getsockname()[1]
        link = HTTPConnection("127.0.0.1", gateway(watched=given, web_server=f"127.0.0.1:{port}"), timeout=LIMIT_S)
        answers: list[int] = []

        def ask() -> None:
            link.request("GET", "/regist_login")
            answers.append(link.getresponse().status)

        asking = threading.Thread(target=ask)
        asking.start()
        connection, _ = behind.accept()
        with connection:
            assert connection.recv(1 << 16).startswith(b"GET /regist_login")
            until(lambda: (KEPT_ALIVE in timers(port)) == watched)
            connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        asking.join(LIMIT_S)
        link.close()
    assert answers == [204]


class Counting(BaseHTTPRequestHandler):
    """Answers on connections that it would keep, and counts them."""

    protocol_version = "HTTP/1.1"
    connections = 0

    def setup(self):
        super().setup()
        type(self).connections += 1

    def do_GET(self):
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        """Suppress the access log."""


def test_a_connection_to_a_part_elsewhere_is_not_kept(gateway, settings):  # noqa: F811
    """The pod behind it may be lost when the next request comes, which then waits until its sender gives up."""
    Counting.connections = 0
    server = ThreadingHTTPServer(("127.0.0.2", 0), Counting)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    settings.WEB_ADDRESS = server.server_address
    link = HTTPConnection("127.0.0.1", gateway(web_server=f"127.0.0.2:{server.server_port}"), timeout=LIMIT_S)
    for asked in range(1, 6):
        link.request("GET", "/regist_login")
        answer = link.getresponse()
        assert (answer.status, answer.read()) == (204, b"")
        assert Counting.connections == asked
    link.close()
    server.shutdown()
    server.server_close()


class Behind:
    """A server that reads a request and answers with 204, or closes the connection where it `dies`."""

    def __init__(self, dies: bool):
        self.dies, self.got = dies, []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                data = b""
                while not data.endswith((b"\r\n\r\n", b"{}")) or (b"PUT" in data and not data.endswith(b"{}")):
                    data += connection.recv(1 << 16)
                self.got.append(data)
                if not self.dies:
                    connection.sendall(b"HTTP/1.1 204 No Content\r\nX-Accel-Buffering: no\r\n\r\n")

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)  # else it listens until `accept` returns
        self.socket.close()


def asked(port: int, method: str, path: str) -> int:
    link = HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    link.request(method, path, b"{}" if method == "PUT" else None, {"X-Sent-Method": "GET"})
    status = link.getresponse().status
    link.close()
    return status


WRITES = [
    ("PUT", "/api/v1/users/alice/apps/shop:restart"), ("DELETE", "/api/v1/users/alice/jobs/fit?x=%2Fy"),
    ("DELETE", "/mlflow/api/2.0/mlflow/x"), ("DELETE", "/data/alice/cats/a"), ("MOVE", "/data/alice/cats/b"),
]  # fmt: skip


def test_a_write_that_a_server_has_received_is_not_sent_to_another_one(gateway):  # noqa: F811
    """It may have been done; the caller is told that nobody has answered. What only reads is sent again."""
    dead, live = Behind(dies=True), Behind(dies=False)
    port = gateway(web_server=f"{dead.address} max_fails=0", web_more=f"server {live.address} backup;")
    for method, path in WRITES:
        assert asked(port, method, path) == 503
    assert [data.split(b" ", 1)[0].decode() for data in dead.got] == [method for method, _path in WRITES]
    assert [data.split(b" ", 2)[1].decode() for data in dead.got[:3]] == [path for _method, path in WRITES[:3]]
    assert live.got == []
    assert asked(port, "GET", "/api/v1/users/alice/jobs") == 204
    assert (len(dead.got), len(live.got)) == (len(WRITES) + 1, 1)
    dead.close()
    live.close()


def test_a_write_that_nobody_has_received_is_sent_to_another_server(gateway):  # noqa: F811
    gone, live = Behind(dies=True), Behind(dies=False)
    gone.close()
    port = gateway(web_server=f"{gone.address} max_fails=0", web_more=f"server {live.address} backup;")
    for method, path in WRITES:
        assert asked(port, method, path) == 204
    assert [data.split(b" ", 1)[0].decode() for data in live.got] == [method for method, _path in WRITES]
    assert live.got[0].endswith(b"\r\n\r\n{}")
    assert b"x-sent-method" not in live.got[0].lower()
    live.close()
