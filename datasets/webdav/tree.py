"""Files of the data service on disk, reached from `{root}/datasets` folder by folder through descriptors.

Every folder is opened relative to the one before and never through a symbolic link, so nothing outside of the user's
tree can be reached, even if a folder is swapped for a link in the meantime. Used by all of
datasets.webdav and by the pages.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import itertools
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kernel import storage

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
DIGEST = "user.mlp.sha256"  # extended attribute: "{size} {mtime_ns} {hex}"
PROPERTIES = "user.mlp.properties"  # extended attribute: properties that clients have set, as JSON
CHUNK = 1 << 20
_computing: dict[tuple[int, int], threading.Lock] = {}
_computing_lock = threading.Lock()
_numbers = itertools.count(time.time_ns())  # of bodies: the process id of an earlier one may have come back


def base() -> Path:
    """Return the folder of all datasets and homes."""
    return storage.root() / "datasets"


@contextmanager
def folder(steps: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
    """Open the folder below `{root}/datasets`, and give its descriptor; `make` creates missing ones.

    Raises FileNotFoundError, NotADirectoryError, OSError.
    """
    here = os.open(base(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for step in steps:
            try:
                below = os.open(step, FOLDER, dir_fd=here)
            except FileNotFoundError:
                if not make:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, 0o755, dir_fd=here)
                below = os.open(step, FOLDER, dir_fd=here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def status(steps: tuple[str, ...]) -> os.stat_result | None:
    """Return the status of a regular file or a folder; None for anything else (a link, a socket, nothing)."""
    if not steps:
        return base().stat()
    try:
        with folder(steps[:-1]) as parent:
            info = os.stat(steps[-1], dir_fd=parent, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        if problem.errno in (40, 36):  # ELOOP: a link on the way; ENAMETOOLONG
            return None
        raise
    return info if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode) else None


def children(steps: tuple[str, ...]) -> list[tuple[str, os.stat_result]]:
    """Return the files and folders in a folder, sorted; without links, other kinds, and names that are no text."""
    entries_below = []
    with folder(steps) as here, os.scandir(here) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError, UnicodeEncodeError):
                entry.name.encode()
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode):
                    entries_below.append((entry.name, info))
    return sorted(entries_below)


def walk(steps: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    """Yield everything below as (parts relative to `steps`, status), parents first. A missing folder is empty."""
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        relative = waiting.pop()
        try:
            entries = children(steps + relative)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name, info in entries:
            yield (*relative, name), info
            if stat.S_ISDIR(info.st_mode):
                waiting.append((*relative, name))


def size(steps: tuple[str, ...]) -> int:
    """Return the bytes of the file, or of all files below the folder; 0 when nothing is there."""
    info = status(steps)
    if info is None:
        return 0
    if stat.S_ISREG(info.st_mode):
        return info.st_size
    return sum(below.st_size for _, below in walk(steps) if stat.S_ISREG(below.st_mode))


def reader(steps: tuple[str, ...]) -> BinaryIO:
    """Open a file for reading. Raises OSError."""
    with folder(steps[:-1]) as parent:
        return os.fdopen(os.open(steps[-1], FILE, dir_fd=parent), "rb")


def write_body(spool: Path | str, body: bytes) -> str:
    """Write a body to the spool, as `make_public` leaves it; return its path. Raises OSError, and leaves none then."""
    path = f"{spool}/body-{os.getpid()}-{next(_numbers)}"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(body)
        while rest:
            rest = rest[os.write(file, rest) :]
        make_public(file)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(file)
    return path


def make_public(body: Path | str | int) -> None:
    """Give a body from the spool the mode of a dataset's file, and a time that no other content of its path has: the
    system's own is the same for some milliseconds, within which even the number of a replaced file comes back.
    """
    os.chmod(body, 0o644)
    now = time.time_ns()
    os.utime(body, ns=(now, now))


def copy_file(source: tuple[str, ...], draft: Path) -> None:
    """Copy a file's bytes and properties to `draft`, inside the kernel. Raises OSError, and leaves no draft then."""
    with folder(source[:-1]) as parent:
        reader = os.open(source[-1], FILE, dir_fd=parent)
    try:
        writer = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            copy_bytes(reader, writer, os.fstat(reader).st_size, 0)
            with contextlib.suppress(OSError):
                os.setxattr(writer, PROPERTIES, os.getxattr(reader, PROPERTIES))
        except BaseException:
            os.unlink(draft)
            raise
        finally:
            os.close(writer)
    finally:
        os.close(reader)


