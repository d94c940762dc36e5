"""Uploads to a full disk and to folders that disappear: a clear error, and no data is lost."""

from __future__ import annotations

import shutil
import socket
import subprocess
from contextlib import suppress

import pytest
from django.conf import settings

from datasets.tests.live import stored, wait_until
from kernel.disk import LOW
from mlp.tests.patience import LIMIT_S

ROOM = 24 << 20  # bytes beyond what uploads leave alone
MIB = b"m" * (1 << 20)


@pytest.fixture
def small_disk(service):
    """Put the service's storage on a disk of ROOM bytes."""
    place = service.path()
    command = ["mount", "-t", "tmpfs", "-o", f"size={(settings.DISK_MINIMUM_MIB << 20) + ROOM}", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a disk of a given size takes the right to mount one")
    try:
        (place / ".spool").mkdir()
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


class Slow:
    """An upload paused in the middle of its body: `begin`, then `end`."""

    def __init__(self, person, path: str, length: int):
        self.length = length
        head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {person.token}\r\nConnection: close\r\n"
        self.socket = socket.create_connection(("127.0.0.1", person.service.port), LIMIT_S)
        self.socket.sendall(head.encode() + f"Content-Length: {length}\r\n\r\n".encode() + b"x" * (length // 2))

    def end(self) -> tuple[int, str]:
        """Send the rest; return (status, body of the response)."""
        with self.socket, suppress(ConnectionError):
            with suppress(ConnectionError):
                self.socket.sendall(b"x" * (self.length - self.length // 2))
            came = b""
            while block := self.socket.recv(65536):
                came += block
        head, _, body = came.partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode()


def test_an_upload_that_does_not_fit_on_the_disk_is_refused_at_once(small_disk, alice_data, service):
    alice_data.create("big", 1 << 30)
    assert alice_data.put("/data/alice/big/kept", data=MIB).status_code == 201
    refusal = alice_data.put("/data/alice/big/kept", data=MIB * 40)
    assert (refusal.status_code, refusal.json()) == (507, {"msg": "the platform's disk is full"})
    assert alice_data.put("/data/alice/big/part", data=MIB * 20).status_code == 201
    assert alice_data.put("/data/alice/big/more", data=MIB * 20).status_code == 507
    assert alice_data.put("/data/alice/big/more", data=iter([MIB] * 20)).status_code in {413, 507}
    assert alice_data.get("/api/v1/users/alice/datasets/big").json()["state"] == "creating"
    assert ((small_disk / "alice" / "big" / "kept").read_bytes(), stored("big")) == (MIB, 21 << 20)
    assert alice_data.delete("/data/alice/big/part").status_code == 204
    assert alice_data.put("/data/alice/big/more", data=MIB * 20).status_code == 201


def test_a_small_file_is_refused_while_the_disk_is_nearly_full(small_disk, alice_data, service):
    alice_data.create("small", 100)
    (small_disk / "other").write_bytes(bytes(ROOM + 1))
    refusal = alice_data.put("/data/alice/small/x", data=b"x")
    assert (refusal.status_code, refusal.json()["msg"]) == (507, LOW)
    assert (service.spooled(), stored("small")) == ([], 0)
    (small_disk / "other").unlink()
    assert alice_data.put("/data/alice/small/x", data=b"x").status_code == 201


def test_a_disk_that_fills_during_an_upload(small_disk, alice_data, service):
    """Another program has used the space that was free when the upload began."""
    alice_data.create("big", 1 << 30)
    assert alice_data.put("/data/alice/big/x", data=MIB).status_code == 201
    upload = Slow(alice_data, "/data/alice/big/x", 16 << 20)
    wait_until(lambda: any(path.stat().st_size > 4 << 20 for path in service.spooled()))
    with (small_disk / "other").open("wb") as file, suppress(OSError):
        while True:
            file.write(MIB)
            file.flush()
    status, body = upload.end()
    assert status == 503
    assert "disk is full" in body
    assert ((small_disk / "alice" / "big" / "x").read_bytes(), stored("big")) == (MIB, 1 << 20)
    wait_until(lambda: service.spooled() == [])
    (small_disk / "other").unlink()
    assert alice_data.put("/data/alice/big/x", data=MIB * 16).status_code == 204
    assert stored("big") == 16 << 20


@pytest.mark.parametrize("gone", [("big",), (), ("big", "inner")])
def test_a_folder_that_is_removed_during_an_upload(alice_data, service, gone):
    """The file is complete and in its place, or the upload is refused; a retry succeeds."""
    alice_data.create("big", 1 << 30)
    assert alice_data.put("/data/alice/big/inner/first", data=MIB).status_code == 201
    upload = Slow(alice_data, "/data/alice/big/inner/second", 4 << 20)
    wait_until(lambda: any(path.stat().st_size > 1 << 20 for path in service.spooled()))
    shutil.rmtree(service.path("alice", *gone))
    status, body = upload.end()
    assert status in {201, 409, 503}, body
    assert service.path("alice", "big", "inner", "second").exists() == (status == 201)
    assert alice_data.put("/data/alice/big/inner/second", data=MIB * 4).status_code in {201, 204}
    assert service.path("alice", "big", "inner", "second").stat().st_size == 4 << 20
    # The recorded size of files that were lost is corrected when the dataset is finished.
    assert alice_data.put("/data/alice/big/inner/first", data=MIB).status_code in {201, 204}
