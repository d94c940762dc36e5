"""Files that go into a repository and come back: what is read again, what is stored again, what vanishes meanwhile."""

from __future__ import annotations

import os
import random
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from operations.backup import layout, restoring, sparse, tree
from operations.backup.places import BackupError, Folder
from operations.backup.repository import Head, Repository
from operations.backup.sealing import Damaged
from operations.backup.tree import CUT, Tree, TreeEntry, parse
from operations.backup.writing import Writer, compare
from runners.tests import exchanging


@pytest.fixture
def repository(tmp_path):
    return Repository.open(Folder(tmp_path / "kept"), "", create=True)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def settle(root: Path) -> None:
    """Give all files times that are not just now, as those of most files are."""
    past = time.time_ns() - 60 * 10**9
    for path in root.rglob("*"):
        os.utime(path, ns=(past, past), follow_symlinks=False)


def back_up(repository: Repository, root: Path, before: list[bytes] = ()) -> list[bytes]:
    swept = Tree(repository, {line.partition(b"\t")[0]: line for line in before})
    swept.sweep(root)
    return list(swept.lines())


def bring_back(repository: Repository, lines: list[bytes], root: Path) -> Path:
    root.mkdir(exist_ok=True)
    Writer(root, repository).write(iter(lines))
    return root


