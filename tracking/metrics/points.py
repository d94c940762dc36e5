"""One series over a range, downsampled to buckets: the data of charts and of the REST call `points`.

A bucket has consecutive points of one attempt, with their minimum, maximum and mean, and the number of values that are
NaN or infinite. If the range has few points, each is a bucket of its own. Otherwise the buckets are read from the
series' blocks (tracking.metrics.blocks), coarse or fine, so that the cost depends on the number of buckets and not on
that of the points.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import compress
from typing import NamedTuple

from django.db import connection
from django.db.models import Max, Min

from jobs.models import Block, Job, Metrics

from . import blocks
from .blocks import BIG
from .buckets import Buckets, mean
from .series import MEASURED, NEWEST

MAX_POINTS = 5000  # buckets of one answer
WORDS = {"nan": "NaN", "inf": "Infinity", "ninf": "-Infinity"}
X = ("step", "epoch", "time", "relative")

_PACKED = " || ".join(
    f"string_agg(float8send({column}), ''::bytea ORDER BY id)" for column in ("step::float8", "at", "value")
)
_RAW = f"""
SELECT {_PACKED}, count(*), string_agg(int2send(attempt), ''::bytea ORDER BY id) FROM (
    SELECT id, step, value, extract(epoch FROM at)::float8 AS at, attempt FROM ({{rows}}) AS rows
    WHERE step BETWEEN %(low)s AND %(high)s
        AND at BETWEEN to_timestamp(%(early)s) AND to_timestamp(%(late)s)
    ORDER BY id LIMIT %(most)s
) AS points
"""
# The points of several series that are in no block; see blocks.FIRST_VALUES.
_TAILS = f"""
SELECT wanted.name, found.* FROM unnest(%(names)s::text[], %(after)s::bigint[]) AS wanted(name, after), LATERAL (
    SELECT {_PACKED}, count(*) AS n, string_agg(int2send(attempt), ''::bytea ORDER BY id) FROM (
        SELECT id, step, value, extract(epoch FROM at)::float8 AS at, attempt FROM metric_value
        WHERE job_id = %(job)s AND (name, id) > (wanted.name, wanted.after) AND name <= wanted.name
            AND id <= %(last)s
        ORDER BY name, id LIMIT {blocks.SIZE + 1}
    ) AS points
) AS found WHERE n > 0
"""
AT_ONCE = 16  # series whose tails are read in one query: each may have blocks.SIZE points
MARKS = f"SELECT ({NEWEST}), (SELECT max(seq) FROM metrics WHERE job_id = %(job)s)"


class Range(NamedTuple):
    """A range of points by step and by time (seconds since 1970), both inclusive."""

    low: int = -BIG
    high: int = BIG
    early: float = 0.0
    late: float = 2e11


@dataclass
class Points:
    """A series over a range. The columns have one entry for each bucket; `least` and `greatest` are empty where each
    bucket is one point. `bad`: [step, time, attempt, NaN, Infinity, -Infinity], the last three how many.
    """

    name: str
    count: int = 0
    min: float | None = None
    max: float | None = None
    last: float | None = None
    last_step: int | None = None
    first_bad: dict | None = None
    bucket: int = 1
    step: list = field(default_factory=list)
    time: list = field(default_factory=list)
    attempt: list = field(default_factory=list)
    value: list = field(default_factory=list)
    least: list = field(default_factory=list)
    greatest: list = field(default_factory=list)
    bad: list = field(default_factory=list)
    after: dict = field(default_factory=dict)


def sources_of(name: str) -> tuple[int, ...]:
    """Return where the points of a series are stored: accuracy and loss that are not finite are named values."""
    return (Block.Source.METRICS, Block.Source.VALUES) if name in MEASURED else (Block.Source.VALUES,)


def in_order(names: set[str]) -> list[str]:
    """Return the names of series as they are listed: accuracy and loss first."""
    return [*(name for name in MEASURED if name in names), *sorted(names - set(MEASURED))]


def of_job(job: Job, names: list[str], where: dict[str, Range], most: int, after: dict[str, int]) -> list[Points]:
    """Return these series of a job, each over its range and in at most `most` buckets or so; without empty ones."""
    answered = []
    for made, found in _read(job, names, where, most, after):
        _columns(made, found.merged(most))
        made.after = after
        answered.append(made)
    return answered


def samples(job: Job, names: list[str], most: int) -> dict[str, list[list]]:
    """Return of each series every n-th point, about `most`: [step, value, attempt]. Long series have blocks, and the
    points are then the means of their buckets.
    """
    sampled = {}
    for made, found in _read(job, names, {}, most, {"metrics": BIG, "values": BIG}):
        few = found.every(-(-len(found) // most))
        rows = zip(few.step, few.attempt, strict=True)
        sampled[made.name] = [[int(step), few.value(place), attempt] for place, (step, attempt) in enumerate(rows)]
    return sampled


def _read(job: Job, names: list[str], where: dict, most: int, after: dict) -> Iterator[tuple[Points, Buckets]]:
    """Yield these series with their numbers and what is read of their points; without empty ones."""
    known = _spans(job, names)
    for begin in range(0, len(names), AT_ONCE):
        few = names[begin : begin + AT_ONCE]
        sources = {
            (source, name): _Source(job, source, name, after["values" if source == Block.Source.VALUES else "metrics"])
            for name in few
            for source in sources_of(name)
        }
        tails = _tails(sources, known)
        for name in few:
            made, found = _series(name, sources, where.get(name, Range()), most, known, tails)
            if made.count:
                yield made, found


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


def _series(name: str, sources: dict, where: Range, most: int, known: dict, tails: dict) -> tuple[Points, Buckets]:
    made, found = Points(name), Buckets()
    for source in sources_of(name):
        key = source, name
        found.add(_of_source(sources[key], where, most, made, known.get(key, []), tails[key]))
    return made, found.ordered() if len(sources_of(name)) > 1 else found


# --- from the database ------------------------------------------------------------------------------------------------
class Span(NamedTuple):
    """The row of a block without its buckets."""

    first: int
    last: int
    attempt: int
    count: int
    low_step: int
    high_step: int
    low_at: datetime
    high_at: datetime
    low: float | None
    high: float | None
    bad_row: int | None


class _Source(NamedTuple):
    """Where some points of a series are, and the last of them: later ones are for the websocket."""

    job: Job
    source: int
    name: str
    until: int

    @property
    def blocks(self):
        return Block.objects.filter(job=self.job, source=self.source, name=self.name).order_by("first")

    def spans(self) -> list[Span]:
        return [Span(*row) for row in self.blocks.values_list(*Span._fields)]


def _spans(job: Job, names: list[str]) -> dict[tuple, list[Span]]:
    """Return the blocks of these series by source and name: in one query, since most jobs have none."""
    found = defaultdict(list)
    rows = Block.objects.filter(job=job, name__in=names).order_by("source", "name", "first")
    for source, name, *row in rows.values_list("source", "name", *Span._fields):
        found[source, name].append(Span(*row))
    return found


def _tails(sources: dict[tuple, _Source], known: dict[tuple, list[Span]]) -> dict[tuple, Buckets]:
    """Return the points of each series that are in no block, of many no more than one block would hold."""
    ends = {key: known[key][-1].last if key in known else 0 for key in sources}
    found = {key: Buckets() for key in sources}
    named = [key for key in sources if key[0] == Block.Source.VALUES]
    for key, of in sources.items():
        if key[0] == Block.Source.METRICS:
            found[key] = _raw(of, ends[key], of.until, Range(), blocks.SIZE + 1)
    if named:
        of = sources[named[0]]
        values = {"job": of.job.pk, "names": [name for _source, name in named], "last": of.until}
        with connection.cursor() as cursor:
            cursor.execute(_TAILS, {**values, "after": [ends[key] for key in named]})
            for name, *packed in cursor.fetchall():
                found[Block.Source.VALUES, name] = _points(*packed)
    return found


def _of_source(of: _Source, where: Range, most: int, made: Points, spans: list[Span], tail: Buckets) -> Buckets:
    if len(tail) > blocks.SIZE:
        blocks.fill(of.job.pk, of.source, of.name)
        spans = of.spans()
        tail = _raw(of, spans[-1].last, of.until, Range())
    _summary(made, of, spans, tail)
    hit = [one for one in spans if _share(one, where)]
    tail = _within(tail, where)
    expected = len(tail) + sum(one.count * _share(one, where) for one in hit)
    found = Buckets()
    if expected <= most * blocks.FINE:
        if hit:
            found.add(_raw(of, hit[0].first - 1, hit[-1].last, where))
    else:
        column = "fine" if expected <= most * blocks.COARSE else "coarse"
        wanted = of.blocks.filter(first__in=[one.first for one in hit])
        for attempt, data in wanted.values_list("attempt", column):
            found.add(_within(blocks.unpack(bytes(data), attempt), where))
    found.add(tail)
    return found


def _raw(of: _Source, after: int, last: int, where: Range, most: int | None = None) -> Buckets:
    """Return the points of these rows in the range, each a bucket."""
    values = {"job": of.job.pk, "name": of.name, "after": after, "last": last, "most": most, **where._asdict()}
    with connection.cursor() as cursor:
        cursor.execute(_RAW.format(rows=blocks.rows_of(of.source, of.name)), values)
        return _points(*cursor.fetchone())


def _points(data: bytes | None, count: int, attempts: bytes | None) -> Buckets:
    """Return packed points, each a bucket."""
    if not count:
        return Buckets()
    numbers = blocks.doubles(bytes(data))
    columns = (numbers[place * count : (place + 1) * count] for place in range(3))
    return Buckets.of_points(*columns, blocks.doubles(bytes(attempts), "h"))


def _within(found: Buckets, where: Range) -> Buckets:
    """Return the buckets that have a part in the range."""
    if where == Range():
        return found
    return found.chosen(
        where.low <= until and step <= where.high and where.early <= at <= where.late
        for step, until, at in zip(found.step, found.until, found.at, strict=True)
    )


def _share(span: Span, where: Range) -> float:
    """Return the approximate fraction of a block's points that is in the range."""
    steps = (min(span.high_step, where.high) - max(span.low_step, where.low) + 1) / (span.high_step - span.low_step + 1)
    begin, end = span.low_at.timestamp(), span.high_at.timestamp() + 1e-3
    times = (min(end, where.late) - max(begin, where.early)) / (end - begin)
    return max(0.0, min(1.0, steps)) * max(0.0, min(1.0, times))


