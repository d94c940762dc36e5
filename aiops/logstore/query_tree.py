"""The tree of a log query: what `query` and `query_string` parse to, what a store translates, what `matches` evaluates.

Words are compared as OpenSearch's standard analyser does: whole, and case-insensitively (scripts.py).
"""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from typing import Any

from kernel.messages import Message, under
from opnilog import scripts
from opnilog.scripts import words_of

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
    """One of the text fields contains these words one after the other.

    Between them is anything that is no word, or with `literal` what is between them in that text; `text` is what was
    searched, which OpenSearch divides into words as it does the lines.
    """

    fields: tuple[str, ...]
    words: tuple[str, ...]
    text: str = ""
    literal: bool = False


@dataclass(frozen=True)
class Pattern:
    """One of the fields has words, or as a keyword a value, of this form: `*` is any number of characters, `?` one."""

    fields: tuple[str, ...]
    text: str


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
            return _value(document, field) in values
        case Between(field, bounds):
            return field in document and all(BOUNDS[bound](document[field], value) for bound, value in bounds)
        case Words(fields, words):
            return bool(words) and any(_has_words(str(document.get(field) or ""), node) for field in fields)
        case Pattern(fields, text):
            return any(_has_form(str(_value(document, field) or ""), text, field in TEXTS) for field in fields)
        case Exists(field):
            return _value(document, field) not in (None, "")
        case And(parts):
            return all(matches(part, document) for part in parts)
        case Or(parts, least):
            return sum(matches(part, document) for part in parts) >= least
        case Not(part):
            return not matches(part, document)
    raise ValueError(under(str(node), Message("unknown")))


def _value(document: dict, field: str) -> Any:
    if field.startswith(ATTRIBUTE):
        return (document.get("attributes") or {}).get(field.removeprefix(ATTRIBUTE))
    return document.get(field)


def _has_words(text: str, wanted: Words) -> bool:
    if wanted.literal:
        return re.search(literal(wanted.text, r"\b", r"\b"), text, re.IGNORECASE) is not None
    words, has = wanted.words, words_of(text)
    return any(has[place : place + len(words)] == words for place in range(len(has) - len(words) + 1))


def _has_form(text: str, pattern: str, is_text: bool) -> bool:
    if not is_text:
        return glob(pattern, text)
    wanted, has = pattern_words(pattern), words_of(text)
    if scripts.IS_UNSPACED.search(pattern):  # the words of such scripts have no bounds
        wanted, has = tuple(map(_open, wanted)), tuple(scripts.RUN.findall(text.lower()))
    places = range(len(has) - len(wanted) + 1)
    return any(all(glob(form, word) for form, word in zip(wanted, has[place:], strict=False)) for place in places)


def _open(form: str) -> str:
    """Return the form with wildcards at an end whose character is a word by itself."""
    left, right = (scripts.is_unspaced(sign) for sign in (form[0], form[-1]))
    return "*" * left + form + "*" * right


def literal(text: str, begin: str, end: str) -> str:
    """Return a regular expression for the text as it is, but for its case and the width of its spaces; `begin` and
    `end` are what matches the bounds of a word.
    """
    parts = text.split()
    whole = r"\s+".join(map(re.escape, parts))
    before = scripts.begin(parts[0][0], begin) if _is_word(parts[0][0]) else ""
    return before + whole + (scripts.end(parts[-1][-1], end) if _is_word(parts[-1][-1]) else "")


def _is_word(character: str) -> bool:
    return re.match(r"\w", character) is not None


def pattern_words(pattern: str) -> tuple[str, ...]:
    """Return the words of a pattern, with their wildcards, in lower case."""
    return tuple(re.findall(rf"[\w*?{scripts.UNSPACED}]+", re.sub(r"\*+", "*", pattern.lower())))


def glob(pattern: str, text: str) -> bool:
    """Return whether the whole text has the form, in time that grows with the product of their lengths only."""
    at = place = 0
    star, after = -1, 0
    while at < len(text):
        if place < len(pattern) and pattern[place] != "*" and pattern[place] in ("?", text[at]):
            at, place = at + 1, place + 1
        elif place < len(pattern) and pattern[place] == "*":
            star, after, place = place, at, place + 1
        elif star >= 0:
            after += 1
            at, place = after, star + 1
        else:
            return False
    return not pattern[place:].strip("*")


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
