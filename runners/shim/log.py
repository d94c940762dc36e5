"""The log of a run: opened without following a link, bounded, and one for all workers. Used by the shim."""

from __future__ import annotations

import contextlib
import os
import stat

TAIL_SIZE = 64 << 10
LINE_LIMIT = 16 << 10  # a worker's line that is longer is cut in two
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_inside(base: str, path: str) -> int:
    """Opens a file for appending. What is below `base` belongs to the run: there no link is followed, folders are
    made, and only a regular file is taken, so that nothing laid there can lead this process astray or hold it up.
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
    """Beyond the limit only the last bytes are kept, and added at the end."""

    def __init__(self, base: str, path: str, limit: int):
        self.fd = open_inside(base, path)
        self.limit = limit
        self.left = max(0, limit - os.fstat(self.fd).st_size)
        self.dropped = 0
        self.tail = b""  # the last bytes of all, written or not

    def write(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-TAIL_SIZE:]
        written = 0
        with contextlib.suppress(OSError):  # the disk is full: the script goes on, what does not fit is counted
            while written < min(len(data), self.left):
                written += os.write(self.fd, data[written : self.left])
        self.left -= written
        self.dropped += len(data) - written

    def close(self) -> None:
        if self.dropped:
            end = self.tail[-min(self.dropped, TAIL_SIZE) :]
            note = f"\n[{self.dropped - len(end)} bytes left out here: a log is kept up to {self.limit} bytes]\n"
            with contextlib.suppress(OSError):
                os.write(self.fd, note.encode() + end)
        os.close(self.fd)


class Lines:
    """One worker's output on its way into the joint log: whole lines, each with the worker's number."""

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
