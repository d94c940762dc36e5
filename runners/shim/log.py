"""The log of a run: opened without following links, limited in size, one for all workers. Used by the shim."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import time

TAIL_SIZE = 64 << 10
LINE_LIMIT = 16 << 10  # longer lines of a worker are split
TIME_S = 0.1  # between two marks of time at least, and more for a run that has lasted long
TIMES = 20_000  # marks, roughly: their number grows only with the logarithm of a run's age after that
MARK = struct.Struct("<QQ")  # kernel/textlog/times.py
BEGIN = 1 << 63
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_below(base: str, path: str) -> int:
    """Open a file for appending and return its descriptor. The run may write below `base`: there no link is followed,
    folders are created, and only a regular file is accepted, so that the run can neither redirect nor block this
    process. Raises OSError.
    """
    relative = os.path.relpath(path, base)
    if relative.startswith(".."):
        base, relative = os.path.split(path)
    *folders, name = relative.split("/")
    here = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o755, dir_fd=here)
            below = os.open(folder, FOLDER, dir_fd=here)
            os.close(here)
            here = below
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = os.open(name, flags, 0o644, dir_fd=here)
    finally:
        os.close(here)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(0, "Not a regular file")
    return fd


class Log:
    """A log file with a size limit: beyond it only the last bytes are kept, and appended at the end."""

    def __init__(self, base: str, path: str, limit: int):
        self.fd = open_below(base, path)
        self.limit = limit
        self.left = max(0, limit - os.fstat(self.fd).st_size)
        self.dropped = 0
        self.tail = b""  # the last bytes of the output, written or not
        self.times = Times(base, times_of(path))
        self.times.mark(self.size(), BEGIN)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def write(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-TAIL_SIZE:]
        if data and self.left and self.times.is_due():
            self.times.mark(self.size())
        written = 0
        with contextlib.suppress(OSError):  # the disk is full: the script goes on, lost bytes are counted
            while written < min(len(data), self.left):
                written += os.write(self.fd, data[written : self.left])
        self.left -= written
        self.dropped += len(data) - written

    def close(self) -> None:
        if self.dropped:
            end = self.tail[-min(self.dropped, TAIL_SIZE) :]
            note = f"\n[{self.dropped - len(end)} bytes left out here: a log is kept up to {self.limit} bytes]\n"
            self.times.mark(self.size())
            with contextlib.suppress(OSError):
                os.write(self.fd, note.encode() + end)
        os.close(self.fd)
        self.times.close()


def times_of(path: str) -> str:
    """Return the path of the timestamps of a log's lines."""
    return path.removesuffix(".log") + ".times"


class Times:
    """The timestamps of a log: marks of (offset, ms), at a limited rate.

    If the file cannot be opened or written, the log has no timestamps.
    """

    def __init__(self, base: str, path: str):
        self.fd = -1
        with contextlib.suppress(OSError):
            self.fd = open_below(base, path)
            if torn := os.fstat(self.fd).st_size % MARK.size:  # the disk was full
                os.ftruncate(self.fd, os.fstat(self.fd).st_size - torn)
        self.begun = time.monotonic()
        self.next = 0.0

    def is_due(self) -> bool:
        return time.monotonic() >= self.next

    def mark(self, offset: int, flag: int = 0) -> None:
        """Write a mark: what follows `offset` is written now."""
        now = time.monotonic()
        self.next = now + max(TIME_S, (now - self.begun) / TIMES)
        with contextlib.suppress(OSError):
            os.write(self.fd, MARK.pack(offset, int(time.time() * 1000) | flag))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.fd)


class Lines:
    """The output of one worker, written to the shared log as whole lines, each with the worker's number."""

    def __init__(self, log: Log, rank: int):
        self.log, self.prefix, self.rest = log, b"[%d] " % rank, b""

    def write(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        while len(self.rest) > LINE_LIMIT:
            lines.append(self.rest[:LINE_LIMIT])
            self.rest = self.rest[LINE_LIMIT:]
        if lines:
            self.log.write(b"".join(self.prefix + line + b"\n" for line in lines))

    def close(self) -> None:
        if self.rest:
            self.log.write(self.prefix + self.rest + b"\n")
            self.rest = b""
