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
from typing import NamedTuple

from kernel import storage

from . import launching, slots
from .models import Application

MAX_BYTES = 32 << 10
KEPT = 60
FRESH_S = 8  # an older file says nothing about the present
WIDTH, HEIGHT = 240, 36  # of the sparkline in pixels


class Interval(NamedTuple):
    """Two seconds: requests per second, and their latency in ms. Of a language model also the times to the first token
    in ms, 0 where no answer has begun, and tokens per second.
    """

    rate: float
    median: float
    slow: float
    first: float = 0.0
    first_slow: float = 0.0
    tokens: float = 0.0


@dataclass(frozen=True)
class Traffic:
    """Request counts. `series`: the intervals of the last two minutes, oldest first."""

    requests: int
    errors: int
    series: list[Interval]
    fresh: bool
    failures: int = 0  # of the errors, those that the model or the process has caused

    @property
    def rate(self) -> float:
        """Return the requests per second now."""
        return self.series[-1][0] if self.fresh and self.series else 0.0

    @property
    def median(self) -> float | None:
        """Return the median latency in ms of the latest interval with requests."""
        return next((entry.median for entry in reversed(self.series) if entry.rate), None)

    @property
    def slow(self) -> float | None:
        """Return the 95th percentile of the latency in ms of the latest interval with requests."""
        return next((entry.slow for entry in reversed(self.series) if entry.rate), None)

    @property
    def token_rate(self) -> float:
        """Return the tokens per second now."""
        return self.series[-1].tokens if self.fresh and self.series else 0.0

    @property
    def first(self) -> float | None:
        """Return the median time to the first token in ms of the latest interval in which an answer has begun."""
        return next((entry.first for entry in reversed(self.series) if entry.first_slow), None)

    @property
    def first_slow(self) -> float | None:
        """Return the 95th percentile of the time to the first token in ms of the latest such interval."""
        return next((entry.first_slow for entry in reversed(self.series) if entry.first_slow), None)

    @property
    def most(self) -> float:
        """Return the highest rate of the series."""
        return max((entry.rate for entry in self.series), default=0.0)

    @property
    def most_tokens(self) -> float:
        """Return the most tokens per second of the series."""
        return max((entry.tokens for entry in self.series), default=0.0)

    @property
    def most_first(self) -> float:
        """Return the longest time to the first token of the series in ms."""
        return max((entry.first_slow for entry in self.series), default=0.0)

    @property
    def line(self) -> str:
        """Return the rates as the points of an SVG polyline."""
        return self._line([entry.rate for entry in self.series], self.most)

    @property
    def token_line(self) -> str:
        """Return the tokens per second as the points of an SVG polyline."""
        return self._line([entry.tokens for entry in self.series], self.most_tokens)

    @property
    def first_line(self) -> str:
        """Return the median times to the first token as points, without the intervals in which no answer has begun."""
        return self._line([entry.first if entry.first_slow else None for entry in self.series], self.most_first)

    @property
    def first_slow_line(self) -> str:
        """Return the 95th percentiles of these times as points."""
        return self._line([entry.first_slow or None for entry in self.series], self.most_first)

    @staticmethod
    def _line(values: list[float | None], most: float) -> str:
        """Return the points of an SVG polyline of WIDTH by HEIGHT, the latest at the right; None has no point."""
        step, top, first = WIDTH / (KEPT - 1), most or 1.0, KEPT - len(values)
        points = [
            f"{(first + at) * step:.1f},{HEIGHT - 1 - (HEIGHT - 3) * value / top:.1f}"
            for at, value in enumerate(values)
            if value is not None
        ]
        return " ".join(points * 2 if len(points) == 1 else points)  # a line of one point would not be drawn


def read(app: Application) -> Traffic | None:
    """Return the application's traffic, of all its runs; None where the file of its own run is missing or invalid."""
    own = _read(app, app.slot)
    if own is None or not app.is_scaled:
        return own
    others = [_read(app, replica.slot) for replica in app.replicas.all() if replica.phase == "ready"]
    return _sum([own, *(other for other in others if other is not None and other.fresh)])


def _sum(parts: list[Traffic]) -> Traffic:
    """Return the traffic of several processes: rates add up, a median is the mean of theirs by their rates (of the time
    to the first token by their tokens), of the 95th percentiles it is the largest.
    """
    series = []
    for at in range(-KEPT, 0):
        entries = [part.series[at] for part in parts if len(part.series) >= -at]
        rate, tokens = sum(entry.rate for entry in entries), sum(entry.tokens for entry in entries)
        begun = [entry for entry in entries if entry.first_slow and entry.tokens]
        made = sum(entry.tokens for entry in begun)
        series.append(Interval(
            rate,
            sum(entry.rate * entry.median for entry in entries) / rate if rate else 0.0,
            max((entry.slow for entry in entries), default=0.0),
            sum(entry.tokens * entry.first for entry in begun) / made if made else 0.0,
            max((entry.first_slow for entry in begun), default=0.0),
            tokens,
        ))  # fmt: skip
    requests, errors = sum(part.requests for part in parts), sum(part.errors for part in parts)
    failures = sum(part.failures for part in parts)
    return Traffic(requests, errors, series, any(part.fresh for part in parts), failures)


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
        if any(len(entry) not in (3, 6) for entry in counts["series"][-KEPT:]):
            return None
        series = [Interval(*(_number(value) for value in entry)) for entry in counts["series"][-KEPT:]]
        requests, errors = int(_number(counts["requests"])), int(_number(counts["errors"]))
        failures = int(_number(counts.get("failures", errors)))  # of a process of an earlier release
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return Traffic(requests, errors, series, abs(time.time() - written_at) < FRESH_S, failures)


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
