"""The subset of OpenSearch's query language that every store answers, as a small tree. Refuses what it does not know.

    bool (filter, must, must_not, should, minimum_should_match), range, term, terms, match, match_phrase, exists, ids,
    match_all, query_string (AND, OR, NOT, parentheses, "phrases", field:value, fields, default_field,
    default_operator)

`parse` returns the tree; an adapter translates it for its store, `matches` applies it to a single document. Words are
compared as OpenSearch's standard analyser does: whole, and case-insensitively.
"""

from __future__ import annotations

import contextlib
import math
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# The fields of a document: keywords, texts that are searched by word, numbers.
_LINE = ("_id", "cluster_id", "namespace_name", "deployment", "service", "pod_name")
KEYWORDS = frozenset([*_LINE, "log_type", "anomaly_level", "inference_model"])
TEXTS = frozenset(["log", "masked_log", "template_matched"])
NUMBERS = frozenset(["time", "template_cluster_id", "opnilog_confidence"])
FIELDS = KEYWORDS | TEXTS | NUMBERS
MOST_DEPTH = 20
MOST_TOKENS = 1000  # of each query_string
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


def parse(body: dict) -> Any:
    """Return the tree of `body["query"]`. Raises ValueError naming what is unknown or malformed."""
    if not isinstance(body, dict):
        raise ValueError("query: must be an object")
    for name in body:
        if name not in {"query", "size", "sort", "_source", "from", "track_total_hits"}:
            raise ValueError(f"{name}: unknown to this log store")
    return _node(body.get("query", {"match_all": {}}), 0)


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
    raise ValueError(f"{node}: unknown")


def _has(text: tuple[str, ...], words: tuple[str, ...]) -> bool:
    return any(text[place : place + len(words)] == words for place in range(len(text) - len(words) + 1))


