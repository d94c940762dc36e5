"""Exports to a server that refuses, loses or does not answer, and what is left of uploads in parts."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from subprocess import PIPE, Popen
from urllib.parse import urlsplit

import pytest
from django.db import connection

from datasets.buckets import rows, store, writing
from datasets.exports import lifecycle, sending
from datasets.models import Bucket, Dataset, Export
from datasets.tests import writing_s3
from kernel import storage
from kernel.tests.nats_tools import until as wait_for
from mlp.operators.tests.admin_world import put

pytestmark = pytest.mark.django_db(transaction=True)
SHORT = {"connect_timeout": timedelta(seconds=1), "read_timeout": timedelta(seconds=0.2)}
FIELDS = {"bucket": "kept", "region": "us-east-1", "signing": "key", "access_key": "THE-KEY", "everybody": True}
LARGE = os.urandom(2 * writing.PART_BYTES + 5)


SENDING = """
import sys
import django
django.setup()
from datasets.buckets import writing
from datasets.exports import sending
real = writing.File.blocks
def blocks(self, read):
    for number, block in enumerate(real(self, read)):
        if number == 12:
            print("here", flush=True)
            sys.stdin.read()
        yield block
writing.File.blocks = blocks
sending.run(int(sys.argv[1]))
"""


@pytest.fixture
def server():
    with writing_s3.running() as each:
        yield each


@pytest.fixture(autouse=True)
def bucket(db, server, monkeypatch):
    monkeypatch.setattr(store, "PIECE", SHORT)
    for name in ("RETRIES", "LISTED"):
        monkeypatch.setattr(store, name, {"max_retries": 1, "retry_timeout": timedelta(seconds=1)})
    return rows.create(by="root", name="photos", endpoint=server.address, secret="s", access="write", **FIELDS)


@pytest.fixture
def export(alice, as_alice, tasks):
    """Send a dataset of these files."""

    def send(target: str, **files: bytes) -> dict:
        folder = storage.dataset_dir("alice", "cats")
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / f"{name}.txt").write_bytes(content)
        if not Dataset.objects.exists():
            put(Dataset, alice, "cats", "ready")
        sent = {"src": "datasets/cats", "target": f"s3/photos/{target}"}
        number = as_alice.call("post", "users/alice/exports", sent).json()["number"]
        tasks.run()
        return as_alice.call("get", f"users/alice/exports/{number}").json()

    return send


def test_a_large_file_is_sent_in_parts_and_known_by_their_checksum(export, server):
    row = export("whole", large=LARGE, small=b"x", none=b"")
    assert (row["state"], row["reason"], row["sent"]) == ("finished", "", 3)
    assert {key: content for key, (content, _tag) in server.objects.items()} == {
        "whole/large.txt": LARGE, "whole/small.txt": b"x", "whole/none.txt": b"",
    }  # fmt: skip
    assert server.objects["whole/large.txt"][1].endswith("-3")
    assert server.kinds["whole/small.txt"] == "text/plain"
    assert (server.uploads, len(server.puts)) == ({}, 5)
    assert "authorization" in server.headers
    assert "x-amz-server-side-encryption" not in server.headers, "which MinIO refuses where it has no keys for it"
    again = export("whole")
    assert (again["state"], again["sent"], len(server.puts)) == ("finished", 0, 5)


@pytest.mark.parametrize("size", [0, 1, 8 << 20, (8 << 20) + 1, 529_168_322_560, 5 << 40])
def test_no_file_that_s3_takes_has_more_parts_than_s3_takes(tmp_path, size):
    with (tmp_path / "sparse").open("wb") as file:
        os.truncate(file.fileno(), size)
        part = writing.File("sparse", file.fileno()).part
    assert part >= 5 << 20
    assert size <= part * 10_000
    assert part <= 5 << 30


def test_a_part_that_is_refused_leaves_no_object_and_no_parts(export, server):
    row = export("second", large=LARGE)
    assert (row["state"], "AccessDenied: No writes here" in row["reason"]) == ("error", True)
    assert (server.objects, server.uploads) == ({}, {})


def test_a_file_that_changes_before_its_last_part_leaves_no_object_and_no_parts(export, server, monkeypatch):
    """The moment between two reads cannot be met from outside."""
    real = os.pread

    def then_change(handle, size, place):
        if place > writing.PART_BYTES:
            os.utime(storage.dataset_dir("alice", "cats") / "large.txt", ns=(0, 0))
        return real(handle, size, place)

    monkeypatch.setattr(writing.os, "pread", then_change)
    assert export("whole", large=LARGE)["reason"] == "the file large.txt changed while it was being sent"
    assert (server.objects, server.uploads) == ({}, {})


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("refused", "AccessDenied: No writes here"),
        pytest.param("silent", "the bucket photos: ", marks=pytest.mark.long),
        ("lost", "the object lost/small.txt is not in the bucket as it was sent"),
    ],
)
def test_what_the_server_does_wrong_is_the_reason(export, server, target, said):
    row = export(target, small=b"x")
    assert (row["state"], row["outcome"]) == ("error", "failed")
    assert said in row["reason"]
    assert "Debug" not in row["reason"]


@pytest.mark.long
def test_a_server_whose_tags_are_no_checksums_gets_the_files_again(export, server):
    assert export("kms", small=b"x")["sent"] == 1
    assert export("kms")["sent"] == 1
    assert server.objects == {"kms/small.txt": (b"x", "of-a-key")}


@pytest.mark.long
def test_a_key_that_is_too_long_is_named_before_anything_is_sent(export, server):
    row = export("/".join(["d" * 200] * 2), **{"n" * 200: b"x", "a": b"y"})
    assert row["state"] == "finished"
    Bucket.objects.update(prefix="p" * 450)
    row = export("/".join(["d" * 150] * 3))
    assert row["reason"] == f"the key of the file {'n' * 200}.txt would have more than 1024 bytes"
    assert not any(key.startswith("ppp") for key in server.objects)


@pytest.mark.long
def test_a_worker_that_is_killed_in_the_middle_of_a_large_file_is_followed_by_another(alice, server, tasks, settings):
    """Its lock ends with it; what it had sent whole is not sent again, and half a file is no object."""
    folder = storage.dataset_dir("alice", "cats")
    for name, content in {"a.txt": b"a", "b.txt": b"b", "large.txt": LARGE}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    put(Dataset, alice, "cats", "ready")
    row = lifecycle.create_export(user=alice, src="datasets/cats", target="s3/photos/whole", by="alice")
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path="/" + connection.settings_dict["NAME"]).geturl()
    environment = os.environ | {
        "DATABASE_URL": database, "MLP_ROOT": str(settings.MLP_ROOT), "MLP_SECRET_KEY": settings.SECRET_KEY,
        "DJANGO_SETTINGS_MODULE": "mlp.settings",
    }  # fmt: skip
    command = [sys.executable, "-c", SENDING, str(row.pk)]
    child = Popen(command, cwd=settings.BASE_DIR, env=environment, stdin=PIPE, stdout=PIPE, text=True)
    try:
        assert child.stdout.readline() == "here\n"
        wait_for(lambda: set(server.objects) == {"whole/a.txt", "whole/b.txt"})
        sending.run(row.pk)  # the other has its lock
        row.refresh_from_db()
        assert row.state == "running"
    finally:
        child.kill()
        child.communicate()
    assert set(server.objects) == {"whole/a.txt", "whole/b.txt"}
    wait_for(lambda: (sending.run(row.pk), Export.objects.get().state)[1] == "finished")
    assert (Export.objects.get().sent, server.objects["whole/large.txt"][0]) == (1, LARGE)
    assert server.puts.count("whole/a.txt") == 1
