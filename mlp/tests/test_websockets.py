"""The websocket server: whatever a client sends, or does not read, uses little memory and does not affect others."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import websocket

from mlp import websockets
from mlp.tests.patience import LIMIT_S

from . import flood, servers

HELLO = (
    "GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{more}\r\n"
)
TEXT, PING, LAST, MASKED = 0x1, 0x9, 0x80, bytes(4)
SENT = 100 << 20  # what a test tries to send; the kernel's buffers take a few MiB of it
LITTLE = 60  # MiB


@pytest.fixture
def server(tmp_path):
    """Start a server for one test, which measures its memory."""
    with running(tmp_path) as (port, process):
        yield port, process


@pytest.fixture(scope="module")
def shared_port(tmp_path_factory):
    """Start a server for all other tests."""
    with running(tmp_path_factory.mktemp("daphne")) as (port, _process):
        yield port


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[int, subprocess.Popen]]:
    port = servers.free_port()
    command = [sys.executable, "-m", "mlp.websockets", "-b", servers.HOST, "-p", str(port), "-v", "0"]
    process = servers.start(folder, "daphne", [*command, "mlp.tests.flood:application"], port)
    yield port, process
    servers.stop(process)


def test_hundreds_of_pages_may_come_at_once(tmp_path):
    """As after a restart of the platform, while the server is busy: it is stopped meanwhile."""
    path = tmp_path / "socket"
    command = [sys.executable, "-m", "mlp.websockets", "-u", str(path), "-v", "0", "mlp.tests.flood:application"]
    process = servers.begin(command, tmp_path / "log")
    links: list[socket.socket] = []
    try:
        while not path.exists():
            assert process.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.05)
        process.send_signal(signal.SIGSTOP)
        for _ in range(500):
            links.append(socket.socket(socket.AF_UNIX))
            links[-1].setblocking(False)
            links[-1].connect(str(path))  # raises where the queue is full
        process.send_signal(signal.SIGCONT)
        links[-1].settimeout(LIMIT_S)
        links[-1].sendall(HELLO.format(path="/quick", more="").encode())
        assert links[-1].recv(100).startswith(b"HTTP/1.1 ")
    finally:
        for link in links:
            link.close()
        servers.stop(process)


def resident(process: subprocess.Popen) -> int:
    """Return the peak of resident memory in MiB."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) >> 10


def read_to_the_end(link: websocket.WebSocket) -> None:
    while link.recv() != "end":
        pass


def frame(kind: int, body: bytes) -> bytes:
    """Return a masked frame; the mask is zero, so the body is sent as it is."""
    size = bytes([0x80 | len(body)]) if len(body) < 126 else b"\xfe" + len(body).to_bytes(2)
    return bytes([kind]) + size + MASKED + body


@contextlib.contextmanager
def raw(port: int, path: str, more: str = "") -> Iterator[socket.socket]:
    """Open a connection and send a handshake, whose answer is not read."""
    with socket.create_connection((servers.HOST, port), timeout=LIMIT_S) as link:
        link.sendall(HELLO.format(path=path, more=more).encode())
        yield link


@contextlib.contextmanager
def opened(port: int, path: str = "/") -> Iterator[socket.socket]:
    """Open a websocket and read no further than the first message."""
    with raw(port, path) as link:
        answer = b""
        while not answer.endswith(b"end"):
            answer += link.recv(1 << 16)
        yield link


def sent_until_it_blocks(port: int, link: socket.socket, data: bytes, most: int = SENT) -> int:
    """Return how many bytes the server and the kernel took until no more was taken, though the server, which has one
    thread, answered others meanwhile.
    """
    link.setblocking(False)
    count, rest, answers = 0, data, 0
    while count < most and answers < 3:
        try:
            taken = link.send(rest)
        except BlockingIOError:
            with opened(port):
                answers += 1
        else:
            count, rest, answers = count + taken, rest[taken:] or data, 0
    return count


def test_a_client_that_does_not_read_is_disconnected_without_affecting_others(server):
    port, process = server
    before = resident(process)
    stalled = websocket.create_connection(f"ws://{servers.HOST}:{port}/flood", timeout=LIMIT_S)
    stalled.send("begin")
    other = websocket.create_connection(f"ws://{servers.HOST}:{port}/", timeout=LIMIT_S)
    assert other.recv() == "end"
    assert resident(process) - before < LITTLE, "the 100 MiB were kept"
    with pytest.raises((websocket.WebSocketConnectionClosedException, ConnectionError)):
        read_to_the_end(stalled)
    other.close()


