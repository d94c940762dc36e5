"""What is kept of the values of one feature, and what kind of feature it is.

A column is a sample of the values with the share of those that are missing. Its kind follows from the values: numbers,
categories, texts, or a reason why it is not compared. Missing are null, NaN, infinity, empty texts, and features that a
row does not have.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from .features import Row, Value, number_in

NUMERIC, CATEGORY, TEXT, SKIPPED = "numeric", "category", "text", "skip"
CHOICES = (NUMERIC, CATEGORY, TEXT, SKIPPED)
# Why a feature is not compared; pages translate them (shown.py).
IDS, DATES, EMPTY, CHOSEN = "ids", "dates", "empty", "chosen"
FEW_NUMBERS = 10  # different whole numbers that are taken as categories
MANY = 0.9  # different values of a text, among all: it is no category
ENOUGH = 30  # values from which on that says something
WORDS = 3  # of a text, on average
MAX_CATEGORIES, MAX_VOCABULARY = 50, 2000
OTHER = "\x01other"  # the rarer categories together
NO_VALUE = {"", "nan", "na", "n/a", "<na>", "null", "none", "inf", "-inf", "+inf", "infinity", "-infinity"}
WORD = re.compile(r"\w+")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")


class Column(NamedTuple):
    """The values of one feature that are there, how many rows there are, and how many lack it."""

    values: list[Value]
    rows: int
    missing: int

    @property
    def missing_share(self) -> float:
        return self.missing / self.rows if self.rows else 0.0


def is_missing(value: Value) -> bool:
    """Return whether there is no value."""
    if isinstance(value, float):
        return not math.isfinite(value)
    return value is None or (isinstance(value, str) and value.strip().casefold() in NO_VALUE)


def columns_of(rows: Sequence[Row], names: Sequence[str] | None = None) -> dict[str, Column]:
    """Return the columns of rows, in the order in which they first appear; only those named, where they are."""
    wanted = dict.fromkeys(name for row in rows for name in row) if names is None else dict.fromkeys(names)
    found = {}
    for name in wanted:
        values = [value for row in rows if not is_missing(value := row.get(name))]
        found[name] = Column(values, len(rows), len(rows) - len(values))
    return found


def kind_of(column: Column) -> tuple[str, str]:
    """Return the kind of a column, and why it is not compared; "" where it is."""
    values = column.values
    if not values:
        return SKIPPED, EMPTY
    if all(isinstance(value, bool) for value in values):
        return CATEGORY, ""
    if all(number_in(value) is not None for value in values):
        return _kind_of_numbers([float(value) for value in values])
    texts = [key_of(value) for value in values]
    if all(DATE.fullmatch(text) and _is_date(text) for text in texts[:100]):
        return SKIPPED, DATES
    different = len(set(texts))
    if len(texts) >= ENOUGH and different > MANY * len(texts):
        words = sum(len(WORD.findall(text)) for text in texts) / len(texts)
        return (TEXT, "") if words >= WORDS else (SKIPPED, IDS)
    return CATEGORY, ""


def _kind_of_numbers(numbers: list[float]) -> tuple[str, str]:
    whole = all(number.is_integer() for number in numbers)
    if whole and len(set(numbers)) <= FEW_NUMBERS:
        return CATEGORY, ""
    rises = all(after > before for before, after in itertools.pairwise(numbers))
    if whole and len(numbers) >= ENOUGH and rises:
        return SKIPPED, IDS
    return NUMERIC, ""


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def key_of(value: Value) -> str:
    """Return a value as the name of a category: a cell of CSV and a value of JSON that mean the same have the same."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = value.strip()
        if text in ("True", "TRUE", "False", "FALSE"):
            return text.lower()
        number = number_in(text)
        return text[:200] if number is None or text[:1] == "0" != text[:2].strip(".") else key_of(number)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def numbers_of(column: Column) -> list[float]:
    """Return the values that are numbers."""
    return [number for value in column.values if (number := number_in(value)) is not None]


def counts_of(column: Column) -> Counter[str]:
    """Return how often each category comes."""
    return Counter(map(key_of, column.values))


def words_of(column: Column) -> Counter[str]:
    """Return in how many texts each word comes."""
    return Counter(word for value in column.values for word in set(WORD.findall(str(value).casefold())))


def profile_of(rows: Sequence[Row], kinds: Mapping[str, str], side: str) -> list[dict]:
    """Return what is stored of the reference: for each feature its kind, and a sample of its values as JSON has them.

    `kinds` are those that its user has chosen, by name.
    """
    return [_profile(name, column, kinds.get(name, ""), side) for name, column in columns_of(rows).items()]


def _profile(name: str, column: Column, chosen: str, side: str) -> dict:
    kind, why = (chosen, CHOSEN if chosen == SKIPPED else "") if chosen else kind_of(column)
    found = {"name": name, "side": side, "kind": kind, "why": why, "rows": column.rows, "missing": column.missing}
    if kind == NUMERIC:
        numbers = sorted(numbers_of(column))
        odd = len(column.values) - len(numbers)  # texts among numbers
        return found | {"missing": column.missing + odd, "numbers": numbers}
    if kind == CATEGORY:
        return found | {"counts": _kept(column)}
    if kind == TEXT:
        words = dict.fromkeys(word for word, _count in words_of(column).most_common(MAX_VOCABULARY))
        return found | {"numbers": sorted(float(len(str(value))) for value in column.values), "words": list(words)}
    return found


def _kept(column: Column) -> dict[str, int]:
    """Return how often each category comes; of too many the most frequent ones, and all others together.

    Which these are is said by one half of the values, how often they come by the other: some are frequent by chance,
    and would seem to be rarer in every window.
    """
    counts = counts_of(column)
    if len(counts) <= MAX_CATEGORIES:
        return dict(counts)
    values = random.Random(0).sample(column.values, len(column.values))
    first, second = (counts_of(column._replace(values=values[at::2])) for at in (0, 1))
    kept = {name: second[name] for name, _count in first.most_common(MAX_CATEGORIES)}
    return kept | {OTHER: second.total() - sum(kept.values())}
