"""A repository in a folder: what it stores, what it refuses, and what a kill or a damage leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlp.tests.tiers import few
from operations.backup import repository as repositories
from operations.backup.bucket import open_place
from operations.backup.places import BackupError, Folder
from operations.backup.repository import Head, Repository
from operations.backup.sealing import Damaged, Sealer, new_key, open_key

CONTENT = b"one, two, three; " * 1000


def head(name: str, files: list[str]) -> Head:
    return Head(name, "2026-01-02T03:04:05+00:00", "", "1", 5, 5, 1, files, {"migrations": []})


def listed(repository: Repository, *names: str) -> list[str]:
    """Store a list of files whose contents are these objects; return its own."""
    lines = [f'"{number}"\t{json.dumps({"t": "f", "c": [[name, 0, 1]]})}' for number, name in enumerate(names)]
    return [repository.put("\n".join(lines).encode()).result()]


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture(params=["", "a passphrase"], ids=["plain", "encrypted"])
def opened(request, tmp_path):
    return Repository.open(Folder(tmp_path / "kept"), request.param, create=True), request.param


def test_content_is_stored_once_and_comes_back(opened):
    repository, passphrase = opened
    names = [repository.put(CONTENT).result() for _ in range(2)]
    added = repository.added
    assert names[0] == names[1]
    assert 0 < added < len(CONTENT) / 10  # compressed
    again = Repository.open(repository.place, passphrase)
    again.survey()
    assert again.put(CONTENT).result() == names[0]
    assert (again.added, again.get(names[0])) == (0, CONTENT)


def test_nothing_readable_is_in_an_encrypted_repository(tmp_path):
    repository = Repository.open(Folder(tmp_path / "kept"), "a passphrase", create=True)
    name = repository.put(CONTENT).result()
    repository.save(head("20260101T000000Z-aaaaaa", [name]))
    plain = Sealer().name(CONTENT)
    for path in files(tmp_path):
        assert plain not in path.name
        for secret in (b"one, two", b"2026-01-02", b"passphrase"):
            assert secret not in path.read_bytes()


@pytest.mark.parametrize(("given", "says"), [("", "is encrypted"), ("another one", "is not that of these backups")])
def test_without_the_passphrase_it_is_not_opened(tmp_path, given, says):
    Repository.open(Folder(tmp_path / "kept"), "a passphrase", create=True)
    with pytest.raises(BackupError, match=says):
        Repository.open(Folder(tmp_path / "kept"), given)


def test_a_passphrase_for_a_plain_repository_is_refused(tmp_path):
    """Else an operator who gives one believes that the backups are encrypted."""
    Repository.open(Folder(tmp_path / "kept"), "", create=True)
    with pytest.raises(BackupError, match="is not encrypted"):
        Repository.open(Folder(tmp_path / "kept"), "a passphrase")


@pytest.mark.parametrize("change", few(["flip", "cut", "exchange", "empty"], 3))
def test_a_damaged_object_is_noticed(opened, change):
    repository, _ = opened
    name, other = repository.put(CONTENT).result(), repository.put(b"something else").result()
    path = repository.place.path / "objects" / name[:2] / name
    data = path.read_bytes()
    changed = {
        "flip": data[:-1] + bytes([data[-1] ^ 1]),
        "cut": data[: len(data) // 2],
        "exchange": (path.parent.parent / other[:2] / other).read_bytes(),
        "empty": b"",
    }
    path.write_bytes(changed[change])
    with pytest.raises(Damaged):
        repository.get(name)


def test_a_missing_object_is_noticed(opened):
    with pytest.raises(Damaged, match="missing"):
        opened[0].get("0" * 64)


def test_only_complete_backups_are_listed_oldest_first(opened):
    repository, _ = opened
    for name in ("20260103T000000Z-a", "20260101T000000Z-b"):
        repository.save(head(name, []))
    (repository.place.path / "drafts").mkdir(exist_ok=True)
    (repository.place.path / "drafts" / "half").write_bytes(b"half of a backup")
    assert [head.name for head in repository.heads()] == ["20260101T000000Z-b", "20260103T000000Z-a"]
    assert repository.head().name == "20260103T000000Z-a"
    with pytest.raises(BackupError, match="no backup 2025"):
        repository.head("2025")


def test_pruning_keeps_what_the_remaining_backups_need(opened):
    repository, _ = opened
    shared, old, new = (repository.put(text).result() for text in (b"shared", b"old", b"new"))
    repository.save(head("20260101T000000Z-a", listed(repository, shared, old)))
    repository.save(head("20260102T000000Z-b", listed(repository, shared, new)))
    repository.put(b"left by a backup that was killed").result()
    assert repository.prune(1) == (1, 3)  # the old content, the old list, the rest
    assert repository.prune(1) == (0, 0)
    assert [repository.get(name) for name in (shared, new)] == [b"shared", b"new"]
    with pytest.raises(Damaged):
        repository.get(old)


def test_two_cannot_write_at_once(opened):
    repository, passphrase = opened
    other = Repository.open(repository.place, passphrase)
    with repository.locked(), pytest.raises(BackupError, match="another backup is being written"), other.locked():
        pass
    with repository.locked():
        pass
    assert list(repository.place.list("locks")) == []


def test_the_lock_of_a_killed_writer_counts_no_more(tmp_path):
    repository = Repository.open(Folder(tmp_path / "kept"), "", create=True)
    program = (
        "import os, django; django.setup()\n"
        "from operations.backup.places import Folder\n"
        "from operations.backup.repository import Repository\n"
        f"lock = Repository.open(Folder(__import__('pathlib').Path({str(tmp_path / 'kept')!r}))).locked()\n"
        "lock.__enter__(); os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "mlp.settings"}
    assert subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode == -9
    assert len(list(repository.place.list("locks"))) == 1
    with repository.locked():
        pass


def test_a_lock_of_another_machine_counts_until_it_is_old(tmp_path):
    repository = Repository.open(Folder(tmp_path / "kept"), "", create=True)
    repository.place.write("locks/other", json.dumps({"host": "elsewhere", "pid": 1, "began": "1"}).encode())
    with pytest.raises(BackupError, match="process 1 on elsewhere"), repository.locked():
        pass
    path = tmp_path / "kept" / "locks" / "other"
    long_ago = path.stat().st_mtime - repositories.LOCK_LASTS.total_seconds() - 1
    os.utime(path, (long_ago, long_ago))
    with repository.locked():
        pass


def test_a_folder_with_other_files_is_not_made_a_repository(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(BackupError, match="is not empty"):
        Repository.open(Folder(tmp_path), "", create=True)
    with pytest.raises(BackupError, match="has no backups"):
        Repository.open(Folder(tmp_path / "missing"))


def test_a_destination_that_is_neither_is_refused():
    with pytest.raises(BackupError, match="a folder or s3"):
        open_place("ftp://somewhere/else")


def test_a_repository_of_a_later_release_is_refused(tmp_path):
    place = Folder(tmp_path / "kept")
    place.write("repository.json", json.dumps({"form": 2, "identity": "x", "key": None}).encode())
    with pytest.raises(BackupError, match="newer version"):
        Repository.open(place)


def test_the_key_is_kept_whole_and_opens_with_its_passphrase_only():
    key, kept = new_key("first")
    assert open_key("first", json.loads(json.dumps(kept))) == key
    with pytest.raises(BackupError):
        open_key("second", kept)
