"""Reads the platform's own logs on: components, jobs and applications, as workloads of the cluster `local`.

A file is known by its device, its number and its first line, wherever it is renamed to; how far it was read is stored
after its lines, and the lines' ids are made of the file and their place in it: so nothing is lost or doubled across
rotation, truncation and any kill. Used by services/follower.py.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from . import intake
from .models import FollowedFile

READ_BYTES = 1 << 20  # of one file at one look
HEAD_BYTES = 256
LONGEST_LINE = 64 << 10  # bytes; a longer one is taken in pieces
NOT_FOLLOWED = {"aiops"}  # what it says of a line would be a line that it says something of
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
                yield Source(path, intake.PLATFORM, folder.name, path.name.endswith(".1"))
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
        self.known: dict[tuple[int, int], FollowedFile] | None = None
        self.sizes: dict[tuple[int, int], tuple[str, int]] = {}  # when last looked: (path, size)

    def look(self) -> int:
        """Reads on once; how many lines were taken. Raises what `take` raises: then it goes on from there next time."""
        if self.known is None:
            self.known = {(row.device, row.inode): row for row in FollowedFile.objects.all()}
        taken = 0
        for source in sources(self.root):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                info = os.lstat(source.path)
                key = (info.st_dev, info.st_ino)
                if stat.S_ISREG(info.st_mode) and self.sizes.get(key) != (str(source.path), info.st_size):
                    count, rest = self._read(source, key)
                    taken += count
                    if not rest:
                        self.sizes[key] = (str(source.path), info.st_size)
        return taken

    def _read(self, source: Source, key: tuple[int, int]) -> tuple[int, bool]:
        """(lines taken, whether there is more to take at once)."""
        with _open(source.path) as file:
            begin = os.pread(file, HEAD_BYTES, 0)
            head = _head(begin)
            if not head:
                return 0, False  # not one whole line yet
            row = self.known.get(key)
            if row is None or row.head != head:
                if source.rotated:
                    return 0, False  # before our time
                row = FollowedFile(pk=row.pk if row else None, device=key[0], inode=key[1], head=head, offset=0)
            if os.fstat(file).st_size < row.offset:
                row.offset = 0  # cut off under our hands, with the same first line
            data = os.pread(file, READ_BYTES, row.offset)
        pieces = list(_pieces(data))
        if not pieces:
            return 0, False
        names = {"namespace": source.namespace, "deployment": source.deployment, "pod": source.path.name}
        base = f"{key[0]:x}:{key[1]:x}:{head}"
        lines, at = [], row.offset
        for piece in pieces:
            text = piece.decode("utf-8", "replace").rstrip("\r\n")
            if text.strip():
                id = hashlib.sha256(f"{base}:{at}".encode()).hexdigest()[:32]
                lines.append(intake.line(text, id=id, at_ms=stamp(text), **names))
            at += len(piece)
        with transaction.atomic():
            self.take(lines)
            row.path, row.offset, row.seen = str(source.path), at, timezone.now()
            row.save()
        self.known[key] = row
        return len(lines), len(data) == READ_BYTES

    def forget(self, before) -> None:
        """Files that are gone need not be remembered."""
        gone = [row for row in FollowedFile.objects.filter(seen__lt=before) if not os.path.exists(row.path)]
        for row in gone:
            row.delete()
            (self.known or {}).pop((row.device, row.inode), None)


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
    return intake.milliseconds(f"{at.replace(' ', 'T')}.{(fraction or '0').ljust(6, '0')}{zone or '+00:00'}")
