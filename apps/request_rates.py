"""How many requests an application answers, and how fast: read from the file its process writes (serving/traffic.py).

Used by pages and reconcile. The file lies in the application's own folder, so it may hold anything: no link is
followed, little is read, and only numbers are taken.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass

from kernel import storage

from . import launching
from .models import Application

MOST_BYTES = 32 << 10
KEPT = 60
FRESH_S = 8  # what was told longer ago says nothing of now
WIDTH, HEIGHT = 240, 36  # of the small picture


@dataclass(frozen=True)
class Traffic:
    """`series`: (requests per second, median ms, 95th percentile ms) of each two seconds, oldest first."""

    requests: int
    errors: int
    series: list[tuple[float, float, float]]
    fresh: bool

    @property
    def rate(self) -> float:
        return self.series[-1][0] if self.fresh and self.series else 0.0

    @property
    def median(self) -> float | None:
        """Of the latest two seconds in which something was answered."""
        return next((median for rate, median, _slow in reversed(self.series) if rate), None)

    @property
    def slow(self) -> float | None:
        return next((slow for rate, _median, slow in reversed(self.series) if rate), None)

    @property
    def most(self) -> float:
        return max((rate for rate, *_times in self.series), default=0.0)

    @property
    def line(self) -> str:
        """The rates as the points of a line in a picture of WIDTH by HEIGHT, the latest at the right end."""
        step, top = WIDTH / (KEPT - 1), self.most or 1.0
        first = KEPT - len(self.series)
        return " ".join(
            f"{(first + at) * step:.1f},{HEIGHT - 1 - (HEIGHT - 3) * rate / top:.1f}"
            for at, (rate, *_times) in enumerate(self.series)
        )


def read(app: Application) -> Traffic | None:
    """None where nothing, or nothing usable, is told."""
    file = storage.open_file(launching.folder(app), launching.TRAFFIC)
    if file is None:
        return None
    with file:
        told_at = os.fstat(file.fileno()).st_mtime
        data = file.read(MOST_BYTES)
    try:
        told = json.loads(data)
        series = [tuple(_number(one) for one in entry) for entry in told["series"][-KEPT:]]
        if any(len(entry) != 3 for entry in series):
            return None
        requests, errors = int(_number(told["requests"])), int(_number(told["errors"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return Traffic(requests, errors, series, abs(time.time() - told_at) < FRESH_S)


def told_at(app: Application) -> float:
    """When the file was last written; 0.0 when there is none. A look that costs next to nothing."""
    try:
        return os.lstat(launching.folder(app) / launching.TRAFFIC).st_mtime
    except OSError:
        return 0.0


def _number(value) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError("not a number of anything")
    return float(min(value, 1e12))  # there are whole numbers that no float can hold
