"""Streams new lines of a log while its run is active: one JSON object per line, as in the response for a range of
lines.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

from jobs.logs import Follower
from kernel.textlog import reading
from kernel.textlog.files import LogFile
from kernel.textlog.search import Wanted

MEDIA = "application/x-ndjson"
BYTES_A_SECOND = 200_000  # beyond that a reader sees no more than the newest lines


class LineFollower(Follower):
    """Follows a log from line `first` on: the new lines, at most the newest `limit` of them, and its length.

    An empty line says that there is nothing new. A line that has not ended is sent again when it changes. `every`: the
    least number of seconds between two messages.
    """

    nothing = b"\n"

    def __init__(
        self, log: LogFile, over: Callable[[], bool], first: int, limit: int, every: int, wanted: Wanted | None
    ):
        super().__init__(lambda _at, _most: b"", over, 0)
        self.log, self.first, self.limit, self.every, self.wanted = log, first, limit, every, wanted
        self.looked = (0, 0, 0)
        self.not_before = 0.0

    def piece(self) -> bytes:
        """Return the new lines; nothing while the log is unchanged, or before `every` has passed."""
        now = time.monotonic()
        if now < self.not_before and not self.over:
            return b""
        looked = self._look()
        if looked == self.looked:
            return b""
        if self.looked[0] and (looked[:2] != self.looked[:2] or looked[2] < self.looked[2]):
            self.first = 1  # another log than before
        self.looked = looked
        page = reading.lines(self.log, None, self.limit, self.wanted)
        page["rows"] = [row for row in page["rows"] if row["line"] >= self.first]
        self.first = max(1, page["total"])
        data = json.dumps(page, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        self.not_before = now + max(self.every, len(data) / BYTES_A_SECOND)
        return data

    def _look(self) -> tuple[int, int, int]:
        file = self.log.open()
        if file is None:
            return (0, 0, 0)
        with file:
            info = os.fstat(file.fileno())
            return (info.st_dev, info.st_ino, info.st_size)
