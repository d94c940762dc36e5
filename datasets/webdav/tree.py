"""Files of the data service on disk, reached from `{root}/datasets` step by step by descriptors.

Every step is opened relative to the one before and never through a symbolic link, so nothing outside of the user's
tree can be touched, not even by one who swaps a folder for a link in the middle of it. Used by all of
datasets.webdav and by the pages.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel import storage

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
DIGEST = "user.mlp.sha256"  # extended attribute: "{size} {mtime_ns} {hex}"
PROPERTIES = "user.mlp.properties"  # extended attribute: what clients have laid down with it, as JSON
CHUNK = 1 << 20
_computing: dict[tuple[int, int], threading.Lock] = {}
_computing_lock = threading.Lock()


def base() -> Path:
    return storage.root() / "datasets"


@contextmanager
def folder(steps: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder below `{root}/datasets`. Raises FileNotFoundError, NotADirectoryError, OSError."""
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


def look(steps: tuple[str, ...]) -> os.stat_result | None:
    """What lies there: a regular file or a folder, else None (also for a link, a socket, …)."""
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
    """Files and folders directly below, by name; links and other kinds, and names that are not text, are left out."""
    found = []
    with folder(steps) as here, os.scandir(here) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError, UnicodeEncodeError):
                entry.name.encode()
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode):
                    found.append((entry.name, info))
    return sorted(found)


def walk(steps: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], os.stat_result]]:
    """Everything below as (parts relative to `steps`, stat), parents before children. A missing folder is empty."""
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        relative = waiting.pop()
        try:
            found = children(steps + relative)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name, info in found:
            yield (*relative, name), info
            if stat.S_ISDIR(info.st_mode):
                waiting.append((*relative, name))


def size(steps: tuple[str, ...]) -> int:
    """Bytes in the file, or in all files below the folder."""
    info = look(steps)
    if info is None:
        return 0
    if stat.S_ISREG(info.st_mode):
        return info.st_size
    return sum(below.st_size for _, below in walk(steps) if stat.S_ISREG(below.st_mode))


def remove(steps: tuple[str, ...]) -> None:
    """Removes the file or the folder with all in it. Raises FileNotFoundError."""
    with folder(steps[:-1]) as parent:
        if stat.S_ISDIR(os.stat(steps[-1], dir_fd=parent, follow_symlinks=False).st_mode):
            shutil.rmtree(steps[-1], dir_fd=parent)
        else:
            os.unlink(steps[-1], dir_fd=parent)


def copy_file(source: tuple[str, ...], draft: Path) -> None:
    """Copies a file's bytes to `draft`, within the kernel. Raises OSError; nothing is left behind then."""
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
    """What lies in the folder `parent` keeps its properties when other bytes take its place."""
    with contextlib.suppress(OSError):
        file = os.open(name, FILE, dir_fd=parent)
        try:
            os.setxattr(to, PROPERTIES, os.getxattr(file, PROPERTIES))
        finally:
            os.close(file)


def copy_bytes(reader: int, writer: int, count: int, to: int) -> None:
    """The reader's first `count` bytes to the writer from byte `to` on, within the kernel. Raises OSError."""
    done = 0
    os.lseek(writer, to, os.SEEK_SET)
    with contextlib.suppress(OSError):  # shares the blocks where the file system can; sendfile says what is wrong
        while done < count and (copied := os.copy_file_range(reader, writer, count - done, done, to + done)):
            done += copied
    os.lseek(writer, to + done, os.SEEK_SET)
    while done < count:
        sent = os.sendfile(writer, reader, done, min(count - done, 1 << 30))
        if not sent:
            raise OSError(errno.EIO, "the file ended early")
        done += sent


def known_sha256(steps: tuple[str, ...]) -> str | None:
    """The checksum noted with the file, if it still belongs to these bytes."""
    with contextlib.suppress(OSError), folder(steps[:-1]) as parent:
        reader = os.open(steps[-1], FILE, dir_fd=parent)
        try:
            return _noted(reader)
        finally:
            os.close(reader)
    return None


def sha256(steps: tuple[str, ...]) -> str:
    """The file's checksum: as noted, else read once and noted. Raises OSError."""
    with folder(steps[:-1]) as parent:
        reader = os.open(steps[-1], FILE, dir_fd=parent)
    try:
        return _noted(reader) or _compute(reader)
    finally:
        os.close(reader)


def sha256_of_path(path: Path | str) -> str:
    """The checksum of a spooled file, noted on it, so that it moves into place along with it."""
    reader = os.open(path, FILE)
    try:
        return _compute(reader)
    finally:
        os.close(reader)


def digest_header(hexadecimal: str) -> str:
    """`Repr-Digest` (RFC 9530)."""
    return f"sha-256=:{base64.b64encode(bytes.fromhex(hexadecimal)).decode()}:"


def _noted(reader: int) -> str | None:
    try:
        length, modified, digest = os.getxattr(reader, DIGEST).decode().split()
    except (OSError, ValueError):
        return None
    info = os.fstat(reader)
    return digest if (length, modified) == (str(info.st_size), str(info.st_mtime_ns)) else None


def _compute(reader: int) -> str:
    """Reads the file once, however many ask for its checksum at the same time (clients lose patience)."""
    info = os.fstat(reader)
    with _computing_lock:
        turn = _computing.setdefault((info.st_dev, info.st_ino), threading.Lock())
    try:
        with turn:
            return _noted(reader) or _read_whole(reader)
    finally:
        with _computing_lock:
            _computing.pop((info.st_dev, info.st_ino), None)


def _read_whole(reader: int) -> str:
    before, digest, offset = os.fstat(reader), hashlib.sha256(), 0
    while chunk := os.pread(reader, CHUNK, offset):
        digest.update(chunk)
        offset += len(chunk)
    note = f"{before.st_size} {before.st_mtime_ns} {digest.hexdigest()}".encode()
    with contextlib.suppress(OSError):  # a file system without extended attributes: computed anew next time
        os.setxattr(reader, DIGEST, note)
    return digest.hexdigest()
