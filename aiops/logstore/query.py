"""The parser of the subset of OpenSearch's query language that every store supports. Unknown clauses are refused.

    bool (filter, must, must_not, should, minimum_should_match), range, term, terms, match, match_phrase, exists, ids,
    match_all, query_string (AND, OR, NOT, parentheses, "phrases", field:value, fields, default_field,
    default_operator)

`parse` returns the tree (query_tree.py), which an adapter translates for its store.
"""

from __future__ import annotations

from typing import Any

from kernel.messages import Message, message_of, under
from opnilog.scripts import words_of

from . import query_string
from .query_tree import (
    NUMBERS,
    RANGES,
    TEXTS,
    All,
    And,
    Between,
    Exists,
    Is,
    Not,
    Or,
    Words,
    field_of,
    typed,
)

MAX_DEPTH = 20


def parse(body: dict) -> Any:
    """Return the tree of `body["query"]`. Raises ValueError naming what is unknown or malformed."""
    if not isinstance(body, dict):
        raise ValueError(under("query", Message("must be an object")))
    for name in body:
        if name not in {"query", "size", "sort", "_source", "from", "track_total_hits"}:
            raise ValueError(under(name, Message("unknown to this log store")))
    return _node(body.get("query", {"match_all": {}}), 0)


def _node(query: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(under("query", Message("nested too deeply")))
    if not isinstance(query, dict) or len(query) != 1:
        raise ValueError(under("query", Message("each clause is an object with one kind")))
    kind, given = next(iter(query.items()))
    reader = READERS.get(kind)
    if reader is None:
        known = ", ".join(sorted(READERS))
        raise ValueError(under(kind, Message("unknown to this log store; there are %(known)s", known=known)))
    return reader(given, depth + 1)


def _bool(given: Any, depth: int) -> Any:
    if not isinstance(given, dict):
        raise ValueError(under("bool", Message("must be an object")))
    for name in given:
        if name not in {"filter", "must", "must_not", "should", "minimum_should_match", "boost"}:
            raise ValueError(under(f"bool.{name}", Message("unknown")))
    parts = [_node(clause, depth) for name in ("filter", "must") for clause in _listed(given.get(name))]
    parts += [Not(_node(clause, depth)) for clause in _listed(given.get("must_not"))]
    should = tuple(_node(clause, depth) for clause in _listed(given.get("should")))
    least = given.get("minimum_should_match", 0 if parts else 1)
    if type(least) is not int:
        raise ValueError(under("bool.minimum_should_match", Message("must be a whole number")))
    if should and least > 0:
        parts.append(Or(should, least))
    elif not should and least > 0 and "minimum_should_match" in given:
        parts.append(Or((), least))
    return And(tuple(parts)) if parts else All()


def _listed(given: Any) -> list:
    return [] if given is None else given if isinstance(given, list) else [given]


def _pair(given: Any, kind: str, inner: str) -> tuple[str, Any]:
    """Return (field, value) of {field: value} or {field: {inner: value}}."""
    if not isinstance(given, dict) or len(given) != 1:
        raise ValueError(under(kind, Message("must name one field")))
    name, value = next(iter(given.items()))
    if isinstance(value, dict):
        if unknown := sorted(set(value) - {inner, "boost", "operator"}):
            problem = Message("must have %(field)s, %(unknown)s is unknown", field=inner, unknown=unknown[0])
            raise ValueError(under(kind, problem))
        if inner not in value:
            raise ValueError(under(kind, Message("must have %(field)s", field=inner)))
        if str(value.get("operator", "or")).lower() != "or":
            raise ValueError(under(f"{kind}.operator", Message("only or is known")))
        value = value[inner]
    if isinstance(value, dict | list) or value is None:
        raise ValueError(under(f"{kind}.{name}", Message("must be a single value")))
    return field_of(name), value


def _term(given: Any, _depth: int) -> Any:
    name, value = _pair(given, "term", "value")
    return _equal(name, (value,))


def _terms(given: Any, _depth: int) -> Any:
    if not isinstance(given, dict) or len(given) != 1 or not isinstance(next(iter(given.values())), list):
        raise ValueError(under("terms", Message("must name one field with a list")))
    name, values = next(iter(given.items()))
    return _equal(field_of(name), tuple(values))


def _equal(name: str, values: tuple) -> Any:
    """Return a node for terms; a term of a text field is one of its words, as with an analysed field."""
    if name in TEXTS:
        return Or(tuple(Words((name,), (str(value).lower(),)) for value in values))
    return Is(name, tuple(typed(name, value) for value in values))


def _match(given: Any, _depth: int) -> Any:
    name, value = _pair(given, "match", "query")
    if name not in TEXTS:
        return _equal(name, (value,))
    return Or(tuple(Words((name,), words_of(word), word) for word in str(value).split() if words_of(word)))


def _match_phrase(given: Any, _depth: int) -> Any:
    name, value = _pair(given, "match_phrase", "query")
    return Words((name,), words_of(str(value)), str(value)) if name in TEXTS else _equal(name, (value,))


def _range(given: Any, _depth: int) -> Any:
    if not isinstance(given, dict) or len(given) != 1:
        raise ValueError(under("range", Message("must name one field")))
    name, bounds = next(iter(given.items()))
    name = field_of(name)
    if name not in NUMBERS:
        raise ValueError(under("range", Message("%(value)s is not a number", value=name)))
    if not isinstance(bounds, dict) or not bounds:
        raise ValueError(under(f"range.{name}", Message("must have bounds")))
    for bound in bounds:
        if bound not in {*RANGES, "format", "boost"}:
            raise ValueError(under(f"range.{name}.{bound}", Message("unknown")))
    return Between(name, tuple((bound, typed(name, bounds[bound])) for bound in RANGES if bound in bounds))


def _exists(given: Any, _depth: int) -> Any:
    if not isinstance(given, dict) or set(given) != {"field"}:
        raise ValueError(under("exists", Message("must have %(field)s", field="field")))
    return Exists(field_of(given["field"]))


def _ids(given: Any, _depth: int) -> Any:
    if not isinstance(given, dict) or not isinstance(given.get("values"), list):
        raise ValueError(under("ids", Message("must have %(field)s", field="values")))
    return Is("_id", tuple(str(value) for value in given["values"]))


def _query_string(given: Any, _depth: int) -> Any:
    if isinstance(given, str):
        given = {"query": given}
    if not isinstance(given, dict) or not isinstance(given.get("query"), str):
        raise ValueError(under("query_string", Message("must have %(field)s", field="query")))
    for name in given:
        if name not in {"query", "fields", "default_field", "default_operator", "analyze_wildcard"}:
            raise ValueError(under(f"query_string.{name}", Message("unknown")))
    fields = given.get("fields") or ([given["default_field"]] if given.get("default_field") else None)
    wanted = tuple(field_of(name) for name in fields) if fields and fields != ["*"] else ("log",)
    operator = str(given.get("default_operator", "OR")).upper()
    if operator not in {"AND", "OR"}:
        raise ValueError(under("query_string.default_operator", Message("must be AND or OR")))
    try:
        return query_string.parse(given["query"], wanted, operator)
    except ValueError as problem:
        raise ValueError(under("query_string", message_of(problem))) from problem


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
