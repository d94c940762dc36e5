"""JSON and texts of log shippers, read without losing a record for what is odd in it. Used by the readers of each form.

Bytes that are not UTF-8 become halves of surrogate pairs, so that who makes a line sees which one was odd; no store
takes them, and `kernel.sanitize.text` replaces them.
"""

from __future__ import annotations

import json

from kernel import sanitize

MAX_DIGITS = 300  # of a number; one with more stays a text


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")


def whole_number(digits: str) -> int | str:
    return int(digits) if len(digits) <= MAX_DIGITS else digits


DECODER = json.JSONDecoder(parse_int=whole_number)  # NaN and Infinity are numbers


def read_json(data: bytes | str):
    """Return the JSON value. Raises ValueError only."""
    sanitize.check_count(data)
    text = decoded(data) if isinstance(data, bytes) else data
    try:
        return DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def text_of(value: object) -> str:
    """Return a value as text: a text as it is, nothing for null, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return "…"  # nested too deeply


def listed(owner: dict, *names: str) -> list:
    """Return what is there by any of the names, as one list; an object or another value counts as a list of it."""
    values = [value for name in names if (value := owner.get(name)) is not None]
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def beside(owner: dict, *names: str) -> list:
    """Return the objects under all other names: they may hold records, which are counted as such that are not read."""
    others = [name for name in owner if name not in names]
    return [item for item in listed(owner, *others) if isinstance(item, dict | list) and item]
