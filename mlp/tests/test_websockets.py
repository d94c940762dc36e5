"""The websocket server: a client that does not read uses little memory and does not affect others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import websocket

from . import servers


@pytest.fixture
def server(tmp_path):
    port = servers.free_port()
    command = [sys.executable, "-m", "mlp.websockets", "-b", servers.HOST, "-p", str(port), "-v", "0"]
    process = servers.start(tmp_path, "daphne", [*command, "mlp.tests.flood:application"], port)
    yield port, process
    servers.stop(process)


def resident(process: subprocess.Popen) -> int:
    """Return the peak of resident memory in MiB."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) >> 10


def read_to_the_end(link: websocket.WebSocket) -> None:
    while link.recv() != "end":
        pass


def test_a_client_that_does_not_read_is_disconnected_without_affecting_others(server):
    port, process = server
    before = resident(process)
    stalled = websocket.create_connection(f"ws://{servers.HOST}:{port}/flood", timeout=20)
    stalled.send("begin")
    other = websocket.create_connection(f"ws://{servers.HOST}:{port}/", timeout=20)
    assert other.recv() == "end"
    assert resident(process) - before < 60, "the 100 MiB were kept"
    with pytest.raises((websocket.WebSocketConnectionClosedException, ConnectionError)):
        read_to_the_end(stalled)
    other.close()


def test_a_client_that_reads_gets_everything(server):
    port, _ = server
    reader = websocket.create_connection(f"ws://{servers.HOST}:{port}/", timeout=20)
    assert reader.recv() == "end"
    reader.close()
