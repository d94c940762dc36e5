"""The timestamps of a log: marks of 16 bytes, (offset, ms since 1970), appended by the recorder at a limited rate.

A mark with the highest bit set is at the beginning of each run. The run may write to the file, so the marks may be in
any order.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_right
from datetime import UTC, datetime
from typing import BinaryIO

MARK = 16
PACKED = struct.Struct("<QQ")
BEGIN = 1 << 63
LATEST = 32_503_680_000_000  # ms: the year 3000
MAX_MARKS = 1 << 18
MAX_BEGINS = 1000


def path_of(log: str) -> str:
    """Return the path of the timestamps of a log."""
    return log.removesuffix(".log") + ".times"


class Times:
    """The marks of an open file. Without a file there are no timestamps."""

    def __init__(self, file: BinaryIO | None):
        self.file = file
        self.count = min(MAX_MARKS, os.fstat(file.fileno()).st_size // MARK) if file else 0

    def __enter__(self) -> Times:
        return self

    def __exit__(self, *_problem) -> None:
        if self.file:
            self.file.close()

    def _read(self, start: int, count: int) -> array:
        data = os.pread(self.file.fileno(), count * MARK, start * MARK)
        return array("Q", data[: len(data) // MARK * MARK])

    def _offset(self, mark: int) -> int:
        return int.from_bytes(os.pread(self.file.fileno(), 8, mark * MARK), "little")

    def put(self, rows: list[dict]) -> None:
        """Add the timestamps to consecutive rows."""
        if not rows or not self.count:
            return
        from_mark = max(0, bisect_right(range(self.count), rows[0]["offset"], key=self._offset) - 1)
        to_mark = bisect_right(range(self.count), rows[-1]["offset"], key=self._offset)
        marks = self._read(from_mark, max(0, to_mark - from_mark))
        offsets, times = marks[0::2], marks[1::2]
        for row in rows:
            at = bisect_right(offsets, row["offset"]) - 1
            if at >= 0:
                row["at"] = moment(times[at])

    def begins(self) -> list[tuple[int, str | None]]:
        """Return the offset and the time of the beginning of each run."""
        if not self.count:
            return []
        marks = self._read(0, self.count)
        begun = [at for at, value in enumerate(marks[1::2]) if value & BEGIN][:MAX_BEGINS]
        return [(marks[2 * at], moment(marks[2 * at + 1])) for at in begun]


def moment(value: int) -> str | None:
    """Return the time of a mark as REST writes it."""
    ms = value & ~BEGIN
    if not 0 < ms < LATEST:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
