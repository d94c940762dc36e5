"""Reads the platform's own logs on: components, jobs and applications, as workloads of the cluster `local`.

A file is known by its device, its number, its first line and the last bytes that were read of it, wherever it is
renamed to. Whenever it is read from its beginning, that reading has a name of its own, stored before its first line is;
how far it was read is stored after the lines, and a line's id is made of the reading and the place in the file: so
nothing is lost or doubled across rotation, truncation, another file under the same number, and any kill. A file that is
gone is forgotten at once, since its number may come back with the same first line. Used by services/follower.py.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction

from aiops.models import FollowedFile

from . import accept

READ_BYTES = 1 << 20  # of one file at one look
HEAD_BYTES = 256
TAIL_BYTES = 256
LONGEST_LINE = 64 << 10  # bytes; a longer one is taken in pieces
NOT_FOLLOWED = {"aiops"}  # what it says of a line would be a line that it says something of
Key = tuple[int, int]  # a file's device and number
STAMP = re.compile(r"^\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?\d*(Z|[+-]\d\d:?\d\d)?")


@dataclass(frozen=True)
class Source:
    """A file whose lines are those of a workload. `rotated`: read only where its reading had begun under its name."""

    path: Path
    namespace: str
    deployment: str
    rotated: bool = False


def sources(root: Path) -> Iterator[Source]:
    for folder in _folders(root / "log"):
        if folder.name in NOT_FOLLOWED:
            continue
        for path in sorted(folder.iterdir()):
            if path.name.endswith((".log", ".log.1")):
                yield Source(path, accept.PLATFORM, folder.name, path.name.endswith(".1"))
    for kind, name in (("jobs", "job.log"), ("apps", "app.log")):
        for user in _folders(root / kind):
            for made in _folders(user):
                yield Source(made / "log" / name, user.name, made.name)


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as found:
            return sorted(Path(entry.path) for entry in found if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


class Follower:
    """Remembers in memory what the database says, so that a file that has not grown costs one stat."""

    def __init__(self, root: Path, take: Callable[[list[dict]], object]):
        self.root, self.take = root, take
        self.known: dict[Key, FollowedFile] | None = None
        self.looks: dict[Key, tuple[str, int, int]] = {}  # when last looked: (path, size, time of change)
        self.missed: set[Key] = set()  # not found when last looked

    def look(self) -> int:
        """Reads on once; how many lines were taken. Raises what `take` raises: then it goes on from there next time."""
        if self.known is None:
            self.known = {(row.device, row.inode): row for row in FollowedFile.objects.all()}
        taken, found = 0, set()
        for source in sources(self.root):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                info = os.lstat(source.path)
                key = (info.st_dev, info.st_ino)
                found.add(key)
                now = (str(source.path), info.st_size, info.st_mtime_ns)
                if stat.S_ISREG(info.st_mode) and self.looks.get(key) != now:
                    count, rest = self._read(source, key)
                    taken += count
                    if not rest:
                        self.looks[key] = now
        self._forget(found)
        return taken

    def _read(self, source: Source, key: Key) -> tuple[int, bool]:
        """(lines taken, whether there is more to take at once)."""
        with _open(source.path) as file:
            head = _head(os.pread(file, HEAD_BYTES, 0))
            if not head:
                return 0, False  # not one whole line yet
            row = self.known.get(key)
            if source.rotated and (row is None or row.head != head):
                return 0, False  # before our time
            if row is None or row.head != head or not _goes_on(file, row):
                row, ours = _begin(row, key, head, source.path)
                self.known[key] = row
                if not ours:
                    return 0, True
            data = os.pread(file, READ_BYTES, row.offset)
            read = sum(map(len, _pieces(data)))
            row = copy.copy(row)  # should the lines not be stored, what is known stays as it was
            tail = _tail(file, row.offset + read)
        lines = list(_lines(source, row, data))
        if not read and row.path == str(source.path):
            return 0, False
        row.path, row.offset, row.tail = str(source.path), row.offset + read, tail
        with transaction.atomic():
            self.take(lines)
            row.save()
        self.known[key] = row
        return len(lines), len(data) == READ_BYTES

    def _forget(self, found: set[Key]) -> None:
        """What is not there at two looks, nor where it was last: one look may miss what is renamed meanwhile."""
        missed = {key for key in self.known if key not in found}
        for key in missed & self.missed:
            row = self.known[key]
            if _is_at(row.path, key):
                continue
            FollowedFile.objects.filter(pk=row.pk, generation=row.generation).delete()
            self.known.pop(key)
            self.looks.pop(key, None)
        self.missed = missed & self.known.keys()


def _begin(known: FollowedFile | None, key: Key, head: str, path: Path) -> tuple[FollowedFile, bool]:
    """A reading from the beginning, stored before its lines are; False with what another replica has stored before."""
    fresh = {"path": str(path), "head": head, "offset": 0, "tail": "", "generation": uuid.uuid4().hex}
    with transaction.atomic():
        rows = FollowedFile.objects.select_for_update()
        row, made = rows.get_or_create(device=key[0], inode=key[1], defaults=fresh)
        if not made:
            if known is None or row.generation != known.generation:
                return row, False
            for name, value in fresh.items():
                setattr(row, name, value)
            row.save()
        return row, True


def _goes_on(file: int, row: FollowedFile) -> bool:
    """Whether what was read is still there: not cut off under our hands, nor written anew."""
    return os.fstat(file).st_size >= row.offset and row.tail in ("", _tail(file, row.offset))


def _tail(file: int, end: int) -> str:
    start = max(0, end - TAIL_BYTES)
    return hashlib.sha256(os.pread(file, end - start, start)).hexdigest()[:16]


def _is_at(path: str, key: Key) -> bool:
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # it cannot be told
    return (info.st_dev, info.st_ino) == key


def _lines(source: Source, row: FollowedFile, data: bytes) -> Iterator[dict]:
    names = {"namespace": source.namespace, "deployment": source.deployment, "pod": source.path.name}
    at = row.offset
    for piece in _pieces(data):
        text = piece.decode("utf-8", "replace").rstrip("\r\n")
        if text.strip():
            id = hashlib.sha256(f"{row.generation}:{at}".encode()).hexdigest()[:32]
            yield accept.line(text, id=id, at_ms=stamp(text), **names)
        at += len(piece)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[int]:
    """No link is followed: a job writes into its folder."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        file = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        yield file
    finally:
        os.close(file)


def _head(begin: bytes) -> str:
    """Of the first line, or of its first bytes; "" while that is not written yet."""
    end = begin.find(b"\n")
    if end < 0 and len(begin) < HEAD_BYTES:
        return ""
    return hashlib.sha256(begin if end < 0 else begin[: end + 1]).hexdigest()[:16]


def _pieces(data: bytes) -> Iterator[bytes]:
    """Whole lines with their ends; what has no end yet waits, unless it is longer than any line may be."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start, start + LONGEST_LINE)
        stop = end + 1 if end >= 0 else start + LONGEST_LINE
        if end < 0 and stop > len(data):
            return
        yield data[start:stop]
        start = stop


def stamp(text: str) -> int | None:
    """The line's own time in ms, when it begins with one that looks like ISO 8601; without a zone it is UTC."""
    found = STAMP.match(text)
    if found is None:
        return None
    at, fraction, zone = found.groups()
    return accept.milliseconds(f"{at.replace(' ', 'T')}.{(fraction or '0').ljust(6, '0')}{zone or '+00:00'}")