def carry_properties(parent: int, name: str, to: Path | str) -> None:
    """Copy the properties of the file `name` in the folder `parent` to the file that is about to replace it."""
    with contextlib.suppress(OSError):
        file = os.open(name, FILE, dir_fd=parent)
        try:
            os.setxattr(to, PROPERTIES, os.getxattr(file, PROPERTIES))
        finally:
            os.close(file)


def copy_bytes(reader: int, writer: int, count: int, to: int) -> None:
    """Copy the reader's first `count` bytes to the writer at byte `to`, inside the kernel. Raises OSError."""
    done = 0
    os.lseek(writer, to, os.SEEK_SET)
    with contextlib.suppress(OSError):  # shares blocks where the file system can; sendfile reports a real error
        while done < count and (copied := os.copy_file_range(reader, writer, count - done, done, to + done)):
            done += copied
    os.lseek(writer, to + done, os.SEEK_SET)
    while done < count:
        sent = os.sendfile(writer, reader, done, min(count - done, 1 << 30))
        if not sent:
            raise OSError(errno.EIO, "the file ended early")
        done += sent


def known_sha256(steps: tuple[str, ...]) -> str | None:
    """Return the checksum stored with the file, as hexadecimal; None when it was not computed for these bytes."""
    with contextlib.suppress(OSError), folder(steps[:-1]) as parent:
        reader = os.open(steps[-1], FILE, dir_fd=parent)
        try:
            return _stored_digest(reader)
        finally:
            os.close(reader)
    return None


def sha256(steps: tuple[str, ...]) -> str:
    """Return the file's checksum as hexadecimal: the stored one, else computed and stored. Raises OSError."""
    with folder(steps[:-1]) as parent:
        reader = os.open(steps[-1], FILE, dir_fd=parent)
    try:
        return _stored_digest(reader) or _compute(reader)
    finally:
        os.close(reader)


def sha256_of_path(path: Path | str) -> str:
    """Return the checksum of a spooled file, and store it with the file, so that it moves into place with it."""
    reader = os.open(path, FILE)
    try:
        return _compute(reader)
    finally:
        os.close(reader)


def digest_header(hexadecimal: str) -> str:
    """Return the checksum in the form of `Repr-Digest` (RFC 9530)."""
    return f"sha-256=:{base64.b64encode(bytes.fromhex(hexadecimal)).decode()}:"


def _stored_digest(reader: int) -> str | None:
    try:
        length, modified, digest = os.getxattr(reader, DIGEST).decode().split()
    except (OSError, ValueError):
        return None
    info = os.fstat(reader)
    return digest if (length, modified) == (str(info.st_size), str(info.st_mtime_ns)) else None


def _compute(reader: int) -> str:
    """Compute and store the checksum. Concurrent calls for one file read it once: clients time out and ask again."""
    info = os.fstat(reader)
    with _computing_lock:
        turn = _computing.setdefault((info.st_dev, info.st_ino), threading.Lock())
    try:
        with turn:
            return _stored_digest(reader) or _read_whole(reader)
    finally:
        with _computing_lock:
            _computing.pop((info.st_dev, info.st_ino), None)


def _read_whole(reader: int) -> str:
    before, digest, offset = os.fstat(reader), hashlib.sha256(), 0
    while chunk := os.pread(reader, CHUNK, offset):
        digest.update(chunk)
        offset += len(chunk)
    value = f"{before.st_size} {before.st_mtime_ns} {digest.hexdigest()}".encode()
    with contextlib.suppress(OSError):  # a file system without extended attributes: computed again next time
        os.setxattr(reader, DIGEST, value)
    return digest.hexdigest()
