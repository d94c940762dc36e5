"""The request counts and latencies of an application, written to a small file every two seconds.

No Django: part of the serving process. The platform reads the file (apps/request_rates.py) and accepts only numbers:
{"requests", "errors", "failures", "series": [[requests per second, median ms, 95th percentile ms], …]}, oldest first,
one entry for each two seconds of the last two minutes. `errors` are all that were not answered with 200, `failures`
those of them that the model or the process has caused. Where a language model has made tokens an entry goes on with the
median and the 95th percentile of the times to the first token in ms, and tokens per second. Without requests the file
is not written.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import orjson

EVERY_S = 2.0
KEPT = 60
MAX_TIMES = 10_000  # latencies kept of one interval


class Traffic:
    """Counts the requests of this process; thread-safe."""

    def __init__(self, path: Path):
        self.path, self.lock = path, threading.Lock()
        self.requests = self.errors = self.failures = 0
        self.times: list[float] = []
        self.first_times: list[float] = []
        self.tokens = 0
        self.series: deque = deque([[0, 0, 0]] * KEPT, KEPT)
        self.quiet = KEPT  # intervals since the last request
        self.also: list[Callable[[], None]] = []  # what else is written at the end of an interval

    def note(self, seconds: float, *, good: bool, failed: bool = False) -> None:
        """Count one request, which took so many seconds; `failed`: by the model or the process."""
        with self.lock:
            self.requests += 1
            self.errors += not good
            self.failures += failed
            if len(self.times) < MAX_TIMES:
                self.times.append(seconds)

    def note_tokens(self, count: int, first_s: float | None = None) -> None:
        """Count tokens of an answer; of its first one, after how many seconds it came."""
        with self.lock:
            self.tokens += count
            if first_s is not None and len(self.first_times) < MAX_TIMES:
                self.first_times.append(first_s)

    def tick(self, before: int) -> int:
        """End the interval that began with `before` requests, write the file and return the number of requests now."""
        with self.lock:
            times, self.times = sorted(self.times), []
            first_times, self.first_times = sorted(self.first_times), []
            tokens, self.tokens = self.tokens, 0
            requests, errors, failures = self.requests, self.errors, self.failures
        self.quiet = 0 if times or first_times or tokens else self.quiet + 1
        entry = [round((requests - before) / EVERY_S, 2), *_percentiles(times)]
        if first_times or tokens:
            entry += [*_percentiles(first_times), round(tokens / EVERY_S, 2)]
        self.series.append(entry)
        if self.quiet <= KEPT:
            counts = {"requests": requests, "errors": errors, "failures": failures}
            self.write(counts | {"series": list(self.series)})
        return requests

    def write(self, counts: dict) -> None:
        """Replace the file."""
        draft = self.path.with_name(f".{self.path.name}.part")
        try:
            draft.write_bytes(orjson.dumps(counts))
            os.replace(draft, self.path)
        except OSError:  # a full disk must not stop the application
            pass

    def begin(self) -> None:
        """Start the thread that ends the intervals; it ends with the process. Earlier counts are discarded."""

        def run() -> None:
            count, pause = 0, threading.Event()
            while not pause.wait(EVERY_S):
                count = self.tick(count)
                for write in self.also:
                    write()

        self.write({"requests": 0, "errors": 0, "failures": 0, "series": []})
        threading.Thread(target=run, daemon=True).start()


def _percentiles(times: list[float]) -> list[float]:
    """Return the median and the 95th percentile, in ms, of sorted times in seconds; 0 of none."""
    return [round(1000 * times[int(share * (len(times) - 1))], 3) if times else 0 for share in (0.5, 0.95)]