def _summary(made: Points, of: _Source, spans: list[Span], tail: Buckets) -> None:
    """Add the whole series' numbers, whatever the range."""
    made.count += sum(one.count for one in spans) + len(tail)
    lows = [*compress(tail.min, tail.n), *(one.low for one in spans), made.min]
    highs = [*compress(tail.max, tail.n), *(one.high for one in spans), made.max]
    made.min = min((one for one in lows if one is not None), default=None)
    made.max = max((one for one in highs if one is not None), default=None)
    newest = (tail, len(tail) - 1) if tail else (_row(of, spans[-1].last), 0) if spans else None
    if newest is not None:
        points, place = newest
        if made.last_step is None or points.step[place] > made.last_step:
            made.last_step, made.last = int(points.step[place]), _value(points, place)
    bad = next((one.bad_row for one in spans if one.bad_row is not None), None)
    first = (_row(of, bad), 0) if bad is not None else (tail, tail.n.index(0.0)) if 0.0 in tail.n else None
    if first is not None:
        points, place = first
        step = int(points.step[place])
        if made.first_bad is None or step < made.first_bad["step"]:
            made.first_bad = {"step": step, "attempt": points.attempt[place], "value": _value(points, place)}


def _row(of: _Source, row: int) -> Buckets:
    return _raw(of, row - 1, row, Range())


def _value(points: Buckets, place: int) -> float | str:
    """Return the value of one point as JSON can say it: one that is not finite by its name."""
    value = points.value(place)
    return value if math.isfinite(value) else next(word for key, word in WORDS.items() if getattr(points, key)[place])


# --- the answer -------------------------------------------------------------------------------------------------------
def _columns(made: Points, merged: Buckets) -> None:
    if not merged:
        return
    sizes = merged.sizes()
    made.bucket = max(1, round(sum(sizes) / len(merged)))
    made.step = [int(step) for step in merged.step]
    made.time = [round(at, 3) for at in merged.at]
    made.attempt = list(merged.attempt)
    made.value = [mean(total, n) if n else None for total, n in zip(merged.sum, merged.n, strict=True)]
    if not merged.are_finite:
        rows = zip(merged.bad, made.time, made.attempt, merged.nan, merged.inf, merged.ninf, strict=True)
        made.bad = [[int(step), at, attempt, *map(int, counts)] for step, at, attempt, *counts in rows if any(counts)]
    if max(merged.n) > 1:
        made.least = [low if n else None for low, n in zip(merged.min, merged.n, strict=True)]
        made.greatest = [high if n else None for high, n in zip(merged.max, merged.n, strict=True)]
