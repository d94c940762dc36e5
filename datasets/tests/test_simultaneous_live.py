"""Uploads that arrive at the same time: each is admitted beside what the others will store."""

from __future__ import annotations

import pytest
from django.conf import settings

from datasets.tests.live import wait_until
from datasets.tests.test_disk_live import ROOM, Slow, small_disk  # noqa: F401 (a fixture)
from datasets.webdav import inflight
from kernel.broker import broker

pytestmark = pytest.mark.begins(0.1)


def in_flight(number: int) -> None:
    wait_until(lambda: broker().client.hlen(inflight.KEY) >= number)


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
