"""Servers and parts that hang (stopped, not dead) or are killed: requests are answered soon, by the right status."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from supervision.tests.running import Platform
from supervision.tests.visitor import ADMIN_PASSWORD, USER, Answer, Feed, Hammer, Visitor

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.begins(0)]

# What a server is needed for: 503 while it hangs. Everything else is answered as usual.
NEEDS = {
    "valkey": {"health", "create job", "websocket of a page"},
    "nats": {"health", "metrics", "opni status", "log lines by otlp", "log lines by loki"},
}
BEHIND = ("web", "websockets", "data")  # the gateway
WITHOUT_DATABASE = {"auth", "live", "login form", "opni status"}


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    settings = {"MLP_ADMIN_PASSWORD": ADMIN_PASSWORD, "MLP_WEBSOCKETS_PER_USER": "1100"}
    platform = Platform(tmp_path_factory.mktemp("hanging") / "root", **settings)
    platform.start()
    yield platform
    if platform.process.poll() is None:
        platform.stop()
    platform.kill(*platform.everything())


@pytest.fixture(scope="module")
def visitor(platform):
    return Visitor(platform)


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def all_well(visitor: Visitor) -> dict[str, Answer]:
    """Return the answers to every kind of request, once none of them fails."""
    failing = {}

    def ask() -> dict[str, Answer] | None:
        answers = visitor.ask_all()
        failing.clear()
        failing.update({name: answer for name, answer in answers.items() if answer.status >= 500})
        return None if failing else answers

    return until(ask, words=lambda: str(failing))


@pytest.mark.parametrize("server", ["valkey", "nats", "database"])
def test_a_server_that_hangs_holds_no_request_and_costs_nothing_that_was_acknowledged(platform, visitor, server):
    platform.wait_healthy()
    feed = Feed(visitor)
    usual = all_well(visitor)
    needing = NEEDS.get(server) or usual.keys() - WITHOUT_DATABASE
    with stopped(platform.pids(server)):
        for answers in (visitor.ask_all(), visitor.ask_all()):  # each fails if it is held for as long as by the gateway
            wrong = {
                name: answer
                for name, answer in answers.items()
                if answer.status not in ({usual[name].status, 503} if name in needing else {usual[name].status})
            }
            assert wrong == {}
        status, health = platform.health()
        assert (status, health["failing"][0]) == (503, server)  # on a busy machine, those that wait for it follow
    platform.wait_healthy()
    after = all_well(visitor)
    assert {name: answer.status - usual[name].status for name, answer in after.items()} == dict.fromkeys(after, 0)
    last = max(visitor.epochs)
    seen = feed.until(last)
    assert len(seen) == len(set(seen)), "a row came twice"
    until(lambda: not visitor.missing(), words=lambda: str(visitor.missing()))


def test_hanging_processes_of_ours_are_named_and_replaced(platform, visitor):
    parts = ("web", "websockets", "data", "ingest")
    platform.wait_healthy()
    hung = {part: platform.pids(part) for part in parts}
    with stopped([pid for pids in hung.values() for pid in pids]):
        status, _, body = platform.get("/healthz")
        assert (status, json.loads(body)["failing"]) == (503, ["web"])
        for part, pids in hung.items():
            platform.healed(part, set(pids))
    assert visitor.infer() == 200
    assert visitor.upload(10) == 201


def test_kills_are_never_answered_with_500(platform, visitor):
    platform.wait_healthy()
    kinds = visitor.kinds()
    meant = {
        "application": {200, 503},
        "application, a stranger": {401, 503},
        "application, by session": {200, 503},
        "no application": {404, 503},
        "auth": {200, 503},
        "list jobs": {200, 503},
        "upload small": {201, 503},
        "upload large": {201, 503},
        "download": {200, 503},
        "page jobs": {200, 503},
    }
    with Hammer({name: kinds[name] for name in meant}) as hammer:
        for part in ("web", "database", "data", "valkey", "web"):
            platform.healed(part, platform.kill_part(part))
        app = application(platform)
        platform.kill(*app)
        until(lambda: application(platform) - app)
        until(lambda: visitor.infer() == 200)
    assert {name: statuses - meant[name] for name, statuses in hammer.statuses.items() if statuses - meant[name]} == {}
    assert visitor.missing() == set()


def thousand(platform: Platform, port: int, request: bytes) -> Counter[bytes]:
    """Send the request by a thousand connections at the same time, and return how often each status line came. Until
    all of them are sent, the servers behind the gateway stand still.
    """
    with ExitStack() as links:
        with stopped([*(pid for part in BEHIND for pid in platform.pids(part)), *application(platform)]):
            opened = []
            for index in range(1000):  # from several addresses: one may have MLP_CONNECTIONS_PER_ADDRESS
                source = (f"127.0.0.{2 + index % 3}", 0)
                link = socket.create_connection(("127.0.0.1", platform.base + port), LIMIT_S, source)
                opened.append(links.enter_context(link))
                link.sendall(request)
        return Counter(link.makefile("rb").readline().strip() for link in opened)


@pytest.mark.parametrize("endpoint", ["web", "data", "application", "websocket"])
def test_a_thousand_requests_at_once_are_all_answered(platform, visitor, endpoint):
    """As after a restart, when every page that is open asks at the same time."""
    platform.wait_healthy()
    token = f"Host: x\r\nAuthorization: Bearer {visitor.token}\r\n"
    upload = f"PUT /data/{USER}/coming/thousand HTTP/1.1\r\n{token}Content-Length: 1\r\n\r\nx"
    shake = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    shake += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    port, text, meant = {
        "web": (1, f"GET /api/v1/users/{USER}/jobs HTTP/1.1\r\n{token}\r\n", {b"HTTP/1.1 200 OK"}),
        "data": (1, upload, {b"HTTP/1.1 201 Created", b"HTTP/1.1 204 No Content"}),
        "application": (2, f"GET /{USER}/calc/v2 HTTP/1.1\r\n{token}\r\n", {b"HTTP/1.1 200 OK"}),
        "websocket": (
            1,
            f"GET /api/v1/users/{USER}/job_metrics/wait?token={visitor.token} HTTP/1.1\r\nHost: x\r\n{shake}\r\n",
            {b"HTTP/1.1 101 Switching Protocols"},
        ),
    }[endpoint]
    statuses = thousand(platform, port, text.encode())
    assert set(statuses) <= meant, statuses


def application(platform: Platform) -> set[int]:
    """Return the processes that serve the application: below a recorder of this root."""
    root = os.fsencode(platform.root)
    serving = {int(entry.name) for entry in Path("/proc").glob("[0-9]*") if b"serving/server.py" in command(entry.name)}
    return {pid for pid in serving if any(root in command(above) for above in ancestors(pid))}


def command(pid: int | str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            return
        yield pid