def test_everything_comes_back_with_its_times_and_modes(repository, root, tmp_path):
    (root / "deep" / "empty").mkdir(parents=True)
    (root / "deep" / "small.txt").write_text("small")
    (root / "large.bin").write_bytes(random.Random(1).randbytes(2 * CUT + 5))
    (root / "none").touch(mode=0o640)
    (root / "link").symlink_to("deep/small.txt")
    (root / "away").symlink_to("/etc")
    Path(os.fsdecode(bytes(root) + b"/\xff\xfe name\n")).write_text("odd")
    (root / "program").write_text("#!/bin/sh")
    (root / "program").chmod(0o751)
    (root / "deep" / "empty").chmod(0o500)
    settle(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
        lines = back_up(repository, root)
    (root / "socket").unlink()
    again = bring_back(repository, lines, tmp_path / "again")
    assert list(compare(again, iter(lines))) == []
    names = {path.relative_to(root) for path in root.rglob("*")}
    assert {path.relative_to(again) for path in again.rglob("*")} - names == {
        Path(".restore"),
        Path(layout.DRAFTS),
    }
    for name in names:
        was, now = (root / name).lstat(), (again / name).lstat()
        assert (was.st_mode, was.st_size) == (now.st_mode, now.st_size)
        if not (root / name).is_symlink():
            assert was.st_mtime_ns == now.st_mtime_ns, name
    assert os.readlink(again / "away") == "/etc"


def test_what_has_not_changed_is_neither_read_nor_stored_again(repository, root, monkeypatch):
    (root / "large.bin").write_bytes(random.Random(2).randbytes(CUT + 1))
    (root / "small.txt").write_text("small")
    old = tree.SETTLED_NS
    monkeypatch.setattr(tree, "SETTLED_NS", -1)  # ctime cannot be set back
    first = back_up(repository, root)
    added = repository.added
    monkeypatch.setattr(Tree, "_read", lambda *arguments: pytest.fail("read again"))
    assert back_up(repository, root, first) == first
    assert (repository.added, old) == (added, 2 * 10**9)


def test_a_file_that_was_changed_just_before_is_read_again(repository, root):
    """A change within the same tick of the clock leaves no trace in its times."""
    (root / "now.txt").write_text("first")
    assert parse(back_up(repository, root)[0])[1].state is None


def test_of_a_log_that_has_grown_only_the_end_is_stored(repository, root):
    log, start = root / "log", random.Random(3).randbytes(3 * CUT)
    log.write_bytes(start)
    first = back_up(repository, root)
    added = repository.added
    log.write_bytes(start + b"one more line\n")
    back_up(repository, root, first)
    assert repository.added - added < 1000


def test_many_small_files_share_objects_and_the_same_content_is_stored_once(repository, root):
    for number in range(500):
        (root / str(number)).write_text(f"number {number % 100}" * 50)
    lines = back_up(repository, root)
    assert len(lines) == 500
    assert len({piece[0] for line in lines for piece in parse(line)[1].pieces}) == 1
    assert len(list(repository.place.list("objects"))) == 1


def test_what_vanishes_between_the_sweeps_is_kept_and_what_comes_is_added(repository, root, tmp_path):
    for name in ("stays", "goes", "changes"):
        (root / name).write_text(f"{name} at first")
    (root / "folder").mkdir()
    (root / "folder" / "inside").write_text("inside")
    swept = Tree(repository, {})
    swept.sweep(root)
    (root / "goes").unlink()
    (root / "changes").write_text("changed")
    (root / "comes").write_text("new")
    (root / "folder" / "inside").unlink()
    (root / "folder").rmdir()
    (root / "folder").write_text("a file now")
    swept.sweep(root)
    assert swept.gone == 2
    again = bring_back(repository, list(swept.lines()), tmp_path / "again")
    texts = {path.name: path.read_text() for path in again.iterdir() if path.is_file()}
    assert texts == {
        "stays": "stays at first",
        "goes": "goes at first",
        "changes": "changed",
        "comes": "new",
        "folder": "a file now",
    }


def test_a_sparse_file_stays_one(repository, root, tmp_path):
    with (root / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(3 * CUT)
        file.write(b"middle")
        file.truncate(5 * CUT + 7)
    lines = back_up(repository, root)
    again = bring_back(repository, lines, tmp_path / "again")
    assert list(compare(again, iter(lines))) == []
    assert (again / "sparse").stat().st_blocks * 512 < 3 * CUT
    assert len(list(repository.place.list("objects"))) <= 4


def test_holes_are_neither_read_nor_stored_nor_needed(repository, root, tmp_path, monkeypatch):
    """A user who makes files of terabytes that take no room makes no backup longer, and no restore larger."""
    read, whole = [0], tree._read_full

    def counted(file, count: int) -> bytes:
        read[0] += count
        assert read[0] < 40 * sparse.LEAST
        return whole(file, count)

    monkeypatch.setattr(tree, "_read_full", counted)
    (root / "nothing").touch()
    os.truncate(root / "nothing", 1 << 40)
    with (root / "islands").open("wb") as file:
        for number in range(40):
            file.seek(number * (100 << 30) + number)
            file.write(b"island %d" % number)
        file.truncate(5 << 40)
    settle(root)
    lines = back_up(repository, root)
    assert read[0] > 0
    head = Head("one", "", "", "", 0, 0, 2, [repository.put(b"\n".join(lines)).result()])
    assert restoring.size_on_disk(repository, head) < 40 * sparse.LEAST
    assert sum(parse(line)[1].stored for line in lines) == restoring.size_on_disk(repository, head)
    restoring._need_room(tmp_path, repository, replace(head, size=6 << 40))  # an earlier release counted holes, too
    assert back_up(repository, root, lines) == lines
    again = bring_back(repository, lines, tmp_path / "again")
    assert (again / "nothing").stat().st_size == 1 << 40
    assert (again / "islands").stat().st_size == 5 << 40
    with (again / "islands").open("rb") as file:
        file.seek(39 * (100 << 30) + 39)
        assert file.read(9) == b"island 39"
    assert list(compare(again, iter(lines))) == []
    with (again / "nothing").open("r+b") as file:
        file.seek(7 << 30)
        file.write(b"x")
    assert list(compare(again, iter(lines))) == ["nothing: other content"]


def test_zeros_of_backups_of_earlier_releases_need_no_room(repository):
    zeros = repository.put(bytes(CUT)).result()
    entry = TreeEntry("f", 0o600, 0, 0, 0, 3 * CUT + 5, "", [[zeros, 0, CUT]] * 3 + [["x", 0, 5]])
    head = Head("one", "", "", "", entry.size, 0, 1, [repository.put(entry.line("a")).result()])
    assert restoring.size_on_disk(repository, head) == 5


def test_objects_that_are_missing_are_stored_again(repository, root):
    (root / "a.txt").write_text("a")
    settle(root)
    first = back_up(repository, root)
    for stored in list(repository.place.list("objects")):
        repository.place.remove(stored.name)
    repository.survey()
    back_up(repository, root, first)
    assert len(list(repository.place.list("objects"))) == 1


def test_an_interrupted_restore_continues(repository, root, tmp_path, monkeypatch):
    for number in range(5):
        (root / f"{number}.bin").write_bytes(random.Random(number).randbytes(tree.SMALL + 1))
    lines = back_up(repository, root)
    again, get, asked = tmp_path / "again", repository.get, []

    def fails_at_the_fourth(name: str) -> bytes:
        asked.append(name)
        if len(asked) == 4:
            raise Damaged("the cable was pulled")
        return get(name)

    monkeypatch.setattr(repository, "get", fails_at_the_fourth)
    with pytest.raises(Damaged):
        bring_back(repository, lines, again)
    done = {path.name for path in again.glob("*.bin")}
    assert len(done) <= 4
    asked.clear()
    monkeypatch.setattr(repository, "get", lambda name: asked.append(name) or get(name))
    bring_back(repository, lines, again)
    assert len(asked) == 5 - len(done)
    assert list(compare(again, iter(lines))) == []


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b", "", "a//b", "nul\0"])
def test_a_list_that_leads_out_of_the_root_is_refused(repository, tmp_path, path):
    line = TreeEntry("f", 0o600, os.getuid(), os.getgid(), 0).line(path)
    with pytest.raises(Damaged, match="outside"):
        bring_back(repository, [line], tmp_path / "again")


def test_nothing_is_written_through_a_link(repository, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    link = TreeEntry("l", 0o777, os.getuid(), os.getgid(), 0, target=str(outside)).line("a")
    inside = TreeEntry("d", 0o700, os.getuid(), os.getgid(), 0).line("a/b")
    with pytest.raises(OSError):
        bring_back(repository, [link, inside], tmp_path / "again")
    assert list(outside.iterdir()) == []


def test_the_comparison_finds_every_difference(repository, root):
    for name in ("same", "other", "gone", "mode"):
        (root / name).write_text(name)
    lines = back_up(repository, root)
    (root / "other").write_text("OTHER")
    (root / "gone").unlink()
    (root / "mode").chmod(0o777)
    differences = list(compare(root, iter(lines)))
    assert [line.partition(":")[0] for line in differences] == ["gone", "mode", "other"]


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("datasets/alice/data/a.txt", False),
        ("secret-key", False),
        ("database", True),
        ("nats", True),
        ("run", True),
        ("datasets/.spool/0001", True),
        ("datasets/.spool/parts", False),
        ("datasets/.spool/parts/alice/data/x", False),
        ("backups", True),
        ("backups/objects/aa/x", True),
        ("backups2", False),
        (".restore/dump", True),
        ("restore.json", True),
        (".database.1234", True),
    ],
)
def test_what_is_left_out(root, path, left_out):
    assert layout.leaves_out(root, str(root / "backups"))(path) is left_out


def test_a_folder_that_is_a_link_at_the_second_sweep_is_restored_as_one(repository, root, tmp_path):
    """As a job can arrange it at any moment: what was below the folder at the first sweep is not below the link."""
    for path in ("x/deep/file", "beside"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("harmless")
    (root / "y").symlink_to(tmp_path / "elsewhere")
    swept = Tree(repository, {})
    swept.sweep(root)
    exchanging.exchange(root)
    swept.sweep(root)
    lines = list(swept.lines())
    again = bring_back(repository, lines, tmp_path / "again")
    assert list(compare(again, iter(lines))) == []
    paths = {str(path.relative_to(again)) for path in again.rglob("*")}
    assert paths - {".restore", ".restore/drafts"} == {"beside", "x", "y", "y/deep", "y/deep/file"}
    assert os.readlink(again / "x") == str(tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def test_what_has_no_room_is_not_restored(repository, tmp_path):
    lines = [TreeEntry("f", 0o600, 0, 0, 0, 1 << 60, "", [["object", 0, 1 << 60]]).line("large")]
    head = Head("one", "", "", "", 1 << 60, 0, 1, [repository.put(b"\n".join(lines)).result()])
    with pytest.raises(BackupError, match="are free"):
        restoring._need_room(tmp_path, repository, head)