def test_what_is_paced_waits_for_a_client_that_does_not_read(shared_port):
    """As the output of `mlp attach` does: nobody is disconnected, and nothing is lost."""
    slow = websocket.create_connection(f"ws://{servers.HOST}:{shared_port}/paced", timeout=LIMIT_S)
    slow.send("begin")
    for _ in range(3):  # the server has one thread: without pacing it would have sent all by the first answer
        with opened(shared_port):
            pass
    sizes = []
    while (message := slow.recv()) != "end":
        sizes.append(len(message))
    assert sizes == [len(flood.PIECE)] * (flood.PIECES // 4)
    slow.close()


def test_a_client_that_reads_gets_everything(server):
    port, process = server
    reader = websocket.create_connection(f"ws://{servers.HOST}:{port}/", timeout=LIMIT_S)
    assert reader.recv() == "end"
    reader.close()
    before = resident(process)
    with requests.get(f"http://{servers.HOST}:{port}/", stream=True, timeout=LIMIT_S) as stream:
        assert sum(map(len, stream.iter_content(1 << 20))) == flood.PIECES * len(flood.PIECE) + len("end")
    assert resident(process) - before < LITTLE, "a response is streamed as fast as it is read"


def test_clients_that_send_faster_than_they_are_handled_are_not_read_meanwhile(server):
    """Before the handshake is answered, and while the application is busy. Nothing that was sent is lost."""
    port, process = server
    message = frame(LAST | TEXT, b"x" * 60_000)
    before = resident(process)
    with raw(port, "/pending") as pending, raw(port, "/idle") as busy:
        assert sent_until_it_blocks(port, pending, message) < SENT
        assert sent_until_it_blocks(port, busy, message) < SENT
        assert resident(process) - before < LITTLE, "what was sent was kept"
    hasty = websocket.create_connection(f"ws://{servers.HOST}:{port}/idle", timeout=LIMIT_S)
    for _ in range(2 * websockets.MAX_WAITING):
        hasty.send("more")
    websocket.create_connection(f"ws://{servers.HOST}:{port}/release", timeout=LIMIT_S).close()
    assert hasty.recv() == "end"
    hasty.send("count")
    assert hasty.recv() == str(2 * websockets.MAX_WAITING + 1)
    hasty.close()


def test_pings_of_a_client_that_does_not_read_are_not_answered(shared_port):
    pings, times = frame(LAST | PING, b"p" * 125) * 500, 120
    with opened(shared_port) as link:
        link.sendall(pings * times)
        link.sendall(frame(LAST | TEXT, b"count"))
        received = 0
        while (piece := link.recv(1 << 16)) and not piece.endswith(b"\x81\x011"):
            received += len(piece)
    assert received < len(pings) * times * 0.9


@pytest.mark.parametrize(
    "frames",
    [
        bytes([LAST | TEXT, 0xFF]) + (2**63 - 1).to_bytes(8) + MASKED,
        bytes([LAST | TEXT, 0xFF]) + (websockets.MAX_MESSAGE + 1).to_bytes(8) + MASKED,
        frame(TEXT, b"x" * 60_000) + frame(0, b"x" * 60_000),
    ],
    ids=["announced 2^63", "one byte more", "in fragments"],
)
def test_a_client_whose_message_is_too_long_is_disconnected(shared_port, frames):
    with opened(shared_port) as link, contextlib.suppress(ConnectionResetError):
        link.sendall(frames)
        while link.recv(1 << 16):
            pass


def test_a_handshake_with_a_body_is_refused(shared_port):
    with raw(shared_port, "/", "Content-Length: 4\r\n") as link:
        link.sendall(b"\x81\x80\x00\x00")
        assert link.recv(1 << 16).startswith(b"HTTP/1.1 400 ")


def test_the_reason_of_a_close_reaches_the_client(shared_port):
    link = websocket.create_connection(f"ws://{servers.HOST}:{shared_port}/reason", timeout=LIMIT_S)
    closing = link.recv_frame()  # without an answer: the server may have closed the connection by then
    assert (closing.opcode, closing.data) == (websocket.ABNF.OPCODE_CLOSE, (4429).to_bytes(2) + b"too many")
