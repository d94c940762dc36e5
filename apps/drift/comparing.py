"""Compares the values of features with those of a reference: tests, distances, correction for many features.

A feature has drifted where both say so: a test, which says that the difference is hardly chance (the false discovery
rate over all features is held by Benjamini and Hochberg), and a distance, which says that it is large enough to matter.
With few rows the test decides, with many the distance, as a test finds any difference then.

scipy is imported when something is compared, which only workers do.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from .columns import CATEGORY, OTHER, SKIPPED, TEXT, Column, counts_of, numbers_of, words_of

LEAST_EXPECTED = 5.0  # of a category in a chi-squared test; rarer ones are joined
MISSING_MATTERS = 0.1  # by how much the share of missing values has to differ
BARS = 20  # of a histogram
SHOWN_CATEGORIES = 10
MAX_DISTANCE = 1e6
ABSENT = "absent"  # why a column of a dataset is not compared: no request has it


class Rule(NamedTuple):
    """When a feature has drifted: the false discovery rate, and the least distance."""

    alpha: float = 0.05
    distance: float = 0.1


def compare(
    profile: Sequence[Mapping], columns: Mapping[str, Column], rule: Rule, optional: bool = False,
    expected: Collection[str] = (),
) -> list[dict]:  # fmt: skip
    """Return one object for each feature of the reference, as JSON has it, the most drifted first.

    `optional`: a feature that no row has is not compared, instead of being missing, unless it is `expected`.
    """
    found = []
    for reference in profile:
        name, rows = reference["name"], max((column.rows for column in columns.values()), default=0)
        column = columns.get(name, Column([], rows, rows))
        shown = {"name": name, "side": reference["side"], "kind": reference["kind"], "why": reference["why"]}
        if reference["kind"] == SKIPPED or not rows:
            found.append(shown | {"kind": SKIPPED})
        elif optional and name not in expected and not column.values:
            found.append(shown | {"kind": SKIPPED, "why": ABSENT})
        else:
            found.append(shown | _compared(reference, column, rule))
    adjust([each for each in found if "p" in each])
    for each in found:
        matters = each.pop("matters", False)
        each["drifted"] = matters and each["q"] < rule.alpha
    return sorted(found, key=lambda each: (not each["drifted"], each.get("q", 2.0), -each.get("distance", 0.0)))


def adjust(found: Sequence[dict]) -> None:
    """Set `q` of each: its p-value as Benjamini and Hochberg adjust it for all of them."""
    least, count = 1.0, len(found)
    for rank, each in sorted(enumerate(sorted(found, key=lambda one: one["p"]), 1), reverse=True):
        least = min(least, each["p"] * count / rank)
        each["q"] = least


def _compared(reference: Mapping, column: Column, rule: Rule) -> dict:
    kind = reference["kind"]
    if kind == CATEGORY:
        shown, missing = _categories(reference, column), column.missing
    elif kind == TEXT:
        lengths = Column([float(len(str(value))) for value in column.values], column.rows, column.missing)
        shown, missing = _numbers(reference, lengths), column.missing
        known, words = set(reference["words"]), words_of(column)
        shown["new"] = sum(n for word, n in words.items() if word not in known) / (words.total() or 1)
    else:
        shown = _numbers(reference, column)
        missing = column.rows - len(numbers_of(column))
    before, now = reference["missing"] / reference["rows"], missing / column.rows
    p_missing = _p_of_table([[reference["missing"], reference["rows"] - reference["missing"]],
                             [missing, column.rows - missing]])  # fmt: skip
    p = min(1.0, 2 * min(shown["p"], p_missing))
    far = shown["distance"] >= rule.distance and 2 * shown["p"] < rule.alpha
    lacks = abs(now - before) >= MISSING_MATTERS and 2 * p_missing < rule.alpha
    return shown | {"p": p, "matters": far or lacks, "missing": now, "missing_before": before}


def _numbers(reference: Mapping, column: Column) -> dict:
    """Compare numbers: the test of Kolmogorov and Smirnov; Wasserstein's distance in standard deviations."""
    from scipy import stats

    before, now = reference["numbers"], sorted(numbers_of(column))
    shown: dict = {"test": "ks", "p": 1.0, "statistic": 0.0, "distance": 0.0, "psi": 0.0}
    if not before or not now:
        return shown
    test = stats.ks_2samp(before, now, method="asymp")
    spread = _deviation(before) or _deviation(now) or 1.0
    shown |= {"p": float(test.pvalue), "statistic": float(test.statistic)}
    shown["distance"] = _bounded(stats.wasserstein_distance(before, now) / spread)
    low, high = before[0], before[-1]
    shown["outside"] = (bisect.bisect_left(now, low) + len(now) - bisect.bisect_right(now, high)) / len(now)
    deciles = sorted({before[len(before) * at // 10] for at in range(1, 10)})
    shown["psi"] = psi(_binned(before, deciles), _binned(now, deciles))
    bottom, top = min(low, now[0]), max(high, now[-1])
    if math.isfinite(top - bottom):
        edges = [bottom + (top - bottom) * at / BARS for at in range(1, BARS)] if top > bottom else []
        shown |= {"low": bottom, "high": top, "bars": [_shares(_binned(each, edges)) for each in (before, now)]}
    return shown


def _categories(reference: Mapping, column: Column) -> dict:
    """Compare categories: the chi-squared test; the distance of Jensen and Shannon, from 0 to 1."""
    before, every = Counter(reference["counts"]), counts_of(column)
    has_rest = OTHER in before
    now: Counter[str] = Counter()
    new = 0
    for key, count in every.items():
        if key in before:
            now[key] += count
        else:
            new += count
            now[OTHER if has_rest else key] += count
    keys = list(dict.fromkeys([*before, *now]))
    table = [[before[key] for key in keys], [now[key] for key in keys]]
    shown: dict = {"test": "chi2", "p": _p_of_table(_joined(table)), "distance": jensen_shannon(*table),
                   "psi": psi(*table), "new": 0.0 if has_rest else new / (every.total() or 1)}  # fmt: skip
    top = sorted(keys, key=lambda key: -(before[key] / (before.total() or 1) + now[key] / (now.total() or 1)))
    top = [key for key in top if key != OTHER][:SHOWN_CATEGORIES]
    shown["labels"] = top
    shown["bars"] = [[each[key] / (each.total() or 1) for key in top] for each in (before, now)]
    if not now:
        shown |= {"p": 1.0, "distance": 0.0, "psi": 0.0}
    return shown


def _joined(table: list[list[int]]) -> list[list[int]]:
    """Return the table with its rare categories as one: the test is not valid for them."""
    total, smaller = sum(map(sum, table)), min(map(sum, table))
    kept: list[list[int]] = [[], []]
    rest = [0, 0]
    for before, now in zip(*table, strict=True):
        if (before + now) * smaller / max(total, 1) < LEAST_EXPECTED:
            rest = [rest[0] + before, rest[1] + now]
        else:
            kept[0].append(before)
            kept[1].append(now)
    if any(rest):
        kept = [[*kept[0], rest[0]], [*kept[1], rest[1]]]
    return kept


def _p_of_table(table: list[list[int]]) -> float:
    """Return the p-value of two rows of counts: of Fisher's exact test where a table of two columns has few."""
    from scipy import stats

    columns = [pair for pair in zip(*table, strict=True) if any(pair)]
    if len(columns) < 2 or not all(map(sum, table)):
        return 1.0
    rows = [list(each) for each in zip(*columns, strict=True)]
    result = stats.chi2_contingency(rows, correction=False)
    if len(columns) == 2 and result.expected_freq.min() < LEAST_EXPECTED:
        return float(stats.fisher_exact(rows).pvalue)
    return float(result.pvalue)


def jensen_shannon(before: Sequence[int], now: Sequence[int]) -> float:
    """Return the distance of two distributions, from 0 to 1 (base 2)."""
    first, second = sum(before) or 1, sum(now) or 1
    divergence = 0.0
    for one, other in zip(before, now, strict=True):
        p, q = one / first, other / second
        middle = (p + q) / 2
        divergence += sum(each * math.log2(each / middle) for each in (p, q) if each > 0) / 2
    return math.sqrt(max(divergence, 0.0))


def psi(before: Sequence[int], now: Sequence[int]) -> float:
    """Return the population stability index of two distributions; an empty bin counts as half a value."""
    first, second = sum(before), sum(now)
    if not first or not second:
        return 0.0
    total = 0.0
    for one, other in zip(before, now, strict=True):
        if one or other:
            p, q = max(one, 0.5) / first, max(other, 0.5) / second
            total += (q - p) * math.log(q / p)
    return total


def _binned(ordered: Sequence[float], edges: Sequence[float]) -> list[int]:
    """Return how many of the ordered numbers are up to each edge, and behind the last."""
    ends = [bisect.bisect_right(ordered, edge) for edge in edges]
    return [end - begin for begin, end in zip([0, *ends], [*ends, len(ordered)], strict=True)]


def _shares(counts: Sequence[int]) -> list[float]:
    return [count / (sum(counts) or 1) for count in counts]


def _deviation(numbers: Sequence[float]) -> float:
    unit = max(map(abs, numbers)) or 1.0  # so that no square is too large
    mean = math.fsum(number / unit for number in numbers) / len(numbers)
    return unit * math.sqrt(math.fsum((number / unit - mean) ** 2 for number in numbers) / len(numbers))


def _bounded(number: float) -> float:
    """Return a distance as JSON has it."""
    return MAX_DISTANCE if not number < MAX_DISTANCE else float(number)
