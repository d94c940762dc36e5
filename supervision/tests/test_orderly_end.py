"""`make down` while a request arrives: the gateway answers what it has begun before what is behind it ends."""

from __future__ import annotations

import base64
import json
import signal
import socket
from contextlib import closing

import pytest

from kernel.tests.nats_tools import until
from supervision.tests.running import START_S, Platform, is_free

pytestmark = [pytest.mark.e2e, pytest.mark.begins(0)]


@pytest.fixture
def platform(tmp_path):
    made = Platform(tmp_path / "root", MLP_ADMIN_PASSWORD="only for this test")
    made.start()
    yield made
    if made.process.poll() is None:
        made.stop()
    made.kill(*made.everything())


def test_a_request_that_has_begun_is_answered_though_the_platform_ends(platform):
    login = base64.b64encode(b"admin:only for this test").decode()
    token = json.loads(platform.get("/api/v1/users/admin/token", Authorization=f"Basic {login}")[2])
    body = json.dumps([{"log": f"line {number}"} for number in range(900)]).encode()
    head = (
        "POST /api/v1/aiops/logs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with closing(socket.create_connection(("127.0.0.1", platform.base + 1), 60)) as link:
        link.sendall(head.encode() + body[:100])
        platform.process.send_signal(signal.SIGTERM)
        until(lambda: is_free(platform.base + 1))
        link.sendall(body[100:])
        answer = b"".join(iter(lambda: link.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"taken": 900, "new": 900}
    assert platform.process.wait(START_S) == 0
    assert platform.everything() == []
