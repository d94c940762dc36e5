"""Uploads in parts through the real servers: in order, resumable after any kill, atomic, within the declared size."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import pytest

from datasets.tests.live import Person, stored, wait_until
from datasets.webdav import spool
from mlp.tests.tiers import few

HOME = "/data/alice/.home/big"


def part(person, path: str, data: bytes, first: int, total: int):
    headers = {"Content-Range": f"bytes {first}-{first + len(data) - 1}/{total}"}
    return person.put(path, data=data, headers=headers)


def arrived(person, path: str, total: int) -> int:
    answer = person.put(path, headers={"Content-Range": f"bytes */{total}"})
    assert answer.status_code == 202, answer.text
    return int(answer.headers["Upload-Offset"])


def test_a_file_appears_with_its_last_part(photos, service):
    path, file = "/data/alice/photos/a/b.bin", service.path("alice", "photos", "a", "b.bin")
    assert arrived(photos, path, 90) == 0
    answer = part(photos, path, b"x" * 40, 0, 90)
    assert (answer.status_code, answer.headers["Upload-Offset"]) == (202, "40")
    assert part(photos, path, b"y" * 30, 40, 90).headers["Upload-Offset"] == "70"
    assert (file.exists(), stored(), arrived(photos, path, 90)) == (False, 0, 70)
    assert part(photos, path, b"z" * 20, 70, 90).status_code == 201
    assert (file.read_bytes(), stored()) == (b"x" * 40 + b"y" * 30 + b"z" * 20, 90)
    assert arrived(photos, path, 90) == 0
    assert part(photos, path, b"n" * 10, 0, 10).status_code == 204
    assert (file.read_bytes(), stored()) == (b"n" * 10, 10)


def test_a_part_out_of_order_is_answered_with_the_next_offset(alice_data):
    part(alice_data, HOME, b"x" * 400_000, 0, 900_000)
    for first in (300_000, 500_000):
        answer = part(alice_data, HOME, b"y" * 100_000, first, 900_000)
        assert (answer.status_code, "400000" in answer.json()["msg"]) == (409, True)
    assert part(alice_data, HOME, b"y", 400_001, 900_000).headers["Upload-Offset"] == "400000"
    assert arrived(alice_data, HOME, 900_000) == 400_000
    assert part(alice_data, HOME, b"anew", 0, 900_000).headers["Upload-Offset"] == "4"
    assert part(alice_data, HOME, b"a", 0, 8).status_code == 202
    assert (arrived(alice_data, HOME, 8), arrived(alice_data, HOME, 900_000)) == (1, 0)


@pytest.mark.parametrize(
    "header",
    few(["bytes 0-0/*", "bytes 1-0/5", "bytes 0-5/5", "bytes -1/5", "0-1/5", "bytes 0-1", "bytes */x", "é"], 3),
)
def test_an_invalid_range_is_refused(photos, header):
    answer = photos.put("/data/alice/photos/x", data=b"x", headers={"Content-Range": header.encode()})
    assert (answer.status_code, "Content-Range" in answer.json()["msg"]) == (400, True)


def test_a_part_must_have_its_declared_length(photos):
    headers = {"Content-Range": "bytes 0-4/9"}
    assert photos.put("/data/alice/photos/x", data=b"1234", headers=headers).status_code == 400
    assert photos.put("/data/alice/photos/x", data=iter([b"12345"]), headers=headers).status_code in {400, 411}
    assert arrived(photos, "/data/alice/photos/x", 9) == 0


def test_unfinished_files_stay_within_the_declared_size(photos, service):
    assert part(photos, "/data/alice/photos/a", b"x", 0, 101).status_code == 413
    assert part(photos, "/data/alice/photos/a", b"x" * 60, 0, 70).status_code == 202
    assert part(photos, "/data/alice/photos/b", b"x" * 10, 0, 50).status_code == 413
    assert part(photos, "/data/alice/photos/b", b"x" * 10, 0, 40).status_code == 202
    assert part(photos, "/data/alice/photos/a", b"x" * 10, 60, 70).status_code == 201
    assert photos.delete("/data/alice/photos").status_code == 204
    assert arrived(photos, "/data/alice/photos/b", 40) == 0


def test_concurrent_files_can_fill_the_dataset_exactly(alice, alice_data, service):
    """A file that is completed while another's part is checked is not counted twice."""
    files, size = 48, 4
    alice_data.create("full", files * size)
    people = [Person(service, alice) for _ in range(files)]

    def send(number: int, first: int) -> int:
        return part(people[number], f"/data/alice/full/{number}", b"ab", first, size).status_code

    with ThreadPoolExecutor(12) as pool:
        for first, code in ((0, 202), (2, 201)):
            assert list(pool.map(send, range(files), repeat(first))) == [code] * files
    assert stored("full") == files * size


def test_a_part_into_a_dataset_that_is_not_creating_is_refused(photos):
    part(photos, "/data/alice/photos/a", b"x" * 10, 0, 20)
    photos.heartbeat("photos", "error", 0)
    assert part(photos, "/data/alice/photos/a", b"x" * 10, 10, 20).status_code == 409
    assert photos.put("/data/alice/photos/a", headers={"Content-Range": "bytes */20"}).status_code == 409


def test_the_files_checksum_is_verified_with_the_last_part(alice_data):
    part(alice_data, HOME, b"a", 0, 3)
    headers = {"Content-Range": "bytes 1-2/3", "Repr-Digest": "sha-256=:" + "A" * 43 + "=:"}
    assert alice_data.put(HOME, data=b"bc", headers=headers).status_code == 400
    assert arrived(alice_data, HOME, 3) == 0
    assert part(alice_data, HOME, b"a", 0, 3).status_code == 202
    headers["Repr-Digest"] = "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:"
    assert alice_data.put(HOME, data=b"bc", headers=headers).status_code == 201


@pytest.mark.long
def test_received_parts_survive_a_kill_of_every_server(alice_data, service):
    total, block = 6_000_000, os.urandom(2_000_000)
    part(alice_data, HOME, block, 0, total)
    head = f"PUT {HOME} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {alice_data.token}\r\n"
    head += f"Content-Range: bytes 2000000-3999999/{total}\r\nContent-Length: 2000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port)) as sock:
        sock.sendall(head.encode() + block[:1_500_000])
        wait_until(lambda: sum(path.stat().st_size for path in service.spooled()) > 1_000_000)  # of this part
        service.stop(service.nginx)
        service.stop_web()
    [path.unlink() for path in service.spooled()]  # the killed nginx could not; a day later the sweep does
    service.start_web()
    service.start_nginx()
    assert arrived(alice_data, HOME, total) == 2_000_000
    assert part(alice_data, HOME, block, 2_000_000, total).status_code == 202
    assert part(alice_data, HOME, block, 4_000_000, total).status_code == 201
    assert service.path("alice", ".home", "big").read_bytes() == block * 3


def test_unfinished_files_that_cannot_be_finished_are_removed(photos, service, settings):
    settings.MLP_ROOT = service.root
    part(photos, "/data/alice/photos/a", b"x" * 10, 0, 20)
    part(photos, HOME, b"x" * 10, 0, 20)
    assert spool.sweep_parts(3600) == 0
    photos.heartbeat("photos", "error", 0)
    assert spool.sweep_parts(3600) == 1
    assert arrived(photos, HOME, 20) == 10
    assert spool.sweep_parts(-1) == 2  # the file and its lock
    wait_until(lambda: arrived(photos, HOME, 20) == 0)
