"""Masks: the values of fields and paths that an owner names, left out of what is recorded. Imports nothing but the
standard library, since the platform masks with it, too (apps/shadows), what no process has masked.
"""

from __future__ import annotations

import json
import re

MASKED = "***"
STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\*)\]|\['([^']*)'\]")
DESCRIBED = ("name", "datatype", "shape")  # of a tensor, beside its values


def masked(text: str, mask: tuple[str, ...]) -> str:
    """Return JSON with MASKED for each value that the masks name. Raises ValueError, RecursionError for other text."""
    fields = frozenset(each for each in mask if not each.startswith("$"))
    value = _read(text, fields)
    if not isinstance(value, dict | list):
        raise ValueError("no fields")
    value = _without(value, fields) if fields else value  # before the paths, which may name what names a field
    for path in mask:
        if path.startswith("$"):
            steps = [first or number or quoted for first, number, quoted in STEP.findall(path)]
            value = _at(value, steps)
    return json.dumps(value, ensure_ascii=False)


def _read(text: str, fields: frozenset[str]):
    """Return the value of JSON, also with NaN, which the applications take. Raises ValueError, RecursionError."""

    def of_pairs(pairs: list[tuple[str, object]]) -> dict:
        found = dict(pairs)
        if len(found) < len(pairs):
            others = [key for key, _value in pairs if key not in fields]
            if len(others) > len(set(others)):
                raise ValueError("a key is there twice: which one names the data is for its reader to say")
        return found

    return json.loads(text, object_pairs_hook=of_pairs)


def _at(value, steps: list[str]):
    """Return the value with what is at the path replaced."""
    if not steps:
        return MASKED
    first, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        return {key: _at(inner, rest) if first in (key, "*") else inner for key, inner in value.items()}
    if isinstance(value, list):
        return [_at(inner, rest) if first in (str(at), "*") else inner for at, inner in enumerate(value)]
    return value


def _without(value, fields: frozenset[str]):
    """Return the value with what belongs to fields of these names replaced, at any depth."""
    if isinstance(value, list):
        return [_without(inner, fields) for inner in value]
    if isinstance(value, str):
        return _without_in(value, fields)
    if not isinstance(value, dict):
        return value
    found = {key: MASKED if key in fields else _without(inner, fields) for key, inner in value.items()}
    if isinstance(value.get("name"), str) and value["name"] in fields:
        found |= {key: MASKED for key in value if key not in DESCRIBED}
    columns, rows = value.get("columns"), value.get("data")
    if isinstance(columns, list) and isinstance(rows, list):
        at = {place for place, column in enumerate(columns) if not fields.isdisjoint(_words(column))}
        if at and "data" not in fields:
            found["data"] = [_row(row, at) for row in found["data"]]
    return found


def _without_in(text: str, fields: frozenset[str]) -> str:
    """Return a text, masked where it is JSON itself, such as the arguments of a call that a language model makes, or
    has a field in a part of it that is.
    """
    if "{" not in text and "[" not in text:
        return text
    try:
        value = _read(text, fields)
    except json.JSONDecodeError:  # several lines of it, a part, or something around it, such as <tool_call>
        return MASKED if any(re.search(rf'"{re.escape(name)}\\*"', text) for name in fields) else text
    except ValueError:
        return MASKED
    found = _without(value, fields)
    return text if found == value else json.dumps(found, ensure_ascii=False)


def _words(column) -> list[str]:
    """Return the names of a column, of which one of several levels has several."""
    return [word for word in (column if isinstance(column, list) else [column]) if isinstance(word, str)]


def _row(row, at: set[int]):
    return [MASKED if place in at else each for place, each in enumerate(row)] if isinstance(row, list) else MASKED
