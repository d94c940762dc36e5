"""The points of a series as they are stored: in rows of values or metrics, and in blocks (tracking.metrics.blocks).

A few points are read themselves, many by the buckets of their blocks, fine or coarse, so that the cost depends on the
number of buckets. `points` makes the answers of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from itertools import compress
from typing import NamedTuple

from django.db import connection

from jobs.models import Block, Job

from . import blocks
from .blocks import BIG
from .buckets import Buckets
from .series import MEASURED

WORDS = {"nan": "NaN", "inf": "Infinity", "ninf": "-Infinity"}
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


class Source(NamedTuple):
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


def sources_of(name: str) -> tuple[int, ...]:
    """Return where the points of a series are stored: accuracy and loss that are not finite are named values."""
    return (Block.Source.METRICS, Block.Source.VALUES) if name in MEASURED else (Block.Source.VALUES,)


def spans_of(job: Job, names: list[str]) -> dict[tuple, list[Span]]:
    """Return the blocks of these series by source and name: in one query, since most jobs have none."""
    spans = defaultdict(list)
    rows = Block.objects.filter(job=job, name__in=names).order_by("source", "name", "first")
    for source, name, *row in rows.values_list("source", "name", *Span._fields):
        spans[source, name].append(Span(*row))
    return spans


def tails_of(sources: dict[tuple, Source], known: dict[tuple, list[Span]]) -> dict[tuple, Buckets]:
    """Return the points of each series that are in no block, of many no more than one block would hold."""
    ends = {key: known[key][-1].last if key in known else 0 for key in sources}
    buckets = {key: Buckets() for key in sources}
    named = [key for key in sources if key[0] == Block.Source.VALUES]
    for key, source in sources.items():
        if key[0] == Block.Source.METRICS:
            buckets[key] = _raw(source, ends[key], source.until, Range(), blocks.SIZE + 1)
    if named:
        source = sources[named[0]]
        values = {"job": source.job.pk, "names": [name for _, name in named], "last": source.until}
        with connection.cursor() as cursor:
            cursor.execute(_TAILS, {**values, "after": [ends[key] for key in named]})
            for name, *packed in cursor.fetchall():
                buckets[Block.Source.VALUES, name] = _points(*packed)
    return buckets


def read_source(source: Source, where: Range, most: int, points: Points, spans: list[Span], tail: Buckets) -> Buckets:
    """Return the points of one source in the range, in at least `most` buckets where it has so many, and add the whole
    series' numbers to `points`.
    """
    if len(tail) > blocks.SIZE:
        blocks.fill(source.job.pk, source.source, source.name)
        spans = source.spans()
        tail = _raw(source, spans[-1].last, source.until, Range())
    _summary(points, source, spans, tail)
    inside = [span for span in spans if _share(span, where)]
    tail = _within(tail, where)
    expected = len(tail) + sum(span.count * _share(span, where) for span in inside)
    buckets = Buckets()
    if expected <= most * blocks.FINE:
        if inside:
            buckets.add(_raw(source, inside[0].first - 1, inside[-1].last, where))
    else:
        column = "fine" if expected <= most * blocks.COARSE else "coarse"
        wanted = source.blocks.filter(first__in=[span.first for span in inside])
        for attempt, data in wanted.values_list("attempt", column):
            buckets.add(_within(blocks.unpack(bytes(data), attempt), where))
    buckets.add(tail)
    return buckets


def _raw(source: Source, after: int, last: int, where: Range, most: int | None = None) -> Buckets:
    """Return the points of these rows in the range, each a bucket."""
    values = {"job": source.job.pk, "name": source.name, "after": after, "last": last, "most": most, **where._asdict()}
    with connection.cursor() as cursor:
        cursor.execute(_RAW.format(rows=blocks.rows_of(source.source, source.name)), values)
        return _points(*cursor.fetchone())


def _points(data: bytes | None, count: int, attempts: bytes | None) -> Buckets:
    """Return packed points, each a bucket."""
    if not count:
        return Buckets()
    numbers = blocks.doubles(bytes(data))
    columns = (numbers[place * count : (place + 1) * count] for place in range(3))
    return Buckets.of_points(*columns, blocks.doubles(bytes(attempts), "h"))


def _within(buckets: Buckets, where: Range) -> Buckets:
    """Return the buckets that have a part in the range."""
    if where == Range():
        return buckets
    return buckets.chosen(
        where.low <= until and step <= where.high and where.early <= at <= where.late
        for step, until, at in zip(buckets.step, buckets.until, buckets.at, strict=True)
    )


def _share(span: Span, where: Range) -> float:
    """Return the approximate fraction of a block's points that is in the range."""
    steps = (min(span.high_step, where.high) - max(span.low_step, where.low) + 1) / (span.high_step - span.low_step + 1)
    begin, end = span.low_at.timestamp(), span.high_at.timestamp() + 1e-3
    times = (min(end, where.late) - max(begin, where.early)) / (end - begin)
    return max(0.0, min(1.0, steps)) * max(0.0, min(1.0, times))


def _summary(points: Points, source: Source, spans: list[Span], tail: Buckets) -> None:
    """Add the whole series' numbers, whatever the range."""
    points.count += sum(span.count for span in spans) + len(tail)
    lows = [*compress(tail.min, tail.n), *(span.low for span in spans), points.min]
    highs = [*compress(tail.max, tail.n), *(span.high for span in spans), points.max]
    points.min = min((low for low in lows if low is not None), default=None)
    points.max = max((high for high in highs if high is not None), default=None)
    newest = (tail, len(tail) - 1) if tail else (_row(source, spans[-1].last), 0) if spans else None
    if newest is not None:
        buckets, place = newest
        if points.last_step is None or buckets.step[place] > points.last_step:
            points.last_step, points.last = int(buckets.step[place]), _value(buckets, place)
    bad = next((span.bad_row for span in spans if span.bad_row is not None), None)
    first = (_row(source, bad), 0) if bad is not None else (tail, tail.n.index(0.0)) if 0.0 in tail.n else None
    if first is not None:
        buckets, place = first
        step = int(buckets.step[place])
        if points.first_bad is None or step < points.first_bad["step"]:
            points.first_bad = {"step": step, "attempt": buckets.attempt[place], "value": _value(buckets, place)}


def _row(source: Source, row: int) -> Buckets:
    return _raw(source, row - 1, row, Range())


def _value(buckets: Buckets, place: int) -> float | str:
    """Return the value of one point as JSON can say it: one that is not finite by its name."""
    value = buckets.value(place)
    return value if math.isfinite(value) else next(word for key, word in WORDS.items() if getattr(buckets, key)[place])