def _node(query: Any, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise ValueError("query: nested too deeply")
    if not isinstance(query, dict) or len(query) != 1:
        raise ValueError("query: each clause is an object with one kind")
    kind, given = next(iter(query.items()))
    reader = READERS.get(kind)
    if reader is None:
        raise ValueError(f"{kind}: unknown to this log store; there are {', '.join(sorted(READERS))}")
    return reader(given, depth + 1)


def _bool(given: Any, depth: int) -> Any:
    if not isinstance(given, dict):
        raise ValueError("bool: must be an object")
    for name in given:
        if name not in {"filter", "must", "must_not", "should", "minimum_should_match", "boost"}:
            raise ValueError(f"bool.{name}: unknown")
    parts = [_node(one, depth) for name in ("filter", "must") for one in _listed(given.get(name))]
    parts += [Not(_node(one, depth)) for one in _listed(given.get("must_not"))]
    should = tuple(_node(one, depth) for one in _listed(given.get("should")))
    least = given.get("minimum_should_match", 0 if parts else 1)
    if type(least) is not int:
        raise ValueError("bool.minimum_should_match: must be a whole number")
    if should and least > 0:
        parts.append(Or(should, least))
    elif not should and least > 0 and "minimum_should_match" in given:
        parts.append(Or((), least))
    return And(tuple(parts)) if parts else All()


def _listed(given: Any) -> list:
    return [] if given is None else given if isinstance(given, list) else [given]


def _field(name: Any) -> str:
    plain = name.removesuffix(".keyword") if isinstance(name, str) else ""
    if plain not in FIELDS:
        raise ValueError(f"{str(name)[:50]!r}: no such field")
    return plain


def _pair(given: Any, kind: str, inner: str) -> tuple[str, Any]:
    """Return (field, value) of {field: value} or {field: {inner: value}}."""
    if not isinstance(given, dict) or len(given) != 1:
        raise ValueError(f"{kind}: must name one field")
    name, value = next(iter(given.items()))
    if isinstance(value, dict):
        unknown = set(value) - {inner, "boost", "operator"}
        if unknown or inner not in value:
            raise ValueError(f"{kind}: must have {inner}" + (f", {sorted(unknown)[0]} is unknown" if unknown else ""))
        if str(value.get("operator", "or")).lower() != "or":
            raise ValueError(f"{kind}.operator: only or is known")
        value = value[inner]
    if isinstance(value, dict | list) or value is None:
        raise ValueError(f"{kind}.{name}: must be a single value")
    return _field(name), value


def _term(given: Any, _depth: int) -> Any:
    name, value = _pair(given, "term", "value")
    return _equal(name, (value,))


def _terms(given: Any, _depth: int) -> Any:
    if not isinstance(given, dict) or len(given) != 1 or not isinstance(next(iter(given.values())), list):
        raise ValueError("terms: must name one field with a list")
    name, values = next(iter(given.items()))
    return _equal(_field(name), tuple(values))


def _equal(name: str, values: tuple) -> Any:
    """Return a node for terms; a term of a text field is one of its words, as with an analysed field."""
    if name in TEXTS:
        return Or(tuple(Words((name,), (str(value).lower(),)) for value in values))
    return Is(name, tuple(_typed(name, value) for value in values))


def _typed(name: str, value: Any) -> Any:
    if name not in NUMBERS:
        return str(value)
    try:
        number = float(value) if name == "opnilog_confidence" else int(value)
        good = math.isfinite(number) if name == "opnilog_confidence" else -INT64 <= number < INT64
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise ValueError(f"{name}: {str(value)[:50]!r} is no number")
    return number


def _match(given: Any, _depth: int) -> Any:
    name, value = _pair(given, "match", "query")
    if name not in TEXTS:
        return _equal(name, (value,))
    return Or(tuple(Words((name,), (word,)) for word in words_of(str(value))))


def _match_phrase(given: Any, _depth: int) -> Any:
    name, value = _pair(given, "match_phrase", "query")
    return Words((name,), words_of(str(value))) if name in TEXTS else _equal(name, (value,))


def _range(given: Any, _depth: int) -> Any:
    if not isinstance(given, dict) or len(given) != 1:
        raise ValueError("range: must name one field")
    name, bounds = next(iter(given.items()))
    name = _field(name)
    if name not in NUMBERS:
        raise ValueError(f"range: {name} is no number")
    if not isinstance(bounds, dict) or not bounds:
        raise ValueError(f"range.{name}: must have bounds")
    for bound in bounds:
        if bound not in {*RANGES, "format", "boost"}:
            raise ValueError(f"range.{name}.{bound}: unknown")
    return Between(name, tuple((bound, _typed(name, bounds[bound])) for bound in RANGES if bound in bounds))


def _exists(given: Any, _depth: int) -> Any:
    if not isinstance(given, dict) or set(given) != {"field"}:
        raise ValueError("exists: must have field")
    return Exists(_field(given["field"]))


def _ids(given: Any, _depth: int) -> Any:
    if not isinstance(given, dict) or not isinstance(given.get("values"), list):
        raise ValueError("ids: must have values")
    return Is("_id", tuple(str(value) for value in given["values"]))


def words_of(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text.lower()))


# --- query_string --------------------------------------------------------------------------------------------------
TOKEN = re.compile(
    r'\s*(?:(\()|(\))|(&&|\|\||AND\b|OR\b|NOT\b|[!+-](?=\S))|("(?:[^"\\]|\\.)*")|((?:[^\s()"\\:]|\\.)+)(:)?)'
)
OPERATORS = {"&&": "AND", "||": "OR", "!": "NOT", "+": "AND", "-": "NOT"}


def _query_string(given: Any, _depth: int) -> Any:
    if isinstance(given, str):
        given = {"query": given}
    if not isinstance(given, dict) or not isinstance(given.get("query"), str):
        raise ValueError("query_string: must have query")
    for name in given:
        if name not in {"query", "fields", "default_field", "default_operator", "analyze_wildcard"}:
            raise ValueError(f"query_string.{name}: unknown")
    fields = given.get("fields") or ([given["default_field"]] if given.get("default_field") else None)
    wanted = tuple(_field(name) for name in fields) if fields and fields != ["*"] else ("log",)
    operator = str(given.get("default_operator", "OR")).upper()
    if operator not in {"AND", "OR"}:
        raise ValueError("query_string.default_operator: must be AND or OR")
    return _QueryString(given["query"], wanted, operator).read()


