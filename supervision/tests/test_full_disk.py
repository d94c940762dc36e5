"""What keeps the platform up on a full disk: log files that lose, files of a start that need no room, the reserve."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from supervisor import loggers

from kernel import disk
from supervision import launch, logs, reserve

LOW, FULL, ROOMY = disk.Free(100 << 20, 9999), disk.Free(1 << 20, 9999), disk.Free(1 << 40, 9999)


@pytest.fixture
def tiny(tmp_path):
    """A disk of a few blocks."""
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True
    ).returncode:
        pytest.skip("a disk of a given size takes the right to mount one")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for _block in range(shutil.disk_usage(folder).free // 4096):
            file.write(bytes(4096))
    return ballast


def test_a_log_on_a_full_disk_loses_lines_and_goes_on(tiny, capsys):
    """Without a word to standard error, which is a file on that disk, and also where the file would be rotated."""
    handler = logs.LosingHandler(str(tiny / "part.log"), maxBytes=6000, backupCount=1)
    handler.setFormat("%(message)s")

    def write(text: bytes) -> None:
        handler.emit(loggers.LogRecord(loggers.LevelsByName.INFO, text))

    write(b"before\n")
    ballast = fill(tiny)
    for _line in range(10):
        write(b"x" * 1000 + b"\n")
    late = logs.LosingHandler(str(tiny / "late" / "part.log"))
    late.emit(loggers.LogRecord(loggers.LevelsByName.INFO, "lost"))
    ballast.unlink()
    write(b"after\n")
    handler.close()
    assert b"after" in b"".join(path.read_bytes() for path in tiny.glob("part.log*"))
    assert capsys.readouterr() == ("", "")


def test_a_part_records_its_start_without_room(tiny):
    launch.write(tiny / "group", "123456")
    fill(tiny)
    launch.write(tiny / "group", "789")
    assert (tiny / "group").read_text() == "789"
    launch.write(tiny / "starts", "1.0 1")
    assert sorted(path.name for path in tiny.iterdir())[-1] in {"group", "starts"}


def test_the_reserve_is_given_back_when_the_disk_is_full_and_made_again(settings, tmp_path, monkeypatch):
    """What is free is faked at kernel.disk.free; mlp/tests/test_full_disk.py fills a disk."""
    settings.MLP_ROOT = tmp_path
    reserve.path().parent.mkdir()
    said: list[str] = []

    def look(free: disk.Free) -> bool:
        monkeypatch.setattr(disk, "free", lambda place=None: free)
        reserve.hold(said.append)
        return reserve.path().exists()

    assert [look(free) for free in (LOW, ROOMY, LOW, FULL, LOW, ROOMY)] == [False, True, True, False, False, True]
    assert reserve.path().stat().st_blocks * 512 >= reserve.SIZE
    assert len(said) == 1
