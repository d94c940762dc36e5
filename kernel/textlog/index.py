"""Where the lines of a log begin: a checkpoint about every 64 KiB, stored in a file and extended as the log grows.

A checkpoint is the beginning of a line: its offset, its number (from 0) and the terminal's style there. It follows the
first line end in a piece of the log, so between two checkpoints are at most PIECE bytes of whole lines, and then one
line of any length. To find a line little is read, even next to a line of a gigabyte.

The file is only a cache. If it does not match the log (another file, shorter, other bytes before the end of the indexed
part), it is rebuilt; if it cannot be written, the index is built in memory for this call.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel import ansi

PIECE = 64 << 10
KEPT_FROM = 1 << 20  # bytes of a log from which the index is worth a file
TAIL = 256  # bytes before the place that was reached, which tell whether the log is the same
HEADER = struct.Struct("<8sQQQQQQ16s")  # MAGIC, device, inode, reached, lines, last line end, style, hash of the tail
MAGIC = b"mlplog1\n"
UNFINISHED = re.compile(rb"\x1b(?:\[[0-9;:]{0,500})?\Z")


@dataclass(frozen=True)
class Block:
    """Part of a log from a checkpoint to the next: whole lines, the last of any length."""

    line: int
    style: int
    start: int
    end: int


class Index:
    """The index of an open log, up to `size`, the length of the log when the object was created."""

    def __init__(self, file: int):
        self.file, info = file, os.fstat(file)
        self.size, self.identity = info.st_size, (info.st_dev, info.st_ino)
        self.clear()

    def clear(self) -> None:
        self.reached = self.newlines = self.last_end = self.style = 0
        self.offsets, self.lines, self.styles = array("Q", [0]), array("Q", [0]), array("Q", [0])

    @property
    def total(self) -> int:
        """Return the number of lines; one that has not ended counts."""
        return self.newlines + (self.size > self.last_end)

    def extend(self) -> None:
        """Index the rest of the log."""
        while self.reached < self.size:
            piece = os.pread(self.file, min(PIECE, self.size - self.reached), self.reached)
            unfinished = UNFINISHED.search(piece, max(0, len(piece) - 520)) if b"\x1b" in piece[-520:] else None
            if unfinished:
                piece = piece[: unfinished.start()]
            if not piece:
                break  # the log ends within a sequence, or was cut meanwhile
            self._take(piece)

    def _take(self, piece: bytes) -> None:
        first = piece.find(b"\n") + 1
        if first:
            self.offsets.append(self.reached + first)
            self.lines.append(self.newlines + 1)
            self.styles.append(ansi.after(piece[:first], self.style))
            self.last_end = self.reached + piece.rfind(b"\n") + 1
        self.newlines += piece.count(b"\n")
        self.style = ansi.after(piece, self.style)
        self.reached += len(piece)

    def blocks(self, line: int = 0) -> Iterator[Block]:
        """Yield the blocks, beginning with the one that contains that line."""
        for at in range(max(0, bisect_right(self.lines, line) - 1), len(self.lines)):
            end = self.offsets[at + 1] if at + 1 < len(self.offsets) else self.size
            if self.offsets[at] < end:
                yield Block(self.lines[at], self.styles[at], self.offsets[at], end)

    def line_at(self, offset: int) -> int:
        """Return the number of the line that contains this byte."""
        at = bisect_right(self.offsets, offset) - 1
        start = self.offsets[at]
        return self.lines[at] + os.pread(self.file, min(offset - start, PIECE), start).count(b"\n")

    # --- the file -------------------------------------------------------------------------------------------
    def hash(self) -> bytes:
        """Return the hash of the bytes before the end of the indexed part."""
        start = max(0, self.reached - TAIL)
        return hashlib.sha256(os.pread(self.file, self.reached - start, start)).digest()[:16]

    def load(self, kept: int) -> int:
        """Read the file; reset the index if it is not valid. Return how many checkpoints the file has."""
        head = os.pread(kept, HEADER.size, 0)
        if len(head) == HEADER.size:
            magic, *identity, reached, newlines, last_end, style, tail = HEADER.unpack(head)
            count, rest = divmod(os.fstat(kept).st_size - HEADER.size, 24)
            if magic == MAGIC and tuple(identity) == self.identity and reached <= self.size and count and not rest:
                self.reached = reached
                if self.hash() == tail:
                    self.newlines, self.last_end, self.style = newlines, last_end, style
                    rows = array("Q", os.pread(kept, count * 24, HEADER.size))
                    self.offsets, self.lines, self.styles = rows[0::3], rows[1::3], rows[2::3]
                    if self.offsets[-1] <= reached and self.lines[-1] <= newlines and not self.offsets[0]:
                        return count
        self.clear()
        return 0

    def save(self, kept: int, count: int) -> None:
        """Write the checkpoints after the first `count`, then the header."""
        rows = array("Q")
        for row in zip(self.offsets[count:], self.lines[count:], self.styles[count:], strict=True):
            rows.extend(row)
        head = HEADER.pack(
            MAGIC, *self.identity, self.reached, self.newlines, self.last_end, self.style, self.hash()
        )  # fmt: skip
        if not count:
            os.ftruncate(kept, 0)
        os.pwrite(kept, b"\0" * HEADER.size, 0)  # a file that is written halfway is wrong
        os.pwrite(kept, rows.tobytes(), HEADER.size + count * 24)
        os.pwrite(kept, head, 0)


def index_of(file: int, path: Path) -> Index:
    """Return the index of the open log, kept at `path`."""
    index = Index(file)
    if index.size >= KEPT_FROM:
        with contextlib.suppress(OSError), _held(path) as kept:
            count = index.load(kept)
            before = index.reached
            index.extend()
            if index.reached > before:
                index.save(kept, count)
            return index
        index.clear()
    index.extend()
    return index


@contextlib.contextmanager
def _held(path: Path) -> Iterator[int]:
    """Open the index for this process alone. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(kept, fcntl.LOCK_EX)
        yield kept
    finally:
        os.close(kept)
