"""The tree of a query in OpenSearch's query language, for the fields as opensearch.py maps them."""

from __future__ import annotations

import re

from opnilog import scripts

from . import query_tree as q
from .query import parse

WITH_KEYWORD = ("namespace_name", "deployment", "service", "pod_name")  # texts whose whole value is in `.keyword`


def translate(body: dict) -> dict:
    """Return the query for OpenSearch, parsed by the common parser, so that every store refuses the same."""
    return _query(parse(body))


def _name(field: str) -> str:
    return f"{field}.keyword" if field in WITH_KEYWORD else field


def _query(node) -> dict:
    match node:
        case q.All():
            return {"match_all": {}}
        case q.Is("_id", values):
            return {"ids": {"values": list(values)}}
        case q.Is(field, values) if field.startswith(q.ATTRIBUTE):
            key = field.removeprefix(q.ATTRIBUTE)
            return {"terms": {"attributes": [f"{key}={value}" for value in values]}}
        case q.Exists(field) if field.startswith(q.ATTRIBUTE):
            return {"prefix": {"attributes": f"{field.removeprefix(q.ATTRIBUTE)}="}}
        case q.Is("inference_model", values):  # with a tenant's number; a text in an index that Opni has mapped
            fields = ("inference_model", "inference_model.keyword")
            whole = [{"terms": {field: list(values)}} for field in fields]
            return {"bool": {"should": whole, "minimum_should_match": 1}}
        case q.Is(field, values):
            return {"terms": {_name(field): list(values)}}
        case q.Between(field, bounds):
            return {"range": {field: dict(bounds)}}
        case q.Words(fields, words, text):
            # As it was written: the analyser of the field divides it into words as it has divided the lines.
            given = text or " ".join(words)
            phrases = [{"match_phrase": {field: given}} for field in fields]
            if scripts.IS_JOINED.search(given):
                phrases += [_inside(field, given) for field in fields]
            return {"bool": {"should": phrases, "minimum_should_match": 1}} if words else {"match_none": {}}
        case q.Pattern(fields, text):
            forms = [_pattern(field, text) for field in fields]
            return {"bool": {"should": forms, "minimum_should_match": 1}}
        case q.Exists("anomaly_level"):
            return {"terms": {"anomaly_level": ["Normal", "Anomaly"]}}
        case q.Exists(field):
            return {"exists": {"field": field}}
        case q.And(parts):
            return {"bool": {"must": [_query(part) for part in parts]}}
        case q.Not(part):
            return {"bool": {"must_not": [_query(part)]}}
        case q.Or(parts, least):
            if not parts:
                return {"match_none": {}} if least > 0 else {"match_all": {}}
            return {"bool": {"should": [_query(part) for part in parts], "minimum_should_match": least}}
    raise ValueError(f"{node}: unknown")


def _inside(field: str, text: str) -> dict:
    """Return the query for words of which the first and the last may be parts of words of the index."""
    tokens = scripts.TOKEN.findall(text.lower())
    forms = list(tokens)
    if scripts.IS_JOINED.match(tokens[0]):
        forms[0] = f"*{forms[0]}"
    if scripts.IS_JOINED.match(tokens[-1]):
        forms[-1] += "*"
    if len(forms) == 1:
        return {"wildcard": {field: {"value": forms[0]}}}
    parts = [{"wildcard": {"pattern": form}} for form in forms]
    return {"intervals": {field: {"all_of": {"ordered": True, "max_gaps": 0, "intervals": parts}}}}


def _pattern(field: str, text: str) -> dict:
    if field.startswith(q.ATTRIBUTE):
        return {"wildcard": {"attributes": {"value": f"{field.removeprefix(q.ATTRIBUTE)}={text}"}}}
    if field not in q.TEXTS:
        return {"wildcard": {_name(field): {"value": text}}}
    words = q.pattern_words(text)
    if not words:
        return {"match_none": {}}
    if scripts.IS_UNSPACED.search(text):
        inner = [part for part in re.split(r"[*?\s]+", text) if part]
        return _query(q.And(tuple(q.Words((field,), q.words_of(part), part) for part in inner)))
    # Of one word of the index, which may have dots in it, or of several words.
    parts = [{"wildcard": {"pattern": word}} for word in words]
    either = [{"wildcard": {field: {"value": text.lower()}}}]
    if len(words) > 1:
        either.append({"intervals": {field: {"all_of": {"ordered": True, "max_gaps": 0, "intervals": parts}}}})
    return {"bool": {"should": either, "minimum_should_match": 1}}
