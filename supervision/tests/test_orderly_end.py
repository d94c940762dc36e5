"""How `make up` and `make down` end: nothing that has begun is cut off, and nothing is left but the data."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import time
from contextlib import closing

import pytest

from kernel.tests.nats_tools import until
from runners.base import RunSpec
from runners.local import LocalRunner
from supervision.tests.running import START_S, Platform, is_free
from supervision.tests.shared import Shared

pytestmark = [pytest.mark.e2e, pytest.mark.begins(0.001)]  # after the other visitors, which it would have start again


@pytest.fixture
def platform(shared):
    return shared.running()


@pytest.fixture
def stopped(shared):
    """The platform after its end: its root, its ports, and no process."""
    if shared.process is None:
        shared.running()
    shared.end()
    return shared


def begun(platform: Platform) -> tuple[socket.socket, bytes]:
    """Send the beginning of a request, with many lines of a log; return the connection and the rest."""
    login = base64.b64encode(f"admin:{platform.admin_password()}".encode()).decode()
    token = json.loads(platform.get("/api/v1/users/admin/token", Authorization=f"Basic {login}")[2])
    body = json.dumps([{"log": f"line {number}"} for number in range(900)]).encode()
    head = (
        "POST /api/v1/aiops/logs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    link = socket.create_connection(("127.0.0.1", platform.base + 1), START_S)
    link.sendall(head.encode() + body[:100])
    return link, body[100:]


def test_it_ends_gracefully_and_leaves_no_process(platform, tmp_path):
    """The gateway answers what it has begun before what is behind it ends; runs end, too."""
    runner = LocalRunner(platform.root / "run" / "runs")
    runner.start(RunSpec("probe", ["sleep", "600"], tmp_path, {"PATH": os.environ["PATH"]}, tmp_path / "log"))
    link, rest = begun(platform)
    with closing(link):
        platform.process.send_signal(signal.SIGTERM)
        until(lambda: is_free(platform.base + 1))
        link.sendall(rest)
        answer = b"".join(iter(lambda: link.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["taken"] == 900
    assert platform.process.wait(START_S) == 0
    assert platform.everything() == []
    assert all(is_free(platform.base + number) for number in range(1, 13))
    assert not [*(platform.root / "run").rglob("*.pid"), *(platform.root / "run").rglob("*.sock")]
    assert not [path for path in (platform.root / "run").rglob("*") if path.is_socket()]
    assert runner.poll("probe").state == "exited"
    runner.forget("probe")


@pytest.mark.long
def test_a_port_in_use_is_reported_with_its_setting(stopped):
    with closing(socket.socket()) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", stopped.base + 10))
        other.listen()
        refused = stopped.call()
    assert refused.returncode != 0
    assert str(stopped.base + 10) in refused.stdout
    assert "MLP_PORT_BASE" in refused.stdout
    assert stopped.everything() == []


@pytest.mark.long
def test_a_part_that_cannot_start_is_named_and_everything_ends(stopped):
    broken = stopped.root.with_name("broken-nginx")
    broken.write_text("#!/bin/sh\necho this nginx is broken\nexit 1\n")
    broken.chmod(0o700)
    refused = stopped.call(MLP_NGINX=str(broken))
    assert refused.returncode != 0
    assert "gateway" in refused.stdout
    assert "this nginx is broken" in refused.stdout
    assert str(stopped.root / "log" / "gateway" / "gateway.log") in refused.stdout
    assert stopped.everything() == []


@pytest.mark.long
def test_the_next_start_finds_all_data(stopped: Shared):
    password = stopped.admin_password()
    print(f"\nsecond start: {stopped.start():.1f} s")
    assert stopped.admin_password() == password
    login = base64.b64encode(f"admin:{password}".encode()).decode()
    assert stopped.get("/api/v1/users/admin/token", Authorization=f"Basic {login}")[0] == 200
    stopped.wait_healthy()


@pytest.mark.long
def test_a_second_ctrl_c_ends_it_at_once(platform):
    platform.process.send_signal(signal.SIGINT)
    until(lambda: "Stopping the platform" in platform.output.read_text(), START_S)  # it has the signal
    time.sleep(1.1)  # what comes sooner counts as the same wish
    assert platform.stop(signal.SIGINT) == 0
    assert platform.everything() == []
