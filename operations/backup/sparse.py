"""Holes of sparse files: the parts that the file system stores nothing for. They are neither read nor stored.

The checksum of a file is that of its data, with a mark for each hole: what is the same on another file system, which
has its holes elsewhere. A file without holes has the usual checksum.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO

HOLE = ""  # in the place of an object's name
LEAST = 64 << 10  # a shorter hole is read like data
CUT = 4 << 20


def extents(file: BinaryIO, size: int) -> Iterator[tuple[int, int, bool]]:
    """Yield (begin, end, whether there is data) of the file's first `size` bytes. It may become shorter meanwhile."""
    descriptor, begin, position = file.fileno(), 0, 0
    while position < size:
        data = _seek(descriptor, position, os.SEEK_DATA, size)
        if data - position >= LEAST:
            if begin < position:
                yield begin, position, True
            yield position, data, False
            begin = data
        position = data if data >= size else _seek(descriptor, data, os.SEEK_HOLE, size)
    if begin < size:
        yield begin, size, True


def _seek(descriptor: int, position: int, whence: int, size: int) -> int:
    """Return where the next data or hole begins, at most `size`."""
    try:
        return min(os.lseek(descriptor, position, whence), size)
    except OSError as problem:
        if problem.errno == errno.ENXIO and os.fstat(descriptor).st_size >= size:
            return size  # nothing but a hole up to the end
        return position if whence == os.SEEK_DATA else size  # a file system that knows no holes, or the file has ended


def mark(length: int) -> bytes:
    """Return the bytes that represent a hole in the checksum."""
    return b"\0hole" + length.to_bytes(8, "big")


def checksum(file: BinaryIO, pieces: Iterable[list]) -> str:
    """Return the checksum of a file that should consist of these pieces; "" where it has data in one of their holes, or
    ends elsewhere.
    """
    whole, position = hashlib.sha256(), 0
    for name, _, length in pieces:
        if name == HOLE:
            if _has_data(file, position, position + length):
                return ""
            whole.update(mark(length))
        else:
            for data in _read(file, position, length):
                whole.update(data)
        position += length
    return whole.hexdigest() if os.fstat(file.fileno()).st_size == position else ""


def _has_data(file: BinaryIO, begin: int, end: int) -> bool:
    while begin < end:
        begin = _seek(file.fileno(), begin, os.SEEK_DATA, end)
        stop = min(begin + CUT, end)
        if any(any(data) for data in _read(file, begin, stop - begin)):
            return True
        begin = stop
    return False


def _read(file: BinaryIO, begin: int, length: int) -> Iterator[bytes]:
    file.seek(begin)
    while length and (data := file.read(min(length, CUT))):
        length -= len(data)
        yield data
