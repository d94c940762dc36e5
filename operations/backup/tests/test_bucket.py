"""Backups in a bucket of a real S3 server: rclone's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mlp.tests.tiers import few
from operations.backup.bucket import open_place
from operations.backup.places import BackupError
from operations.backup.repository import Repository
from operations.backup.sealing import Damaged
from operations.backup.tests.test_repository import CONTENT, head, listed


@pytest.fixture
def bucket(s3, monkeypatch, request):
    """Return the URL of an empty place in the bucket, with everything set that is needed to reach it."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    return f"s3://kept/{request.node.name}"


@pytest.mark.parametrize("passphrase", few(["", "a passphrase"], 1), ids=["plain", "encrypted"])
def test_what_is_stored_comes_back_once_it_is_complete(bucket, passphrase):
    repository = Repository.open(open_place(bucket), passphrase, create=True)
    with repository.locked():
        names = [repository.put(CONTENT + bytes([number])).result() for number in range(20)]
        repository.save(head("20260101T000000Z-a", listed(repository, *names)))
    again = Repository.open(open_place(bucket), passphrase)
    again.survey()
    assert again.known >= set(names)
    assert [head.name for head in again.heads()] == ["20260101T000000Z-a"]
    assert {again.get(name)[:-1] for name in names} == {CONTENT}
    assert list(again.place.list("locks")) == []


def test_pruning_removes_objects(bucket):
    repository = Repository.open(open_place(bucket), "", create=True)
    old, new = repository.put(b"old").result(), repository.put(b"new").result()
    repository.save(head("20260101T000000Z-a", listed(repository, old)))
    repository.save(head("20260102T000000Z-b", listed(repository, new)))
    assert repository.prune(1) == (1, 2)
    assert repository.get(new) == b"new"
    with pytest.raises(Damaged, match="missing"):
        repository.get(old)


def test_times_of_objects_are_known_since_locks_need_them(bucket):
    place = open_place(bucket)
    place.write("locks/one", b"{}")
    (stored,) = place.list("locks")
    assert (stored.name, stored.size) == ("locks/one", 2)
    assert abs(datetime.now(UTC) - stored.modified) < timedelta(minutes=5)


def test_a_missing_object_is_no_error_to_remove_and_one_to_read(bucket):
    place = open_place(bucket)
    place.remove("objects/none")
    with pytest.raises(FileNotFoundError):
        place.read("objects/none")


@pytest.mark.parametrize(("name", "value"), [("AWS_SECRET_ACCESS_KEY", "wrong"), ("AWS_ACCESS_KEY_ID", "nobody")])
def test_wrong_credentials_are_told_in_one_line(bucket, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(BackupError, match=r"^s3://kept/") as refusal:
        Repository.open(open_place(bucket), create=True)
    assert "\n" not in str(refusal.value)
    assert "the-secret" not in str(refusal.value)


def test_a_bucket_that_is_missing_is_told(bucket):
    with pytest.raises(BackupError):
        Repository.open(open_place("s3://missing/prefix"), create=True)


def test_a_url_without_a_bucket_is_refused():
    with pytest.raises(BackupError, match="name a bucket"):
        open_place("s3://")
