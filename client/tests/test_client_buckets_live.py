"""`push` to external datasets: the bucket is on rclone's S3 server, and the platform is Django's test server."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

from types import SimpleNamespace

import pytest

from client.mlp_client import bucket as buckets
from client.mlp_client import datasets, parts, uploading
from client.mlp_client.cli import parser
from client.mlp_client.connection import Connection, Rest
from client.mlp_client.files import push
from client.mlp_client.transfer import upload as uploads
from client.mlp_client.transfer.errors import LOCAL, REFUSED, Failure
from datasets.buckets import rows
from datasets.tests.test_buckets import ODD, bucket, remote  # noqa: F401
from datasets.tests.test_exports import SIGNED
from operations.backup.tests.conftest import s3  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)
LARGE = bytes(range(256)) * 4096 * 17 + b"end"  # three parts
SMALL = {"a.csv": b"x\n1\n", "deep/er/ü b.txt": b"b", "empty": b"", f"odd/{SIGNED}": b"1", "a%20b": b"2"}


class Pushing:
    """Runs the client; the platform's worker runs whenever the client asks about the dataset."""

    def __init__(self, rest: Rest, folder, parser):
        self.rest, self.folder, self.parser, self.said = rest, folder, parser, []

    def __call__(self, *words: str) -> dict:
        options = self.parser.parse_args(["push", str(self.folder), "--name", "cats", *words])
        options.quiet = True
        return push(self.rest, options, self.said.append)


@pytest.fixture
def writable(bucket, remote):
    rows.change(bucket, by="root", access="write", everybody=True)
    return bucket


@pytest.fixture
def pushing(live_server, as_alice, tasks, writable, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "time", SimpleNamespace(sleep=lambda _seconds: tasks.run()))
    rest = Rest(Connection(live_server.url, patience=5))
    rest.authenticate(as_alice.token)
    pushed = Pushing(rest, tmp_path / "photos", parser())
    pushed.write = lambda contents: _write(pushed.folder, contents)
    return pushed


def _write(folder, contents: dict[str, bytes]) -> None:
    for path, content in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def contents(remote) -> dict[str, bytes]:
    paths = [entry["path"] for batch in remote.list("train") for entry in batch]
    return {path.removeprefix("train/"): bytes(remote.get(path).bytes()) for path in paths}


def test_a_folder_goes_to_the_bucket_and_again_only_what_is_not_there(pushing, remote):
    files = {**SMALL, **{f"odd/{name}": b"1" for name in ODD}, "large.bin": LARGE}
    pushing.write(files)
    done = pushing("--to", "s3://photos/train/")
    assert contents(remote) == files
    size = sum(map(len, files.values()))
    assert (done["files"], done["bytes"], done["sent"], done["version"]) == (len(files), size, size, 2)
    assert pushing()["sent"] == 0
    remote.delete("train/a.csv")
    (pushing.folder / "empty").unlink()
    done = pushing()
    assert (done["sent"], done["version"]) == (4, 2)
    assert contents(remote) == files  # what else is there stays


@pytest.mark.long
def test_what_differs_is_replaced_only_where_it_is_said(pushing, remote):
    pushing.write({"a.csv": b"1"})
    pushing("--to", "s3/photos/train")
    pushing.write({"a.csv": b"2"})
    with pytest.raises(Failure, match=r"a\.csv is in the bucket with other content; use --replace"):
        pushing()
    assert pushing("--replace")["version"] == 3
    assert contents(remote) == {"a.csv": b"2"}


@pytest.mark.parametrize("changed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_an_interrupted_upload_goes_on_with_the_parts_that_are_missing(pushing, remote, monkeypatch, changed):
    """A new upload is begun where a part has changed and the server, such as rclone's, does not replace parts."""
    pushing.write({"large.bin": LARGE, "a": b"1"})
    deliver = uploading.Sending.deliver

    def interrupted(sending, local, *arguments, **options):
        if len(sent) == 3:
            raise KeyboardInterrupt
        sent.append(local.path)
        return deliver(sending, local, *arguments, **options)

    sent: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(uploading.Sending, "deliver", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pushing("--to", "s3/photos/train", "-j", "1")
    assert (sent, contents(remote)) == (["a", "large.bin", "large.bin"], {"a": b"1"})
    content = b"y" + LARGE[1:] if changed else LARGE
    pushing.write({"large.bin": content})
    sent = pushing()["sent"]
    assert sent > (8 << 20) if changed else sent == len(content) - (16 << 20)
    assert contents(remote)["large.bin"] == content


@pytest.mark.long
def test_an_address_that_has_expired_is_asked_for_again(pushing, remote, monkeypatch):
    """Whatever word the server has for it: it refuses, and the second address is a new one."""
    pushing.write({"a.csv": b"1", "b.csv": b"2", "large.bin": LARGE})
    asked: list[bool] = []
    path = buckets.Bucket._path

    def expired(server, address):
        first = not asked
        asked.append(True)
        return path(server, address.replace("X-Amz-Expires=300", "X-Amz-Expires=299") if first else address)

    monkeypatch.setattr(buckets.Bucket, "_path", expired)
    monkeypatch.setattr(uploading, "FRESH_S", -1)
    monkeypatch.setattr(parts, "FRESH_S", -1)
    assert pushing("--to", "s3/photos/train", "-j", "2")["files"] == 3
    assert len(contents(remote)) == 3


@pytest.mark.long
def test_files_that_are_refused_do_not_stop_the_others(pushing, remote, monkeypatch):
    """They are named, and the exit code says that not all is there."""
    pushing.write({"a.csv": b"1"})
    pushing("--to", "s3/photos/train")
    (pushing.folder / "a.csv").unlink()
    pushing.write({"good": b"3", "a.csv/x": b"2", "a.csv/y": b"2"})
    with pytest.raises(Failure, match=r"a.csv/x: the dataset has a file a.csv.*\(2 files were not sent\)") as failed:
        pushing()
    assert failed.value.code == REFUSED
    assert contents(remote) == {"a.csv": b"1", "good": b"3"}


@pytest.mark.long
def test_a_file_that_changes_while_it_is_sent_and_what_the_server_refuses_are_named(pushing, writable, monkeypatch):
    pushing.write({"a.csv": b"1"})
    pushing("--to", "s3/photos/train")
    blocks = uploads._blocks
    pushing.write({"b.csv": b"2"})

    def changed(local, *arguments):
        pushing.write({"b.csv": b"345"})
        return blocks(local, *arguments)

    monkeypatch.setattr(uploads, "_blocks", changed)
    (pushing.folder / "a.csv").unlink()
    with pytest.raises(Failure, match=r"b\.csv changed during the upload") as failed:
        pushing()
    assert failed.value.code == LOCAL
    rows.change(writable, by="root", access="write", everybody=True, secret="another")
    with pytest.raises(Failure, match="HTTP 403"):
        pushing()
    rows.change(writable, by="root", access="read", everybody=True)
    with pytest.raises(Failure, match="the bucket photos is read-only"):
        pushing()
    with pytest.raises(Failure, match="the dataset cats is in s3/photos/train"):
        pushing("--to", "s3/photos/other")
