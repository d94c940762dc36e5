"""Downloads of models, jobs and datasets whose readers take nothing: they hold no thread that others need, and fill no
disk. Real nginx and gunicorn, with the threads of a platform.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import zipfile
from pathlib import Path

import pytest
import requests
from django.test import Client

from datasets.models import Dataset
from datasets.tests.live import Person, servers, service, wait_until
from jobs.models import Job
from kernel import downloads
from mlp.operators.tests.admin_world import put
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from models_app.models import Model

__all__ = ["servers", "service"]

pytestmark = pytest.mark.django_db(transaction=True)

LARGE = 256 << 20  # more than all buffers between a thread and a reader; without a block on the disk


@pytest.fixture
def filled(service, alice, bob):
    """Make models of alice, with one file and with two, a job's output, and a dataset of alice and of bob."""
    rows = [
        (put(Model, alice, "one", "ready"), "models/alice/one", ["large.bin"]),
        (put(Model, alice, "two", "ready"), "models/alice/two", ["a/large.bin", "b.txt"]),
        (put(Job, alice, "fit", "finished"), "jobs/alice/fit", ["large.bin"]),
        *((put(Dataset, user, "up", "ready"), f"datasets/{user.username}/up", ["large.bin"]) for user in (alice, bob)),
    ]
    for _row, folder, names in rows:
        for name in names:
            path = service.root / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"begin")
            if name.endswith("large.bin"):
                os.truncate(path, LARGE)
    return service


@contextlib.contextmanager
def unread(service, path: str, count: int, **headers: str):
    """Hold requests that have begun to be answered, and yield the status lines; nothing more is read."""
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with contextlib.ExitStack() as stack:
        links = []
        for _ in range(count):
            link = stack.enter_context(socket.socket())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.settimeout(LIMIT_S)
            link.connect(("127.0.0.1", service.port))
            link.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
            links.append(link)
        yield [link.recv(12).decode().partition(" ")[2] for link in links]


def stored_by_nginx(service) -> int:
    """Return the bytes of its temporary files, which have no names any more: they are its open descriptors."""
    blocks = {}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(f"{service.folder / 'temp'}/"):
                info = link.stat()
                blocks[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(blocks.values())


@pytest.mark.parametrize("path", few(["models/two/download", "models/one/download", "jobs/fit/artifacts/large.bin"], 2))
def test_who_reads_nothing_hinders_nobody(filled, alice, bob, path):
    alices, bobs = Person(filled, alice), Person(filled, bob)
    token = {"Authorization": f"Bearer {alices.token}"}
    with unread(filled, f"/api/v1/users/alice/{path}", 24, **token) as statuses:
        # A zip is written by a thread of its own; a user has four at most. nginx alone sends the rest.
        assert sorted(statuses) == (["200"] * 4 + ["403"] * 20 if "two" in path else ["200"] * 24)
        assert bobs.get("/api/v1/users/bob/jobs", timeout=LIMIT_S).json() == []
        assert bobs.get("/healthz/live", timeout=LIMIT_S).status_code == 200
        assert stored_by_nginx(filled) < 32 << 20


def test_of_what_a_thread_sends_little_is_stored_for_who_does_not_read(filled, alice):
    """A request for one version of a file is answered by a thread, and nginx takes the response from it."""
    alices = Person(filled, alice)
    path = "/api/v1/users/alice/jobs/fit/artifacts/large.bin"
    version = {"If-Match": downloads.etag((filled.root / "jobs/alice/fit/large.bin").stat())}
    with unread(filled, path, 1, Authorization=f"Bearer {alices.token}", **version) as statuses:
        assert statuses == ["200"]
        # By then as much has passed as nginx would store of the other if it stored what is not read.
        assert len(alices.get(path, headers=version).content) == LARGE
        assert 0 < stored_by_nginx(filled) < 32 << 20


def test_slow_archives_of_one_user_leave_room_for_others(filled, alice, bob):
    cookies = {}
    for user in (alice, bob):
        client = Client()
        client.force_login(user)
        cookies[user] = f"sessionid={client.cookies['sessionid'].value}"

    def ask(user):
        return requests.get(f"{filled.url}/datasets/up/archive", headers={"Cookie": cookies[user]}, stream=True)

    with unread(filled, "/datasets/up/archive", 16, Cookie=cookies[alice]) as statuses:
        assert sorted(statuses) == ["200"] * 4 + ["403"] * 12
        with ask(alice) as refused:
            assert (refused.status_code, refused.headers["Retry-After"]) == (403, "10")
            assert "MLP_DOWNLOADS_PER_USER" in refused.json()["msg"]
        with ask(bob) as other:
            assert (other.status_code, next(other.iter_content(512))[:6]) == (200, b"up/lar")
            # By then as much has passed as nginx would store of the others if it stored what is not read.
            assert sum(map(len, other.iter_content(1 << 20))) > LARGE - 512
        assert stored_by_nginx(filled) < 1 << 20
    wait_until(lambda: ask(alice).status_code == 200)


def test_they_arrive_whole(filled, alice):
    alices = Person(filled, alice)
    response = alices.get("/api/v1/users/alice/models/one/download", headers={"Range": "bytes=9-"})
    assert (response.status_code, len(response.content), response.content[:5]) == (200, LARGE, b"begin")
    assert (response.headers["Content-Disposition"], "sandbox" in response.headers["Content-Security-Policy"]) == (
        'attachment; filename="large.bin"', True,
    )  # fmt: skip
    two = alices.get("/api/v1/users/alice/models/two/download")
    assert two.headers["Content-Type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(two.content)) as archive:
        assert archive.testzip() is None
        assert {member.filename: member.file_size for member in archive.infolist()} == {
            "a/large.bin": LARGE,
            "b.txt": 5,
        }
    gone = alices.get("/api/v1/users/alice/jobs/fit/artifacts/none.bin")
    assert (gone.status_code, set(gone.json())) == (403, {"msg"})
