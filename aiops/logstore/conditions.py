"""The tree of a query as a condition on rows of the database, and what can be known of it without asking them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from django.db.models import Case, IntegerField, Q, Value, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.lookups import Regex

from aiops.models import LogKey, LogLine
from opnilog import scripts
from opnilog.scripts import LEAST

from . import query_tree as q
from .statements import COLUMNS, NUMBERS, key_of

ANY = rf"[\w{scripts.UNSPACED}]"  # for a wildcard
NOTHING = Q(pk__in=[])
INDEXED = "log"  # the field whose text has an index
NAMES = {"cluster_id": "cluster", "namespace_name": "namespace", "deployment": "deployment"}
FIRST, LAST = 0, 1 << 62  # ms, of all times


@dataclass
class Known:
    """What every matching line has: its names and verdict, as far as they are given, and a time in [since, until).

    `whole`: the query says nothing else.
    """

    names: dict[str, str] = field(default_factory=dict)
    level: str | None = None
    since: int = FIRST
    until: int = LAST
    whole: bool = True


def known(node, into: Known | None = None) -> Known:
    """Return what the query says of names, verdict and time."""
    result = into or Known()
    match node:
        case q.All():
            pass
        case q.And(parts):
            for part in parts:
                known(part, result)
        case q.Is("anomaly_level", (value,)) if result.level is None and value:
            result.level = value
        case q.Is(name, (value,)) if name in NAMES and NAMES[name] not in result.names:
            result.names[NAMES[name]] = value
        case q.Between("time", bounds):
            _narrow(result, bounds)
        case _:
            result.whole = False
    return result


def _narrow(result: Known, bounds) -> None:
    for bound, value in bounds:
        if bound in {"gte", "gt"}:
            result.since = max(result.since, value + (bound == "gt"))
        else:
            result.until = min(result.until, value + (bound == "lte"))


def has_text(node) -> bool:
    """Return whether words are searched."""
    match node:
        case q.Words():
            return True
        case q.And(parts) | q.Or(parts, _):
            return any(map(has_text, parts))
        case q.Not(part):
            return has_text(part)
    return False


def is_indexed(node) -> bool:
    """Return whether the index of the lines' text can exclude lines that do not match."""
    match node:
        case q.Words((name,), words, text, literal):
            spaced = [word for word in words if not scripts.is_unspaced(word)]
            several = literal and len(spaced) > 1
            indexed = several or any(len(word) >= LEAST for word in spaced) or scripts.parts_for_index(text)
            return name == INDEXED and bool(indexed)
        case q.Pattern((name,), text):
            return name == INDEXED and any(len(part) >= LEAST for part in scripts.RUN.findall(text))
        case q.And(parts):
            return any(map(is_indexed, parts))
        case q.Or(parts, least):
            return bool(parts) and least > 0 and all(map(is_indexed, parts))
    return False


def condition(node) -> Q:
    """Return the tree as a condition. For ids the database is asked where their lines are."""
    match node:
        case q.All():
            return Q()
        case q.Is(field, values) if field.startswith(q.ATTRIBUTE):
            key = field.removeprefix(q.ATTRIBUTE)
            return _any_of(Q(attributes__contains={key: str(value)}) for value in values)
        case q.Exists(field) if field.startswith(q.ATTRIBUTE):
            return Q(attributes__has_key=field.removeprefix(q.ATTRIBUTE))
        case q.Is("_id", values):
            return with_ids(values)
        case q.Is(field, values):
            return Q(**{f"{COLUMNS[field]}__in": values})
        case q.Between(field, bounds):
            return Q(**{f"{COLUMNS[field]}__{bound}": value for bound, value in bounds})
        case q.Words(fields, words):
            return _any_of(_words(COLUMNS[field], node) for field in fields) if words else NOTHING
        case q.Pattern(fields, text):
            return _any_of(_pattern(field, text) for field in fields)
        case q.Exists(field):
            column = COLUMNS[field]
            return Q(**{f"{column}__isnull": False}) if column in NUMBERS else ~Q(**{column: ""})
        case q.And(parts):
            whole = Q()
            for part in parts:
                whole &= condition(part)
            return whole
        case q.Not(part):
            return _not(condition(part))
        case q.Or(parts, least):
            return _at_least([condition(part) for part in parts], least)
    raise ValueError(f"{node}: unknown")


def with_ids(ids) -> Q:
    """Return the condition for lines with these ids, by the places that their keys name."""
    places = LogKey.objects.filter(key__in=[key_of(str(id)) for id in ids]).values_list("time", "line")
    if not places:
        return NOTHING
    times, lines = zip(*places, strict=True)
    return Q(time__in=sorted(set(times)), pk__in=lines, line_id__in=ids)


def _not(clause: Q) -> Q:
    return ~clause if clause else NOTHING


def _any_of(conditions) -> Q:
    whole = NOTHING
    for condition in conditions:
        if not condition:
            return Q()
        whole |= condition
    return whole


def _at_least(conditions: list[Q], least: int) -> Q:
    if least <= 0:
        return Q()
    if least == 1:
        return _any_of(conditions)
    hits = [
        Case(When(condition or Q(pk__gt=0), then=1), default=0, output_field=IntegerField()) for condition in conditions
    ]
    whole = Value(0)
    for hit in hits:
        whole = whole + hit
    return Q(pk__in=LogLine.objects.annotate(hits=whole).filter(hits__gte=least).values("pk")) if hits else NOTHING


def _words(column: str, wanted: q.Words) -> Q:
    """Match the words as a whole, one after the other. Without any word (punctuation only) nothing matches, as in
    OpenSearch.
    """
    if wanted.literal:
        whole, parts = q.literal(wanted.text, r"\m", r"\M"), wanted.text.split()
    else:
        text = wanted.text or " ".join(wanted.words)
        whole, parts = scripts.phrase(text), scripts.RUN.findall(text)
    return _for_index(column, parts, Q(**{f"{column}__iregex": whole})) if whole else NOTHING


def _for_index(column: str, texts: Iterable[str], whole: Q) -> Q:
    """Return the condition with the parts of these texts that the index finds only apart."""
    for part in scripts.parts_for_index(" ".join(texts)):
        whole &= Q(**{f"{column}__contains": part})
    return whole


def _pattern(field: str, text: str) -> Q:
    if field not in q.TEXTS:
        whole = "^" + "".join({"*": ".*", "?": "."}.get(part, re.escape(part)) for part in text) + "$"
        if field.startswith(q.ATTRIBUTE):
            return Q(Regex(KeyTextTransform(field.removeprefix(q.ATTRIBUTE), "attributes"), Value(whole)))
        return Q(**{f"{COLUMNS[field]}__regex": whole})
    words = [re.escape(word).replace(r"\*", ANY + "*").replace(r"\?", ANY) for word in q.pattern_words(text)]
    if not words:
        return NOTHING
    begin = "" if words[0].startswith(ANY + "*") else scripts.begin(words[0][0], r"\m")
    end = "" if words[-1].endswith(ANY + "*") else scripts.end(words[-1][-1], r"\M")
    words[0] = words[0].removeprefix(ANY + "*") or ANY
    words[-1] = words[-1].removesuffix(ANY + "*") or ANY
    whole = Q(**{f"{COLUMNS[field]}__iregex": begin + r"\W+".join(words) + end})
    return _for_index(COLUMNS[field], scripts.RUN.findall(text), whole)
