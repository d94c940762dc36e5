"""Input from outside made safe to read and to store: JSON bytes, and text such as the last lines of a log.

PostgreSQL accepts neither a NUL nor half a surrogate pair in text, and only finite numbers in JSON; Python's JSON
reader accepts all of them, and raises RecursionError for deep nesting. Used wherever bytes of a script, a broker or a
client are read; REST bodies have kernel.rest.
"""

from __future__ import annotations

import json
import math
import re

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
MAX_VALUES = 500_000  # of a JSON text: a value takes fifty times as many bytes in memory as in the text
MAX_DEPTH = 50  # of a stored value: reading and writing it uses the stack, too


class TooManyValues(ValueError):
    """A JSON text is not read, since its values could fill the memory."""


def text(value: str) -> str:
    """Return the text with U+FFFD for each character that cannot be stored or sent."""
    if value.isascii() and "\x00" not in value:
        return value
    return UNSTORABLE.sub("\ufffd", value)


def check_count(data: bytes | str) -> None:
    """Raise TooManyValues for a JSON text that may hold more than MAX_VALUES: before each is a comma or a bracket."""
    marks = (b",", b"[", b"{") if isinstance(data, bytes) else (",", "[", "{")
    if len(data) > MAX_VALUES and sum(map(data.count, marks)) > MAX_VALUES:
        raise TooManyValues(f"it has more than {MAX_VALUES} values")


def read_json(data: bytes | str):
    """Return the JSON value, like json.loads. Raises ValueError only."""
    check_count(data)
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_strict(data: bytes | str):
    """Return a JSON value with finite numbers only. Raises ValueError only."""
    check_count(data)
    try:
        return json.loads(data, parse_constant=no_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_storable(data: bytes | str):
    """Return a JSON value that can be stored in the database unchanged. Raises ValueError only."""
    value = read_strict(data)
    _check(value, MAX_DEPTH)
    return value


def _check(value, depth: int) -> None:
    if isinstance(value, str):
        if UNSTORABLE.search(value):
            raise ValueError("a text in it has characters that cannot be stored")
    elif isinstance(value, dict | list):
        if not depth:
            raise ValueError("it is nested too deeply")
        for item in value:
            _check(item, depth - 1)
        for item in value.values() if isinstance(value, dict) else ():
            _check(item, depth - 1)


def no_constant(word: str):
    """Refuse NaN and Infinity, which are not JSON: for `parse_constant` of json."""
    raise ValueError(f"{word} is not a finite number")


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"{word} is not a finite number")
    return number
