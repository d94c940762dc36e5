"""Buckets of points as columns, so that those of a million points are merged by the slice and not one by one.

A bucket is some consecutive points of one attempt: the steps of the first and last one, the time of the first, how many
are finite, NaN or infinite, the least, the greatest and the sum of the finite ones, and the step of the first that is
not finite.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from itertools import compress
from typing import Self

COLUMNS = ("step", "until", "at", "n", "nan", "inf", "ninf", "min", "max", "sum", "bad")


class Buckets:
    """Buckets in order; each column has one number for each of them."""

    __slots__ = (*COLUMNS, "attempt")

    def __init__(self, columns: Iterable[array] = (), attempt: array | None = None):
        given = list(columns) or [array("d") for _name in COLUMNS]
        for name, column in zip(COLUMNS, given, strict=True):
            setattr(self, name, column)
        self.attempt = array("h") if attempt is None else attempt

    def __len__(self) -> int:
        return len(self.step)

    @property
    def columns(self) -> list[array]:
        return [getattr(self, name) for name in COLUMNS]

    @property
    def are_finite(self) -> bool:
        return not (any(self.nan) or any(self.inf) or any(self.ninf))

    def sizes(self) -> list[float]:
        """Return how many points each has."""
        if self.are_finite:
            return list(self.n)
        return [sum(four) for four in zip(self.n, self.nan, self.inf, self.ninf, strict=True)]

    def add(self, other: Buckets) -> None:
        """Append other buckets."""
        for mine, others in zip(self.columns, other.columns, strict=True):
            mine.extend(others)
        self.attempt.extend(other.attempt)

    def chosen(self, chosen: Iterable[bool]) -> Buckets:
        """Return those that are chosen."""
        marks = list(chosen)
        if all(marks):
            return self
        return Buckets(
            (array("d", compress(column, marks)) for column in self.columns), array("h", compress(self.attempt, marks))
        )

    def every(self, stride: int) -> Buckets:
        """Return each `stride`-th of them."""
        return Buckets((column[::stride] for column in self.columns), self.attempt[::stride]) if stride > 1 else self

    def value(self, place: int) -> float:
        """Return the mean of one of them; where nothing in it is finite, what there is instead."""
        if self.n[place]:
            return mean(self.sum[place], self.n[place])
        return math.nan if self.nan[place] else math.inf if self.inf[place] else -math.inf

    def ordered(self) -> Buckets:
        """Return them by attempt and step."""
        order = sorted(range(len(self)), key=lambda place: (self.attempt[place], self.step[place]))
        return Buckets(
            (array("d", map(column.__getitem__, order)) for column in self.columns),
            array("h", map(self.attempt.__getitem__, order)),
        )

    def merged(self, most: int) -> Buckets:
        """Return about `most` buckets of equally many points, as far as attempts allow."""
        if len(self) <= most:
            return self
        sizes, result = self.sizes(), Buckets()
        wanted = sum(sizes) / most
        begin, held, full = 0, 0.0, wanted
        for end, (size, attempt) in enumerate(zip(sizes, self.attempt, strict=True)):
            if end > begin and (held >= full or attempt != self.attempt[begin]):
                result._union(self, begin, end)
                begin, full = end, wanted * (len(result) + 1)
            held += size
        result._union(self, begin, len(self))
        return result

    def _union(self, other: Buckets, begin: int, end: int) -> None:
        """Append one bucket: those of the other from `begin` to `end`."""
        part = slice(begin, end)
        n = other.n[part]
        low, high = other.min[part], other.max[part]
        if 0 in n:  # the extremes of a bucket without finite values say nothing
            low, high = list(compress(low, n)) or [0.0], list(compress(high, n)) or [0.0]
        counts = [sum(other.nan[part]), sum(other.inf[part]), sum(other.ninf[part])]
        bad = 0.0
        if any(counts):
            marks = zip(other.nan[part], other.inf[part], other.ninf[part], strict=True)
            bad = next(compress(other.bad[part], map(any, marks)))
        row = (other.step[begin], other.until[end - 1], other.at[begin], sum(n), *counts, min(low), max(high))
        for column, number in zip(self.columns, (*row, sum(other.sum[part]), bad), strict=True):
            column.append(number)
        self.attempt.append(other.attempt[begin])

    @classmethod
    def of_points(cls, step: array, at: array, value: array, attempt: array) -> Self:
        """Return points as buckets of one point each."""
        count = len(step)
        none = array("d", bytes(8 * count))
        if all(map(math.isfinite, value)):
            ones = array("d", [1.0]) * count
            return cls((step, step[:], at, ones, none, none[:], none[:], value, value[:], value[:], none[:]), attempt)
        finite = array("d", map(math.isfinite, value))
        nan = array("d", map(math.isnan, value))
        inf = array("d", (number == math.inf for number in value))
        ninf = array("d", (number == -math.inf for number in value))
        known = array("d", (number if math.isfinite(number) else 0.0 for number in value))
        bad = array("d", (0.0 if good else where for good, where in zip(finite, step, strict=True)))
        return cls((step, step[:], at, finite, nan, inf, ninf, known, known[:], known[:], bad), attempt)


def mean(total: float, n: float) -> float:
    """Return a point as it came, a mean without digits that say nothing."""
    return total if n == 1 else float(f"{total / n:.12g}")
