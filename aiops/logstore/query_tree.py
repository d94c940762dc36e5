"""The tree of a log query: what `query` and `query_string` parse to, what a store translates, what `matches` evaluates.

Words are compared as OpenSearch's standard analyser does: whole, and case-insensitively.
"""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from typing import Any

from kernel.messages import Message, under

# The fields of a document: keywords, texts that are searched by word, numbers.
_LINE = ("_id", "cluster_id", "namespace_name", "deployment", "service", "pod_name")
KEYWORDS = frozenset([*_LINE, "log_type", "anomaly_level", "inference_model"])
TEXTS = frozenset(["log", "masked_log", "template_matched"])
NUMBERS = frozenset(["time", "template_cluster_id", "opnilog_confidence"])
FIELDS = KEYWORDS | TEXTS | NUMBERS
ATTRIBUTE = "attributes."  # before the name of what a line's sender said of it
INT64 = 2**63
BOUNDS = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
RANGES = tuple(BOUNDS)


@dataclass(frozen=True)
class All:
    """Every document."""


@dataclass(frozen=True)
class Is:
    """The field is one of these values."""

    field: str
    values: tuple


@dataclass(frozen=True)
class Between:
    field: str
    bounds: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Words:
    """One of the text fields contains these words one after the other."""

    fields: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True)
class Exists:
    field: str


@dataclass(frozen=True)
class And:
    parts: tuple


@dataclass(frozen=True)
class Or:
    """At least `least` of the parts."""

    parts: tuple
    least: int = 1


@dataclass(frozen=True)
class Not:
    part: Any


def matches(node: Any, document: dict) -> bool:
    """Return whether a document matches the tree, as a store would find it."""
    match node:
        case All():
            return True
        case Is(field, values):
            return document.get(field) in values
        case Between(field, bounds):
            return field in document and all(BOUNDS[bound](document[field], value) for bound, value in bounds)
        case Words(fields, words):
            return bool(words) and any(_has(words_of(str(document.get(field) or "")), words) for field in fields)
        case Exists(field):
            return document.get(field) not in (None, "")
        case And(parts):
            return all(matches(part, document) for part in parts)
        case Or(parts, least):
            return sum(matches(part, document) for part in parts) >= least
        case Not(part):
            return not matches(part, document)
    raise ValueError(under(str(node), Message("unknown")))


def _has(text: tuple[str, ...], words: tuple[str, ...]) -> bool:
    return any(text[place : place + len(words)] == words for place in range(len(text) - len(words) + 1))


def field_of(name: Any) -> str:
    """Return the field without its suffix `.keyword`. Raises ValueError for an unknown one."""
    plain = name.removesuffix(".keyword") if isinstance(name, str) else ""
    if plain.startswith(ATTRIBUTE) and len(plain) > len(ATTRIBUTE):
        return plain
    if plain not in FIELDS:
        raise ValueError(under(repr(str(name)[:50]), Message("no such field")))
    return plain


def typed(name: str, value: Any) -> Any:
    """Return the value in the field's type. Raises ValueError where a numeric field's value is not a number."""
    if name not in NUMBERS:
        return str(value)
    try:
        number = float(value) if name == "opnilog_confidence" else int(value)
        valid = math.isfinite(number) if name == "opnilog_confidence" else -INT64 <= number < INT64
    except (TypeError, ValueError, OverflowError):
        valid = False
    if not valid:
        raise ValueError(under(name, Message("%(value)s is not a number", value=repr(str(value)[:50]))))
    return number


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of the text in lower case."""
    return tuple(re.findall(r"\w+", text.lower()))
