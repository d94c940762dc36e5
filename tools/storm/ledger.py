"""The ledger: what the platform has acknowledged, one JSON object a line, on the disk before the next request is sent.

Each line has `what` (file, job, line, …), the facts that the comparison needs, and `sure`: whether there was an answer.
An operation without one may have happened or not; whatever it was about is then left alone, so that it cannot happen
late and undo something that is acknowledged.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path


class Ledger:
    """An append-only file; any thread may write."""

    def __init__(self, path: Path):
        self.path = path
        self.counts: Counter[str] = Counter()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lock = threading.Lock()
        self._number = 0

    def write(self, what: str, sure: bool = True, **facts) -> None:
        """Append a line and wait until it is on the disk."""
        with self._lock:
            self._number += 1
            line = {"line": self._number, "at": round(time.time(), 3), "what": what, "sure": sure, **facts}
            os.write(self._file, json.dumps(line).encode() + b"\n")
            os.fsync(self._file)
            self.counts[what if sure else f"{what} without an answer"] += 1

    def read(self, *kinds: str) -> Iterator[dict]:
        """Return the lines of these kinds, all without one, oldest first."""
        for text in self.path.read_text().splitlines():
            line = json.loads(text)
            if not kinds or line["what"] in kinds:
                yield line

    def close(self) -> None:
        os.close(self._file)
