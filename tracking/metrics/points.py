"""One series over a range, downsampled to buckets: the data of charts and of the REST call `points`.

A bucket has consecutive points of one attempt, with their minimum, maximum and mean, and the number of values that are
NaN or infinite. `stored_points` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from django.db import connection
from django.db.models import Max, Min

from jobs.models import Block, Job, Metrics

from .blocks import BIG
from .buckets import Buckets, mean
from .series import MEASURED, NEWEST
from .stored_points import Points, Range, Source, read_source, sources_of, spans_of, tails_of

MAX_POINTS = 5000  # buckets of one answer
X = ("step", "epoch", "time", "relative")

AT_ONCE = 16  # series whose tails are read in one query: each may have blocks.SIZE points
MARKS = f"SELECT ({NEWEST}), (SELECT max(seq) FROM metrics WHERE job_id = %(job)s)"


def in_order(names: set[str]) -> list[str]:
    """Return the names of series as they are listed: accuracy and loss first."""
    return [*(name for name in MEASURED if name in names), *sorted(names - set(MEASURED))]


def of_job(job: Job, names: list[str], where: dict[str, Range], most: int, after: dict[str, int]) -> list[Points]:
    """Return these series of a job, each over its range and in at most `most` buckets or so; without empty ones."""
    answered = []
    for points, buckets in _read(job, names, where, most, after):
        _columns(points, buckets.merged(most))
        points.after = after
        answered.append(points)
    return answered


def samples(job: Job, names: list[str], most: int) -> dict[str, list[list]]:
    """Return of each series every n-th point, about `most`: [step, value, attempt]. Long series have blocks, and the
    points are then the means of their buckets.
    """
    sampled = {}
    for points, buckets in _read(job, names, {}, most, {"metrics": BIG, "values": BIG}):
        few = buckets.every(-(-len(buckets) // most))
        rows = zip(few.step, few.attempt, strict=True)
        sampled[points.name] = [[int(step), few.value(place), attempt] for place, (step, attempt) in enumerate(rows)]
    return sampled


def _read(job: Job, names: list[str], where: dict, most: int, after: dict) -> Iterator[tuple[Points, Buckets]]:
    """Yield these series with their numbers and what is read of their points; without empty ones."""
    known = spans_of(job, names)
    for begin in range(0, len(names), AT_ONCE):
        few = names[begin : begin + AT_ONCE]
        sources = {
            (source, name): Source(job, source, name, after["values" if source == Block.Source.VALUES else "metrics"])
            for name in few
            for source in sources_of(name)
        }
        tails = tails_of(sources, known)
        for name in few:
            points, buckets = _read_one(name, sources, where.get(name, Range()), most, known, tails)
            if points.count:
                yield points, buckets


def marks(job: Job, named: set[str]) -> dict[str, int]:
    """Return the last rows of a job: what a websocket that follows it begins after."""
    with connection.cursor() as cursor:
        cursor.execute(MARKS, {"job": job.pk, "names": list(named)})
        values, metrics = cursor.fetchone()
    return {"metrics": metrics or 0, "values": values or 0}


def range_of(job: Job, name: str, x: str, low: float | None, high: float | None) -> Range:
    """Return the range that a chart of this series shows from `low` to `high` of its x axis."""
    if low is None and high is None:
        return Range()
    if x in ("time", "relative"):
        zero = job.started.timestamp() if x == "relative" and job.started else 0.0
        return Range(
            early=0.0 if low is None else max(0.0, zero + low), late=2e11 if high is None else min(2e11, zero + high)
        )
    if x == "epoch" and name not in MEASURED:
        return _times_of_epochs(job, low, high)
    first = -BIG if low is None else math.ceil(max(-BIG, min(low, BIG)))
    return Range(low=first, high=BIG if high is None else math.floor(max(-BIG, min(high, BIG))))


def _times_of_epochs(job: Job, low: float | None, high: float | None) -> Range:
    rows = Metrics.objects.filter(job=job)
    begin = rows.filter(epoch__gte=low or 0).aggregate(at=Min("at"))["at"]
    end = rows.filter(epoch__lte=BIG if high is None else high).aggregate(at=Max("at"))["at"]
    return Range(
        early=begin.timestamp() if low is not None and begin else 0.0,
        late=end.timestamp() if high is not None and end else 2e11,
    )


def _read_one(name: str, sources: dict, where: Range, most: int, known: dict, tails: dict) -> tuple[Points, Buckets]:
    points, buckets = Points(name), Buckets()
    for source in sources_of(name):
        key = source, name
        buckets.add(read_source(sources[key], where, most, points, known.get(key, []), tails[key]))
    return points, buckets.ordered() if len(sources_of(name)) > 1 else buckets


def _columns(points: Points, merged: Buckets) -> None:
    if not merged:
        return
    sizes = merged.sizes()
    points.bucket = max(1, round(sum(sizes) / len(merged)))
    points.step = [int(step) for step in merged.step]
    points.time = [round(at, 3) for at in merged.at]
    points.attempt = list(merged.attempt)
    points.value = [mean(total, n) if n else None for total, n in zip(merged.sum, merged.n, strict=True)]
    if not merged.are_finite:
        rows = zip(merged.bad, points.time, points.attempt, merged.nan, merged.inf, merged.ninf, strict=True)
        points.bad = [[int(step), at, attempt, *map(int, counts)] for step, at, attempt, *counts in rows if any(counts)]
    if max(merged.n) > 1:
        points.least = [low if n else None for low, n in zip(merged.min, merged.n, strict=True)]
        points.greatest = [high if n else None for high, n in zip(merged.max, merged.n, strict=True)]
