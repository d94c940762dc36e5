"""Uploads that arrive at the same time: each is admitted beside what the others will store."""

from __future__ import annotations

import socket

import pytest
from django.conf import settings

from datasets.tests.live import wait_until
from datasets.tests.test_disk_live import ROOM, Slow, small_disk  # noqa: F401 (a fixture)
from datasets.webdav import inflight
from kernel.broker import broker
from mlp.tests.patience import LIMIT_S

pytestmark = pytest.mark.begins(0.1)


def in_flight(number: int) -> None:
    wait_until(lambda: broker().client.hlen(inflight.KEY) >= number)


class Chunked(Slow):
    """An upload that does not say its length, paused after its first bytes."""

    def __init__(self, person, path: str):
        self.length = 0
        head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {person.token}\r\nConnection: close\r\n"
        self.socket = socket.create_connection(("127.0.0.1", person.service.port), LIMIT_S)
        self.socket.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")

    def end(self) -> tuple[int, str]:
        self.socket.sendall(b"0\r\n\r\n")
        return super().end()


@pytest.mark.long
def test_a_home_takes_no_more_than_its_limit_however_many_come_at_once(alice_data, service):
    size = int(service.home_limit * 0.4)
    first = [Slow(alice_data, f"/data/alice/.home/{name}", size) for name in "ab"]
    in_flight(2)
    refusal = alice_data.put("/data/alice/.home/c", data=b"x" * size)
    assert refusal.status_code == 507
    assert "is full" in refusal.json()["msg"]
    again = Slow(alice_data, "/data/alice/.home/a", size)  # of a client that has lost its connection
    assert again.end()[0] == 201
    assert [upload.end()[0] for upload in first] == [204, 201]
    assert alice_data.put("/data/alice/.home/d", data=b"x" * int(service.home_limit * 0.1)).status_code == 201


def test_the_disk_keeps_its_minimum_however_many_come_at_once(small_disk, alice_data):  # noqa: F811
    alice_data.create("big", 1 << 30)
    first = Slow(alice_data, "/data/alice/big/a", int(ROOM * 0.6))
    in_flight(1)
    assert alice_data.put("/data/alice/big/b", data=b"x" * int(ROOM * 0.6)).status_code == 507
    assert alice_data.put("/data/alice/big/b", data=b"x" * int(ROOM * 0.3)).status_code == 201
    assert first.end()[0] == 201
    assert settings.DISK_MINIMUM_MIB


def test_a_connection_that_is_gone_reserves_nothing(alice_data, service):
    size = int(service.home_limit * 0.6)
    first = Slow(alice_data, "/data/alice/.home/a", size)
    in_flight(1)
    assert alice_data.put("/data/alice/.home/b", data=b"x" * size).status_code == 507
    first.socket.close()
    wait_until(lambda: alice_data.put("/data/alice/.home/b", data=b"x" * size).status_code == 201)


def test_a_body_without_length_reserves_half_of_what_a_home_has_left(alice_data, service):
    first = Chunked(alice_data, "/data/alice/.home/a")
    in_flight(1)
    assert alice_data.put("/data/alice/.home/b", data=b"x" * int(service.home_limit * 0.6)).status_code == 507
    assert alice_data.put("/data/alice/.home/b", data=b"x" * int(service.home_limit * 0.4)).status_code == 201
    assert first.end()[0] == 201


def test_a_body_without_length_has_no_room_that_others_have_reserved(alice_data, service):
    first = Slow(alice_data, "/data/alice/.home/a", service.home_limit)
    in_flight(1)
    status, words = Chunked(alice_data, "/data/alice/.home/b").end()
    assert (status, "is full" in words) == (507, True)
    assert first.end()[0] == 201
