"""Follows the platform's own log files: components, jobs and applications, as workloads of the cluster `local`.

A file is identified by its device, its inode, its first line and the last bytes read, whatever it is renamed to. Each
reading from the beginning has a name of its own, stored before its first line; the offset is stored with the lines, and
a line's id is made of the reading and its place in the file: so nothing is lost or doubled across rotation, truncation,
a reused inode, and any kill. A deleted file is forgotten, since its inode may come back with the same first line. Used
by services/follower.py.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import hashlib
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.db import transaction

from aiops.models import FollowedFile
from kernel import sent_times

from . import accept

READ_BYTES = 1 << 20  # of one file at each look
HEAD_BYTES = 256
TAIL_BYTES = 256
LISTED_S = 30.0  # after which a folder is listed again though its time of change is the same
SETTLED_S = 2.0
LONGEST_LINE = 64 << 10  # bytes; a longer one is taken in several lines
NOT_FOLLOWED = {"aiops"}  # a log line about a log line would cause another one
RUNS = {"jobs": "job.log", "apps": "app.log"}  # the logs of runs: below {kind}/{user}/{name}/log
Key = tuple[int, int]  # a file's device and inode
STAMP = re.compile(r"^\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?\d*(Z|[+-]\d\d:?\d\d)?")


@dataclass(frozen=True)
class Source:
    """A log file of a workload. `rotated`: read only if its reading began under its former name."""

    path: Path
    namespace: str
    deployment: str
    rotated: bool = False


class Sources:
    """The log files below the storage root. A folder is listed again when it has changed: with thousands of runs that
    have ended, this is most of what there is to do.
    """

    def __init__(self, root: Path):
        self.root = root
        # By folder: its time of change, when it was listed, and the listing.
        self.kept: dict[Path, tuple[int, float, list]] = {}

    def __iter__(self) -> Iterator[Source]:
        for folder in self._listed(self.root / "log", _folders):
            if folder.name not in NOT_FOLLOWED:
                yield from self._listed(folder, _files)
        for kind, name in RUNS.items():
            for user in self._listed(self.root / kind, _folders):
                yield from self._listed(user, partial(_logs, name))

    def _listed(self, folder: Path, listing: Callable[[Path], list]) -> list:
        """Return the listing of a folder, the kept one if nothing can have changed since."""
        try:
            changed, now = os.stat(folder).st_mtime_ns, time.time()
        except OSError:
            self.kept.pop(folder, None)
            return []
        was, at, kept = self.kept.get(folder, (0, 0.0, []))
        if was == changed and 0 <= now - at < LISTED_S:
            return kept
        kept = listing(folder)
        if now - changed / 1e9 > SETTLED_S:  # else it may change again within the resolution of the time of change
            self.kept[folder] = changed, now, kept
        return kept


def _files(folder: Path) -> list[Source]:
    return [
        Source(path, accept.PLATFORM, folder.name, path.name.endswith(".1"))
        for path in sorted(folder.iterdir())
        if path.name.endswith((".log", ".log.1"))
    ]


def _logs(name: str, user: Path) -> list[Source]:
    return [Source(folder / "log" / name, user.name, folder.name) for folder in _folders(user)]


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


class Follower:
    """Keeps the state of the database in memory, so that a file that has not grown costs one stat."""

    def __init__(self, root: Path, take: Callable[[list[dict]], object]):
        self.sources, self.take = Sources(root), take
        self.known: dict[Key, FollowedFile] | None = None
        self.looks: dict[Key, tuple[str, int, int]] = {}  # at the last look: (path, size, time of change)
        self.missed: set[Key] = set()  # missing at the last look

    def poll(self) -> int:
        """Read all files on and return how many lines were taken. Raises what `take` raises; the next call continues
        there.
        """
        if self.known is None:
            self.known = {(row.device, row.inode): row for row in FollowedFile.objects.all()}
        taken, seen = 0, set()
        for source in self.sources:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                info = os.lstat(source.path)
                key = (info.st_dev, info.st_ino)
                seen.add(key)
                now = (str(source.path), info.st_size, info.st_mtime_ns)
                if stat.S_ISREG(info.st_mode) and self.looks.get(key) != now:
                    count, rest = self._read(source, key)
                    taken += count
                    if not rest:
                        self.looks[key] = now
        self._forget(seen)
        return taken

    def _read(self, source: Source, key: Key) -> tuple[int, bool]:
        """Return how many lines were taken, and whether there is more to take at once."""
        with _open(source.path) as file:
            head = _head(os.pread(file, HEAD_BYTES, 0))
            if not head:
                return 0, False  # the first line is incomplete
            row = self.known.get(key)
            if source.rotated and (row is None or row.head != head):
                return 0, False  # rotated before it was followed
            if row is None or row.head != head or not _has_same_content(file, row):
                row, ours = _begin(row, key, head, source.path)
                self.known[key] = row
                if not ours:
                    return 0, True
            data = os.pread(file, READ_BYTES, row.offset)
            read = sum(map(len, _pieces(data)))
            row = copy.copy(row)  # if storing fails, the known row stays unchanged
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

    def _forget(self, seen: set[Key]) -> None:
        """Forget files missing at two looks and from their last path: one look may miss a file that
        is being renamed.
        """
        missed = {key for key in self.known if key not in seen}
        for key in missed & self.missed:
            row = self.known[key]
            if _is_at(row.path, key):
                continue
            FollowedFile.objects.filter(pk=row.pk, generation=row.generation).delete()
            self.known.pop(key)
            self.looks.pop(key, None)
        self.missed = missed & self.known.keys()


def _begin(known: FollowedFile | None, key: Key, head: str, path: Path) -> tuple[FollowedFile, bool]:
    """Start a reading from the beginning, stored before its lines; return it, and False when another replica did so
    before.
    """
    fresh = {"path": str(path), "head": head, "offset": 0, "tail": "", "generation": uuid.uuid4().hex}
    with transaction.atomic():
        rows = FollowedFile.objects.select_for_update()
        row, created = rows.get_or_create(device=key[0], inode=key[1], defaults=fresh)
        if not created:
            if known is None or row.generation != known.generation:
                return row, False
            for name, value in fresh.items():
                setattr(row, name, value)
            row.save()
        return row, True


def _has_same_content(file: int, row: FollowedFile) -> bool:
    """Return whether the bytes read before are still there: the file was neither truncated nor rewritten."""
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
        return True  # not readable now: assume that it is there
    return (info.st_dev, info.st_ino) == key


def _lines(source: Source, row: FollowedFile, data: bytes) -> Iterator[dict]:
    names = {"namespace": source.namespace, "deployment": source.deployment, "pod": source.path.name}
    at = row.offset
    for piece in _pieces(data):
        text = piece.decode("utf-8", "replace").rstrip("\r\n")
        if text.strip():
            yield accept.line(text, id=f"{_name(row.generation)}-{at}", at_ms=stamp(text), **names)
        at += len(piece)


def _name(generation: str) -> str:
    """Return how the ids of a reading's lines begin. No user's id can begin so: those have a colon."""
    return hashlib.sha256(generation.encode()).hexdigest()[:24]


def offsets(path: Path, ids: Sequence[str]) -> dict[str, int]:
    """Return where the lines with these ids begin in the file; those of another file, or of an earlier one in its
    place, are left out.
    """
    readings = FollowedFile.objects.filter(path=str(path)).values_list("generation", flat=True)
    begins = {_name(generation) for generation in readings}
    parts = [(id, *id.rpartition("-")) for id in ids]
    return {id: int(at) for id, begin, _, at in parts if begin in begins and at.isascii() and at.isdigit()}


@contextlib.contextmanager
def _open(path: Path) -> Iterator[int]:
    """Open a file without following links, since a job can write into its folder. Raises FileNotFoundError where it is
    none any more: a link, a FIFO, or what else has taken its place since it was looked at.
    """
    gone = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        file = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as problem:
        raise (gone if problem.errno in (errno.ELOOP, errno.ENXIO) else problem) from None  # a link, a socket
    finally:
        os.close(folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise gone
        yield file
    finally:
        os.close(file)


def _head(begin: bytes) -> str:
    """Return the hash of the first line, or of its first bytes; "" until they are written."""
    end = begin.find(b"\n")
    if end < 0 and len(begin) < HEAD_BYTES:
        return ""
    return hashlib.sha256(begin if end < 0 else begin[: end + 1]).hexdigest()[:16]


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield whole lines with their ends; an incomplete line waits, unless it is longer than LONGEST_LINE."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start, start + LONGEST_LINE)
        stop = end + 1 if end >= 0 else start + LONGEST_LINE
        if end < 0 and stop > len(data):
            return
        yield data[start:stop]
        start = stop


def stamp(text: str) -> int | None:
    """Return a line's own time in ms, when it begins with one like ISO 8601; without a time zone it is UTC."""
    match = STAMP.match(text)
    if match is None:
        return None
    at, fraction, zone = match.groups()
    return sent_times.milliseconds(f"{at.replace(' ', 'T')}.{(fraction or '0').ljust(6, '0')}{zone or '+00:00'}")
