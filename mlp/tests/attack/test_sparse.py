"""Files with holes: far longer than what they take on the disk. What becomes of one is bounded by what was reserved."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import threading

import pytest

from datasets.webdav import archive
from jobs.models import Job
from kernel import disk, storage
from mlp.operators.tests.admin_world import put
from mlp.tests.patience import LIMIT_S
from models_app import launching
from models_app.models import Model
from resources.models import Tenant

pytestmark = pytest.mark.django_db

HUGE = 1 << 40


@pytest.fixture
def workspace(alice):
    """The output of alice's finished job: a file of 1 TiB without a block; the tenant may store as much."""
    put(Job, alice, "fit", "finished")
    folder = storage.job_dir("alice", "fit")
    (folder / "net").mkdir(parents=True)
    (folder / "net" / "weights.bin").touch()
    Tenant.objects.filter(name="default").update(rom=8 * HUGE)
    return folder


@contextlib.contextmanager
def at_most(size: int):
    """Have the kernel refuse files of this process that become longer than that."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_what_the_disk_has_no_room_for_is_refused_before_it_is_read(as_alice, workspace):
    os.truncate(workspace / "net" / "weights.bin", disk.room() + (1 << 30))
    answer = as_alice.call("post", "users/alice/models", {"name": "net", "src": "jobs/fit/net"})
    assert (answer.status_code, "disk" in answer.json()["msg"]) == (503, True)
    assert Tenant.objects.get(name="default").rom_inuse == 0
    assert not Model.objects.exists()


def test_a_file_that_a_running_job_makes_longer_is_not_copied_beyond_what_was_reserved(as_alice, workspace):
    weights = workspace / "net" / "weights.bin"
    weights.write_bytes(b"x" * 100)
    assert as_alice.call("post", "users/alice/models", {"name": "net", "src": "jobs/fit/net"}).status_code == 201
    os.truncate(weights, HUGE)
    model = Model.objects.get()
    with at_most(16 << 20):
        launching.copy(model.pk)
    model.refresh_from_db()
    assert (model.state, model.reason) == ("error", "the files changed while they were being copied")
    assert storage.tree_size(storage.root() / "models") == 0


def test_its_holes_take_nothing_of_what_a_user_may_store(as_alice, workspace):
    """Neither does it hide what it does take."""
    (workspace / "net" / "weights.bin").write_bytes(b"x" * (1 << 20))
    os.truncate(workspace / "net" / "weights.bin", HUGE)
    listed = as_alice.call("get", "users/alice/jobs/fit/artifacts").json()
    assert [row["size"] for row in listed] == [HUGE]
    assert 1 << 20 <= storage.tree_size(workspace, on_disk=True) < 2 << 20


@pytest.mark.parametrize(
    ("send", "folder"), [(archive.send, storage.dataset_dir), (archive.send_zip, storage.model_dir)], ids=["tar", "zip"]
)
def test_an_archive_of_holes_ends_with_its_reader(alice, send, folder):
    """Of a terabyte no more is made than the reader takes, and a connection holds."""
    place = folder("alice", "net")
    place.mkdir(parents=True)
    for name in ("a.bin", "b.bin"):
        (place / name).touch()
        os.truncate(place / name, HUGE)
    ours, theirs = socket.socketpair()
    ended: list[BaseException] = []

    def work() -> None:
        try:
            send(ours, ("alice", "net"))
        except OSError as problem:
            ended.append(problem)

    sending = threading.Thread(target=work)
    sending.start()
    with theirs:
        assert theirs.recv(12) == b"HTTP/1.1 200"
    sending.join(LIMIT_S)
    assert not sending.is_alive()
    assert isinstance(ended[0], ConnectionError)
    ours.close()
