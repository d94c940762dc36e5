"""The request rates and latencies of an application, read from the file of its process (serving/request_counter.py).

Used by pages and reconcile. The application may write anything into its folder: links are not followed, the size is
limited, and only numbers are accepted.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass

from kernel import storage

from . import launching, slots
from .models import Application

MAX_BYTES = 32 << 10
KEPT = 60
FRESH_S = 8  # an older file says nothing about the present
WIDTH, HEIGHT = 240, 36  # of the sparkline in pixels


@dataclass(frozen=True)
class Traffic:
    """Request counts. `series`: (requests per second, median ms, 95th percentile ms) for each 2 s, oldest first."""

    requests: int
    errors: int
    series: list[tuple[float, float, float]]
    fresh: bool

    @property
    def rate(self) -> float:
        """Return the requests per second now."""
        return self.series[-1][0] if self.fresh and self.series else 0.0

    @property
    def median(self) -> float | None:
        """Return the median latency in ms of the latest interval with requests."""
        return next((median for rate, median, _slow in reversed(self.series) if rate), None)

    @property
    def slow(self) -> float | None:
        """Return the 95th percentile of the latency in ms of the latest interval with requests."""
        return next((slow for rate, _median, slow in reversed(self.series) if rate), None)

    @property
    def most(self) -> float:
        """Return the highest rate of the series."""
        return max((rate for rate, *_times in self.series), default=0.0)

    @property
    def line(self) -> str:
        """Return the rates as the points of an SVG polyline of WIDTH by HEIGHT, the latest at the right."""
        step, top = WIDTH / (KEPT - 1), self.most or 1.0
        first = KEPT - len(self.series)
        return " ".join(
            f"{(first + at) * step:.1f},{HEIGHT - 1 - (HEIGHT - 3) * rate / top:.1f}"
            for at, (rate, *_times) in enumerate(self.series)
        )


def read(app: Application) -> Traffic | None:
    """Return the application's traffic, of all its runs; None where the file of its own run is missing or invalid."""
    own = _read(app, app.slot)
    if own is None or not app.is_scaled:
        return own
    others = [_read(app, replica.slot) for replica in app.replicas.all() if replica.phase == "ready"]
    return _sum([own, *(other for other in others if other is not None and other.fresh)])


def _sum(parts: list[Traffic]) -> Traffic:
    """Return the traffic of several processes: rates add up, a median is the mean of theirs by their rates, of the 95th
    percentiles it is the largest.
    """
    series = []
    for at in range(-KEPT, 0):
        entries = [part.series[at] for part in parts if len(part.series) >= -at]
        rate = sum(entry[0] for entry in entries)
        median = sum(entry[0] * entry[1] for entry in entries) / rate if rate else 0.0
        series.append((rate, median, max((entry[2] for entry in entries), default=0.0)))
    requests, errors = sum(part.requests for part in parts), sum(part.errors for part in parts)
    return Traffic(requests, errors, series, any(part.fresh for part in parts))


def read_run(app: Application) -> Traffic | None:
    """Return the traffic of the one run that the application is given with."""
    return _read(app, app.slot)


def _read(app: Application, slot: int) -> Traffic | None:
    file = storage.open_file(launching.folder(app), slots.traffic_name(slot))
    if file is None:
        return None
    with file:
        written_at = os.fstat(file.fileno()).st_mtime
        data = file.read(MAX_BYTES)
    try:
        counts = json.loads(data)
        series = [tuple(_number(value) for value in entry) for entry in counts["series"][-KEPT:]]
        if any(len(entry) != 3 for entry in series):
            return None
        requests, errors = int(_number(counts["requests"])), int(_number(counts["errors"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return Traffic(requests, errors, series, abs(time.time() - written_at) < FRESH_S)


def changed_at(app: Application) -> float:
    """Return when the file of its own run was last written, as Unix time; 0.0 when there is none. Does not read it."""
    try:
        return os.lstat(launching.folder(app) / launching.traffic_name(app)).st_mtime
    except OSError:
        return 0.0


def _number(value) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError("not a count or duration")
    return float(min(value, 1e12))  # an int may be too large for a float
