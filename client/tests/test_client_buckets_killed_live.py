"""`push` to a bucket, killed in the middle: the next one sends what is missing."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

import json
import signal
import socket
import threading
from contextlib import suppress

import pytest

from client.tests.test_client_buckets_live import LARGE, contents
from datasets.buckets import rows
from datasets.tests.test_buckets import bucket, remote  # noqa: F401
from mlp.tests.patience import LIMIT_S
from operations.backup.tests.conftest import s3  # noqa: F401

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]


class Link:
    """Passes connections on to a server, until so many bytes have come; then none goes further until `opened`."""

    def __init__(self, port: int, most: int):
        self.port, self.left = port, most
        self.reached, self.opened, self.lock = threading.Event(), threading.Event(), threading.Lock()
        self.socket = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                ours, _address = self.socket.accept()
                theirs = socket.create_connection(("127.0.0.1", self.port))
                threading.Thread(target=self._pass, args=(ours, theirs, True), daemon=True).start()
                threading.Thread(target=self._pass, args=(theirs, ours, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if counts and not self.opened.is_set():
                    with self.lock:
                        self.left -= len(data)
                    if self.left < 0:
                        self.reached.set()
                        self.opened.wait(LIMIT_S)
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def test_a_push_that_was_killed_is_continued(live_server, as_alice, client_of, tasks, bucket, remote, s3):
    link = Link(int(s3["AWS_ENDPOINT_URL"].rpartition(":")[2]), 24 << 20)
    rows.change(bucket, by="root", access="write", everybody=True, endpoint=link.address)
    client = client_of(live_server.url, as_alice.token)
    folder = client.here / "photos"
    folder.mkdir()
    files = {f"large{number}.bin": bytes([number]) + LARGE for number in range(3)} | {"a": b"1", "b": b""}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    words = ("--json", "push", "photos", "--name", "cats", "--to", "s3/photos/train", "-j", "2")
    process = client.start(*words)
    while not link.reached.wait(0.1):
        tasks.run()
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGKILL)
    process.wait(LIMIT_S)
    link.opened.set()
    process = client.start(*words)
    while process.poll() is None:
        tasks.run()
    out, err = process.communicate()
    assert process.returncode == 0, (out, err)
    assert contents(remote) == files
    row = as_alice.call("get", "users/alice/datasets/cats").json()
    assert (row["version"], row["size"]) == (2, sum(map(len, files.values())))
    assert 0 < json.loads(out)["sent"] <= row["size"] - (8 << 20)  # at least a part was there
