"""Writes files to a bucket: each whole or not at all, and only where the bucket does not have it already.

What the server has of an object is known by its size and its tag: the MD5 of the object, or of the MD5s of its parts,
which have the same sizes each time. A server whose tags are something else, such as one that encrypts by keys of its
own, gets all files again.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
from collections.abc import Callable, Iterator

from kernel.errors import Refused
from kernel.messages import Message

from .store import Entry, Store

PART_BYTES = 8 << 20
MOST_PARTS = 9_000  # S3 takes 10,000
PARTS_AT_ONCE = 2
BLOCK = 1 << 20
MOST_KEY = 1024  # bytes, in UTF-8
CHANGED = Message("the file %(path)s changed while it was being sent")


def part_bytes(size: int) -> int:
    """Return the bytes of a part of a file: whole MiB, and so many that there are not too many parts."""
    least = -(-size // MOST_PARTS)
    return max(PART_BYTES, -(-least // BLOCK) * BLOCK)


def kind_of(path: str) -> str:
    """Return the type of an object's content by its name, "" where it is unknown."""
    kind, encoding = mimetypes.guess_type(path, strict=False)
    return kind if kind and not encoding else ""


class File:
    """An open file as it was when it was found: `size` bytes. Raises OSError."""

    def __init__(self, path: str, handle: int):
        self.path, self.handle = path, handle
        self.before = os.fstat(handle)

    @property
    def size(self) -> int:
        return self.before.st_size

    @property
    def part(self) -> int:
        """Return the bytes of a part."""
        return part_bytes(self.size)

    def blocks(self, read: Callable[[int], object]) -> Iterator[bytes]:
        """Yield the content. `read` is called with the bytes of each block, and ends it by what it raises.

        Raises Refused at the end where the file is another than at the beginning, OSError.
        """
        place = 0
        while place < self.size and (block := os.pread(self.handle, min(BLOCK, self.size - place), place)):
            place += len(block)
            read(len(block))
            yield block
        now = os.fstat(self.handle)
        if place < self.size or (now.st_size, now.st_mtime_ns) != (self.size, self.before.st_mtime_ns):
            raise Refused(CHANGED, path=self.path)

    def is_at(self, there: Entry | None, read: Callable[[int], object]) -> bool:
        """Return whether an object has the same size and checksum. Raises as `blocks`."""
        if there is None or there.size != self.size or not there.tag:
            return False
        whole, parts, part = hashlib.md5(usedforsecurity=False), [], hashlib.md5(usedforsecurity=False)
        for number, block in enumerate(self.blocks(read)):
            if number and number * BLOCK % self.part == 0:
                parts.append(part.digest())
                part = hashlib.md5(usedforsecurity=False)
            whole.update(block)
            part.update(block)
        parts.append(part.digest())
        in_parts = hashlib.md5(b"".join(parts), usedforsecurity=False).hexdigest()
        return there.tag in {whole.hexdigest(), f"{in_parts}-{len(parts)}"}


def write(store: Store, file: File, key: str, read: Callable[[int], object]) -> None:
    """Write a file to an object. Raises Refused, OSError, and what `read` raises; of what fails no object is left."""
    kind = kind_of(file.path)
    attributes = {"Content-Type": kind} if kind else None
    with store.told(key):
        if file.size <= file.part:
            content = b"".join(file.blocks(read))
            store.api.put(store.reading, key, content, attributes=attributes, use_multipart=False)
        else:
            store.api.put(
                store.reading, key, file.blocks(read), attributes=attributes, use_multipart=True,
                chunk_size=file.part, max_concurrency=PARTS_AT_ONCE,
            )  # fmt: skip


def require_key(store: Store, key: str, path: str) -> None:
    """Raise Refused where the key of a file would be longer than S3 allows."""
    whole = f"{store.row.prefix}/{key}" if store.row.prefix else key
    if len(whole.encode()) > MOST_KEY:
        raise Refused("the key of the file %(path)s would have more than %(limit)s bytes", path=path, limit=MOST_KEY)
