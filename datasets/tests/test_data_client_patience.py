"""Retries of the data client: with a controlled clock, against a server that breaks connections."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace

import pytest

from datasets.data_client import web
from datasets.data_client.errors import Failure

PATIENCE_S = 300
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Clock:
    """A fake clock, also for the pauses between tries."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds

    @staticmethod
    def is_set() -> bool:
        return False


class Server:
    """Breaks the first connections after the head (and the body); `took` is the time in s that passes meanwhile."""

    def __init__(self, clock: Clock, breaks: int, took: float):
        self.clock, self.breaks, self.took, self.tries = clock, breaks, took, 0
        self.sent = threading.Event()  # cleared by a client that says when it has sent its body
        self.sent.set()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                self.tries += 1
                data = connection.recv(65536)
                if b"Content-Length: 4" in data:
                    while not data.endswith(b"body"):
                        data += connection.recv(65536)
                self.sent.wait(30)
                self.clock.now += self.took
                if self.tries > self.breaks:
                    connection.sendall(ANSWER)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(web, "time", SimpleNamespace(monotonic=clock.monotonic))
    monkeypatch.setenv("no_proxy", "*")
    return clock


@pytest.fixture
def begin(clock):
    servers = []

    def begin(breaks: int, took: float) -> tuple[Server, web.Web]:
        servers.append(Server(clock, breaks, took))
        client = web.Web(servers[-1].url, PATIENCE_S)
        client.stopping = clock
        return servers[-1], client

    yield begin
    for server in servers:
        server.socket.close()


def test_a_long_first_try_that_broke_is_retried(begin):
    server, client = begin(breaks=1, took=2 * PATIENCE_S)
    assert client.call("GET", "/").status == 200
    assert server.tries == 2


def test_an_upload_over_a_slow_link_is_retried_each_time_it_breaks(begin, clock):
    server, client = begin(breaks=4, took=0)

    def blocks():
        clock.now += 2 * PATIENCE_S
        yield b"body"

    assert client.send("PUT", "/", 4, blocks, {}).status == 200
    assert server.tries == 5


def test_a_server_that_stops_answering_is_given_up(begin):
    server, client = begin(breaks=1000, took=120)

    def blocks():
        server.sent.clear()
        yield b"body"
        server.sent.set()

    with pytest.raises(Failure, match="gave up after 4 tries"):
        client.send("PUT", "/", 4, blocks, {})
    assert server.tries == 4


def test_a_server_that_always_breaks_is_given_up_after_the_limit(begin, clock):
    server, client = begin(breaks=1000, took=0)
    began = clock.now
    with pytest.raises(Failure):
        client.call("GET", "/")
    assert PATIENCE_S <= clock.now - began < PATIENCE_S + 15
    assert server.tries > 10
