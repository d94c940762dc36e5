"""Counts an application's requests and how long each took, and tells it in a small file every two seconds.

No Django: part of the process that serves. The platform reads the file (apps/request_rates.py) and takes only numbers
from it: {"requests", "errors", "series": [[requests per second, median ms, 95th percentile ms], …]}, oldest first, one
for each two seconds of the last two minutes. While nothing moves nothing is written.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path

import orjson

EVERY_S = 2.0
KEPT = 60
MOST_TIMES = 10_000  # of one interval; of more the first are judged


class Traffic:
    def __init__(self, path: Path):
        self.path, self.lock = path, threading.Lock()
        self.requests = self.errors = 0
        self.times: list[float] = []
        self.series: deque = deque([[0, 0, 0]] * KEPT, KEPT)
        self.quiet = KEPT  # intervals since the last request

    def note(self, seconds: float, *, good: bool) -> None:
        """One request has been answered."""
        with self.lock:
            self.requests += 1
            self.errors += not good
            if len(self.times) < MOST_TIMES:
                self.times.append(seconds)

    def tick(self, before: int) -> int:
        """Ends an interval that began with `before` requests, and writes the file; the number of requests now."""
        with self.lock:
            times, self.times = sorted(self.times), []
            requests, errors = self.requests, self.errors
        self.quiet = 0 if times else self.quiet + 1
        at = [1000 * times[int(share * (len(times) - 1))] for share in (0.5, 0.95)] if times else [0, 0]
        self.series.append([round((requests - before) / EVERY_S, 2), *(round(one, 3) for one in at)])
        if self.quiet <= KEPT:
            self.write({"requests": requests, "errors": errors, "series": list(self.series)})
        return requests

    def write(self, told: dict) -> None:
        draft = self.path.with_name(f".{self.path.name}.part")
        try:
            draft.write_bytes(orjson.dumps(told))
            os.replace(draft, self.path)
        except OSError:  # a full disk stops no application
            pass

    def begin(self) -> None:
        """Ticks in a thread of its own, which ends with the process. What an earlier run told is forgotten."""

        def run() -> None:
            count, pause = 0, threading.Event()
            while not pause.wait(EVERY_S):
                count = self.tick(count)

        self.write({"requests": 0, "errors": 0, "series": []})
        threading.Thread(target=run, daemon=True).start()
