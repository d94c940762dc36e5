"""Uploads through real nginx and gunicorn: exact accounting, atomic, refused early, consistent after any kill."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from pathlib import Path

import pytest
import requests
from django.db import connection

from datasets.models import Dataset
from datasets.tests.live import AT_THE_DATABASE, stored, wait_until
from datasets.webdav import inflight, spool
from kernel.broker import broker

DAV = "{DAV:}"


def raw(service, request: bytes, wait_s: float = 60) -> bytes:
    """Send the bytes unchanged; return what arrives until the server closes, refuses or answers 100."""
    with socket.create_connection(("127.0.0.1", service.port), wait_s) as sock:
        sock.sendall(request)
        sock.settimeout(wait_s)
        came = b""
        try:
            while block := sock.recv(65536):
                came += block
                if (b"\r\n\r\n" in came and came.endswith(b"}")) or came.endswith(b" 100 Continue\r\n\r\n"):
                    break
        except TimeoutError:
            pass
        return came


def test_an_upload_is_created_then_replaced_and_accounted_exactly(photos, service):
    assert photos.put("/data/alice/photos/a/b.txt", data=b"x" * 60).status_code == 201
    assert (stored(), service.path("alice", "photos", "a", "b.txt").read_bytes()) == (60, b"x" * 60)
    assert photos.put("/data/alice/photos/a/b.txt", data=b"y" * 100).status_code == 204
    assert (stored(), service.path("alice", "photos", "a", "b.txt").read_bytes()) == (100, b"y" * 100)
    assert photos.put("/data/alice/photos/a/b.txt", data=b"z").status_code == 204
    assert stored() == 1
    wait_until(lambda: service.spooled() == [])


@pytest.mark.parametrize("body", [b"", iter([]), iter([b"chunk", b"", b"ed" * 20])])
def test_empty_and_chunked_bodies_arrive(photos, service, body):
    wanted = 0 if not isinstance(body, bytes) and body.__length_hint__() == 0 else (0 if body == b"" else 45)
    assert photos.put("/data/alice/photos/x", data=body).status_code == 201
    assert service.path("alice", "photos", "x").stat().st_size == wanted


def test_more_than_the_declared_size_is_refused(photos):
    assert photos.put("/data/alice/photos/a", data=b"x" * 60).status_code == 201
    refusal = photos.put("/data/alice/photos/b", data=b"x" * 41)
    assert (refusal.status_code, "100 bytes" in refusal.json()["msg"]) == (413, True)
    assert photos.put("/data/alice/photos/b", data=iter([b"x" * 41])).status_code == 413
    assert photos.put("/data/alice/photos/b", data=b"x" * 40).status_code == 201
    assert stored() == 100


@pytest.mark.parametrize(
    ("headers", "code"), [("Content-Length: 999999999", 413), ("Content-Length: 101\r\nExpect: 100-continue", 413)]
)
def test_a_refused_upload_is_refused_before_its_body_is_sent(photos, service, headers, code):
    head = f"PUT /data/alice/photos/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {photos.token}\r\n{headers}\r\n\r\n"
    answer = raw(service, head.encode())
    assert answer.startswith(f"HTTP/1.1 {code} ".encode()), answer
    assert b'{"msg"' in answer
    wait_until(lambda: service.spooled() == [])


def test_an_accepted_upload_is_answered_100_continue(photos, service):
    head = f"PUT /data/alice/photos/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {photos.token}\r\n"
    assert raw(service, (head + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n").encode()).startswith(
        b"HTTP/1.1 100 Continue"
    )


def test_a_wrong_checksum_is_refused_and_a_right_one_stored(alice_data):
    wrong = {"Repr-Digest": "sha-256=:" + "A" * 43 + "=:"}
    assert alice_data.put("/data/alice/.home/x", data=b"abc", headers=wrong).status_code == 400
    right = {"Repr-Digest": "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:"}
    assert alice_data.put("/data/alice/.home/x", data=b"abc", headers=right).status_code == 201
    assert alice_data.get("/data/alice/.home/x").headers["Repr-Digest"] == right["Repr-Digest"]
    alice_data.put("/data/alice/.home/x", data=b"abd")
    assert "Repr-Digest" not in alice_data.get("/data/alice/.home/x").headers


def test_the_home_folder_has_a_size_limit(alice_data):
    assert alice_data.put("/data/alice/.home/big", data=b"x" * (8 << 20)).status_code == 201
    refusal = alice_data.put("/data/alice/.home/more", data=b"x")
    assert (refusal.status_code, "full" in refusal.json()["msg"]) == (507, True)
    assert alice_data.put("/data/alice/.home/big", data=b"x" * (4 << 20)).status_code == 204
    assert alice_data.put("/data/alice/.home/more", data=b"x").status_code == 201


@pytest.mark.parametrize(
    ("headers", "code"),
    [({"Content-Range": "bytes 0-1/2"}, 400), ({"Content-Encoding": "gzip"}, 415), ({"If-None-Match": "*"}, 412)],
)
def test_contradictory_upload_headers_are_refused(photos, headers, code):
    photos.put("/data/alice/photos/x", data=b"x")
    assert photos.put("/data/alice/photos/x", data=b"y", headers=headers).status_code == code


def test_a_chunked_body_is_cut_off_at_the_limit(alice_data, service):
    """Without a length, at most the next size class above the free space is spooled."""
    alice_data.create("big", 3 << 20)
    spooled = []

    def endless():
        for _ in range(200):
            for path in service.spooled():
                with contextlib.suppress(FileNotFoundError):  # it is removed just now
                    spooled.append(path.stat().st_size)
            yield b"x" * (1 << 20)

    with contextlib.suppress(requests.ConnectionError):  # cut off
        assert alice_data.put("/data/alice/big/x", data=endless()).status_code == 413
    assert 0 < max(spooled) <= 4 << 20
    assert alice_data.put("/data/alice/big/x", data=iter([b"x" * (3 << 20)])).status_code == 201
    assert alice_data.put("/data/alice/big/x", data=iter([b"y" * (3 << 20)])).status_code == 204
    assert alice_data.put("/data/alice/big/x", data=iter([b"y" * (3 << 20), b"z"])).status_code == 413


def test_parallel_uploads_never_pass_the_declared_size(photos, alice, service):
    codes = []

    def put(number):
        url = f"{service.url}/data/alice/photos/{number}"
        codes.append(requests.put(url, data=b"x" * 30, headers=dict(photos.headers)).status_code)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(12)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(set(codes)) == [201, 413]
    assert codes.count(201) == 3
    assert stored() == 90 == sum(path.stat().st_size for path in service.path("alice", "photos").iterdir())


def test_a_reader_never_sees_a_partial_file(alice_data, service):
    bodies = [letter * 3_000_000 for letter in (b"a", b"b")]
    alice_data.put("/data/alice/.home/x", data=bodies[0])
    done, seen = threading.Event(), set()

    def read():
        while not done.is_set():
            answer = requests.get(service.url + "/data/alice/.home/x", headers=dict(alice_data.headers))
            seen.add((answer.status_code, len(answer.content), answer.content[:1], answer.content[-1:]))

    thread = threading.Thread(target=read)
    thread.start()
    for number in range(20):
        assert alice_data.put("/data/alice/.home/x", data=bodies[number % 2]).status_code == 204
    done.set()
    thread.join()
    assert seen <= {(200, 3_000_000, b"a", b"a"), (200, 3_000_000, b"b", b"b")}


@pytest.mark.parametrize(("length", "sent"), [(90, 50), (4_000_000, 3_000_000)], ids=["in memory", "in the spool"])
def test_a_broken_off_upload_leaves_nothing(alice_data, service, length, sent):
    alice_data.create("big", 9 << 20)
    head = f"PUT /data/alice/big/x{length} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {alice_data.token}\r\n"
    with socket.create_connection(("127.0.0.1", service.port)) as sock:
        sock.sendall(head.encode() + f"Content-Length: {length}\r\n\r\n".encode() + b"x" * sent)
        wait_until(lambda: sent < 1000 or service.spooled())
    wait_until(lambda: f"PUT /data/alice/big/x{length} " in (service.folder / "nginx.log").read_text())  # it has ended
    wait_until(lambda: service.spooled() == [])
    assert (stored("big"), service.path("alice", "big", f"x{length}").exists()) == (0, False)


def test_a_killed_nginx_leaves_a_spool_file_that_is_swept(alice_data, service, settings):
    head = f"PUT /data/alice/.home/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {alice_data.token}\r\n"
    with socket.create_connection(("127.0.0.1", service.port)) as sock:
        sock.sendall(head.encode() + b"Content-Length: 4000000\r\n\r\n" + b"x" * 3_000_000)
        wait_until(lambda: len(service.spooled()) == 1)
        service.stop(service.nginx)
    service.start_nginx()
    assert len(service.spooled()) == 1
    settings.MLP_ROOT = service.root
    assert spool.sweep(0) == 0
    os.utime(service.spooled()[0], (1, 1))
    assert spool.sweep(0) == 1
    wait_until(lambda: service.spooled() == [])
    assert alice_data.put("/data/alice/.home/x", data=b"x").status_code == 201


@pytest.mark.long
def test_outages_of_the_database_and_of_the_application_are_survived(photos, service):
    """The first request may meet the closed connection and is answered 503; a dead application is one, too. What has
    lost its connection must not serve the next test, so both need the same restart, which takes seconds.
    """
    photos.create("big", 20_000_000)
    ended = []
    for size in (1, 200_000):
        assert photos.put(f"/data/alice/big/x{size}", data=b"x" * size).status_code == 201
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = %s",
                [AT_THE_DATABASE],
            )
            assert cursor.rowcount
        codes = []
        while len(codes) < 200 and (len(codes) < 40 or set(codes[-5:]) != {201}):
            codes.append(photos.put(f"/data/alice/big/{size}-{len(codes)}", data=b"x" * size).status_code)
        ended.append(codes)
    service.stop_web()
    try:
        assert photos.put("/data/alice/photos/x", data=b"x").status_code == 503
        assert photos.get("/data/alice/.home/x").status_code == 503
        wait_until(lambda: service.spooled() == [])
    finally:
        service.start_web()
    assert photos.put("/data/alice/photos/x", data=b"x").status_code == 201
    for codes in ended:
        assert set(codes[:-5]) <= {201, 503}
        assert set(codes[-5:]) == {201}


@pytest.mark.parametrize("size", [1, 200_000])
def test_a_refusal_is_in_the_language_of_the_page_that_uploads(alice_data, size):
    refused = {}
    for language in ("", "zh-hans"):
        headers = {"X-Page-Language": language} if language else {"Accept-Language": "zh-CN"}
        refused[language] = alice_data.put("/data/alice/nosuch/x", data=b"x" * size, headers=headers)
    assert {answer.status_code for answer in refused.values()} == {refused[""].status_code}
    assert refused[""].json()["msg"].isascii()
    assert re.search(r"[\u4e00-\u9fff]", refused["zh-hans"].json()["msg"]), refused["zh-hans"].text


@pytest.mark.parametrize("size", [1, 200_000])
def test_a_missing_spool_folder_is_created_again(alice_data, service, size):
    service.path(".spool").rmdir()
    assert alice_data.put("/data/alice/.home/x", data=b"x" * size).status_code == 201


def test_an_upload_counts_as_activity(photos):
    Dataset.objects.update(touched="2020-01-01T00:00Z")
    photos.put("/data/alice/photos/x", data=b"x")
    assert Dataset.objects.get().touched.year > 2020


def test_bytes_in_flight_count_as_activity(alice_data, service, settings):
    """However slow: half of the declared bytes, long before nginx writes anything."""
    alice_data.create("big", 9 << 20)
    alice_data.create("other", 9 << 20)
    Dataset.objects.update(touched="2020-01-01T00:00Z")
    settings.MLP_ROOT = service.root
    head = f"PUT /data/alice/big/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {alice_data.token}\r\n"
    with socket.create_connection(("127.0.0.1", service.port)) as sock:
        sock.sendall(head.encode() + b"Content-Length: 200000\r\n\r\n" + b"x" * 100)
        wait_until(lambda: broker().client.hlen(inflight.KEY) == 1)
        Dataset.objects.update(touched="2020-01-01T00:00Z")
        spool.sweep()
        assert Dataset.objects.get(name="big").touched.year > 2020
        assert Dataset.objects.get(name="other").touched.year == 2020
    wait_until(lambda: (spool.sweep(), broker().client.hlen(inflight.KEY))[1] == 0)
    Dataset.objects.update(touched="2020-01-01T00:00Z")
    spool.sweep()
    assert Dataset.objects.get(name="big").touched.year == 2020


def test_a_large_upload_does_not_increase_memory_use(alice_data, service):
    alice_data.create("big", 300 << 20)
    block = b"\0" * (1 << 20)

    class Body:
        def __len__(self):
            return 300 << 20

        def __iter__(self):
            return (block for _ in range(300))

    assert alice_data.put("/data/alice/big/x", data=Body()).status_code == 201
    assert _peak(service.nginx.pid) < 60 << 20
    assert service.path("alice", "big", "x").stat().st_size == 300 << 20
    service.path("alice", "big", "x").unlink()


def _peak(pid: int) -> int:
    """Return the largest peak of resident memory of the process and its children."""
    peak = 0
    for task in [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]:
        for line in Path(f"/proc/{task}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                peak = max(peak, int(line.split()[1]) << 10)
    return peak