class _QueryString:
    """A parser of query_string by recursive descent: or > and > not > atom.

    Words side by side are joined by the default operator. A library for Lucene's syntax does not serve: log lines bring
    apostrophes, `<ip>` and lone signs, which such a grammar takes for syntax errors or ranges.
    """

    def __init__(self, text: str, fields: tuple[str, ...], operator: str):
        self.fields, self.operator = fields, operator
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            token = TOKEN.match(text, at)
            if len(self.tokens) >= MOST_TOKENS:
                raise ValueError(f"query_string: more than {MOST_TOKENS} words")
            if token is None:
                raise ValueError(f"query_string: cannot be read at {text[at : at + 20]!r}")
            left, right, operator_, phrase, word, colon = token.groups()
            if left or right:
                self.tokens.append((left or right, ""))
            elif operator_:
                self.tokens.append((OPERATORS.get(operator_, operator_), ""))
            elif phrase is not None:
                self.tokens.append(("phrase", re.sub(r"\\(.)", r"\1", phrase[1:-1])))
            else:
                self.tokens.append(("field" if colon else "word", re.sub(r"\\(.)", r"\1", word)))
            at = token.end()
        self.at = self.depth = 0

    def read(self) -> Any:
        if not self.tokens:
            raise ValueError("query_string: is empty")
        node = self._or()
        if self.at < len(self.tokens):
            raise ValueError("query_string: a parenthesis too many")
        return node

    def _peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def _or(self) -> Any:
        parts = [self._and()]
        while self._peek() not in {"", ")"}:
            if self._peek() == "OR":
                self.at += 1
            elif self.operator == "AND":
                break
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _and(self) -> Any:
        parts = [self._not()]
        while True:
            if self._peek() == "AND":
                self.at += 1
            elif self.operator != "AND" or self._peek() in {"", ")", "OR"}:
                break
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _not(self) -> Any:
        if self._peek() == "NOT":
            self.at += 1
            with self._inside():
                return Not(self._not())
        return self._atom(self.fields)

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise ValueError("query_string: nested too deeply")
        yield
        self.depth -= 1

    def _atom(self, fields: tuple[str, ...]) -> Any:
        kind = self._peek()
        if kind in {"", ")", "AND", "OR"}:
            raise ValueError("query_string: a word is missing")
        text = self.tokens[self.at][1]
        self.at += 1
        if kind == "(":
            outside, self.fields = self.fields, fields
            with self._inside():
                node = self._or()
            self.fields = outside
            if self._peek() != ")":
                raise ValueError("query_string: a parenthesis is not closed")
            self.at += 1
            return node
        if kind == "field":
            with self._inside():
                return Exists(_field(self._word())) if text == "_exists_" else self._atom((_field(text),))
        if kind == "word" and re.search(r"[*?~^/\[\]{}]", text):
            raise ValueError(f"query_string: {text}: wildcards, ranges and fuzzy words are unknown to this log store")
        parts = [Is(name, (_typed(name, text),)) for name in fields if name not in TEXTS]
        texts = tuple(name for name in fields if name in TEXTS)
        if texts:
            parts.append(Words(texts, words_of(text)))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _word(self) -> str:
        if self._peek() not in {"word", "phrase"}:
            raise ValueError("query_string: a word is missing")
        self.at += 1
        return self.tokens[self.at - 1][1]


READERS = {
    "bool": _bool,
    "term": _term,
    "terms": _terms,
    "match": _match,
    "match_phrase": _match_phrase,
    "range": _range,
    "exists": _exists,
    "ids": _ids,
    "match_all": lambda _given, _depth: All(),
    "query_string": _query_string,
}
