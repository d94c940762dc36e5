"""The files in which processes count (meters): read by `/metrics`, and kept small.

Each process has a random name and holds a lock while it lives: a process id says nothing to the processes of other
containers and machines, which count in the same folder. A file of a process that has ended is added to
`{type}_ended.db` and removed: else its counts would be missing, which Prometheus would take for a reset, or there would
be more files with each restart. A kill at any moment counts nothing twice: what is to be removed is written down before
the sum takes its place, with the sum's inode.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector

ENDED = "ended"
JOURNAL = "folding.json"
ADDED = ("counter", "histogram", "summary")
LOCK = ".alive"


class Identity:
    """The name of this process in those of its files, {type}_{name}.db: another one after a fork.

    prometheus-client asks before each count, and once before all: then nothing is counted yet.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.name = ""
        self.process: int | None = None
        self.lock: int | None = None

    def __call__(self) -> str:
        if self.process is None:
            self.process = 0
        elif self.process != os.getpid():
            if self.lock is not None:
                os.close(self.lock)  # of the process that has forked this one, which keeps it
            self.name = secrets.token_hex(8)
            self.lock = os.open(self.folder / f"{self.name}{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with contextlib.suppress(OSError):  # a storage without locks
                fcntl.flock(self.lock, fcntl.LOCK_EX)
            self.process = os.getpid()
        return self.name


def collect(folder: Path) -> Iterable[Metric]:
    """Return what all processes have counted, the ended ones included."""
    with _locked(folder):
        _finish(folder)
        ended = [path for path in folder.glob("*.db") if not _is_alive(path)]
        for kind in ADDED:
            _fold(folder, kind, [path for path in ended if path.name.startswith(f"{kind}_")])
        for path in ended:
            if path.name.startswith("gauge_"):  # what an ended process has open is closed
                path.unlink(missing_ok=True)
            path.with_name(f"{path.stem.rpartition('_')[2]}{LOCK}").unlink(missing_ok=True)
        return MultiProcessCollector.merge([str(path) for path in folder.glob("*.db")])


def clear(folder: Path) -> None:
    """Remove all counts. None of the processes runs."""
    for path in (*folder.glob("*.db"), *folder.glob(f"*{LOCK}"), folder / JOURNAL):
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_alive(path: Path) -> bool:
    """Return whether the file is of a process that exists, or is a sum. Where the storage has no locks all are."""
    process = path.stem.rpartition("_")[2]
    if process == ENDED:
        return True
    try:
        descriptor = os.open(path.with_name(f"{process}{LOCK}"), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _fold(folder: Path, kind: str, ended: list[Path]) -> None:
    """Add the counts of ended processes to the sum and remove their files."""
    if not ended:
        return
    total = folder / f"{kind}_{ENDED}.db"
    draft = folder / f".{kind}_{ENDED}.draft"
    draft.unlink(missing_ok=True)
    sums: dict[str, float] = {}
    for path in (total, *ended):
        for key, value in _counts(path):
            sums[key] = sums.get(key, 0.0) + value
    store = MmapedDict(str(draft))
    for key, value in sums.items():
        store.write_value(key, value, 0.0)
    store.close()
    journal = folder / JOURNAL
    note = journal.with_suffix(".draft")
    note.write_text(json.dumps({"inode": draft.stat().st_ino, "total": total.name, "ended": [p.name for p in ended]}))
    note.replace(journal)
    draft.replace(total)
    _finish(folder)


def _counts(path: Path) -> Iterator[tuple[str, float]]:
    """Yield the counts of a file, up to where a crash of the machine has cut it: what was not written may be zeros."""
    last = 0
    with contextlib.suppress(FileNotFoundError, ValueError, RuntimeError, struct.error):
        for key, value, _timestamp, position in MmapedDict.read_all_values_from_file(str(path)):
            if position <= last or not isinstance(json.loads(key), list):
                return
            last = position
            yield key, value


def _finish(folder: Path) -> None:
    """Remove the files that the sum includes: now, and after a kill that came before this."""
    journal = folder / JOURNAL
    try:
        note = json.loads(journal.read_text())
    except FileNotFoundError:
        return
    with contextlib.suppress(FileNotFoundError):
        if (folder / note["total"]).stat().st_ino == note["inode"]:
            for name in note["ended"]:
                (folder / name).unlink(missing_ok=True)
    journal.unlink()
