"""A dataset as one tar, written straight to nginx's connection: headers are made here, bytes go by sendfile. A model as
one zip, whose bytes are read for their checksums.

Called by server.py in a thread of its own with the socket. The length is sent first, so the receiver notices a
truncated archive.
"""

from __future__ import annotations

import os
import socket
import stat
import tarfile
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

from kernel import storage
from kernel.zips import zipped

from . import tree

BLOCK = 512
TIMEOUT_S = 120.0
LIMIT = 64  # archives at the same time


def steps_of(path: str) -> tuple[str, ...]:
    """Return the steps of a path like `alice/photos/a`, percent-encoded as nginx sends it. Raises ValueError."""
    steps = tuple(unquote_to_bytes(part.encode("latin-1")).decode() for part in path.split("/"))
    if len(steps) < 2 or any(step in {"", ".", ".."} or "/" in step or "\0" in step for step in steps):
        raise ValueError(path)
    return steps


def send(link: socket.socket, steps: tuple[str, ...]) -> None:
    """Write the whole HTTP answer. Raises OSError when the receiver has gone or a file has changed meanwhile."""
    link.settimeout(TIMEOUT_S)
    length = sum(len(header) + _padded(info) for header, _, info in _members(steps)) + 2 * BLOCK
    link.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n".encode())
    for header, where, info in _members(steps):
        link.sendall(header)
        if stat.S_ISREG(info.st_mode) and info.st_size:
            _send_file(link, where, info.st_size)
            link.sendall(bytes(_padded(info) - info.st_size))
    link.sendall(bytes(2 * BLOCK))


def send_zip(link: socket.socket, steps: tuple[str, ...]) -> None:
    """Write the files of a model as a zip, in chunks: its length is known at the end only. Raises OSError."""
    link.settimeout(TIMEOUT_S)
    link.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
    base = storage.model_dir(*steps)
    for piece in zipped(base, [path for path, _info in storage.files(base)]):
        if piece:
            link.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
    link.sendall(b"0\r\n\r\n")


def _members(steps: tuple[str, ...]) -> Iterator[tuple[bytes, tuple[str, ...], os.stat_result]]:
    """Yield (tar header, steps, status) of everything below, in a folder with the last step's name; that of an earlier
    version is `dataset@number`.
    """
    top = f"{steps[-2]}@{steps[-1]}" if steps[1:2] == (".versions",) else steps[-1]
    for parts, info in tree.walk(steps):
        member = tarfile.TarInfo("/".join((top, *parts)))
        member.mtime = int(info.st_mtime)
        if stat.S_ISDIR(info.st_mode):
            member.type, member.mode = tarfile.DIRTYPE, 0o755
        else:
            member.size, member.mode = info.st_size, 0o644
        yield member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict"), steps + parts, info


def _padded(info: os.stat_result) -> int:
    return -(-info.st_size // BLOCK) * BLOCK if stat.S_ISREG(info.st_mode) else 0


def _send_file(link: socket.socket, where: tuple[str, ...], size: int) -> None:
    with tree.folder(where[:-1]) as parent:
        descriptor = os.open(where[-1], tree.FILE, dir_fd=parent)
    with os.fdopen(descriptor, "rb") as file:
        if link.sendfile(file, 0, size) != size:
            raise OSError("a file has become shorter")
