"""What comes from outside, made safe to read and to store: JSON bytes, and text such as the last lines of a log.

PostgreSQL takes neither a NUL nor half a surrogate pair in a text, and no number in a JSON value that is not finite;
Python's JSON reader gives all of them, and ends in RecursionError for what is nested too deeply. Used wherever bytes
of a script, a broker or a stranger are read; REST bodies have kernel.rest.
"""

from __future__ import annotations

import json
import math
import re

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
MOST_DEPTH = 50  # of a value that is stored: what reads and writes it again uses its stack too


def text(value: str) -> str:
    """The same text with U+FFFD for each character that cannot be stored or sent."""
    return UNSTORABLE.sub("\ufffd", value)


def read_json(data: bytes | str):
    """As json.loads, but ValueError is all that it raises."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_strict(data: bytes | str):
    """A JSON value with finite numbers only. Raises ValueError, and nothing else."""
    try:
        return json.loads(data, parse_constant=no_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_storable(data: bytes | str):
    """A JSON value that may go into the database as it is. Raises ValueError, and nothing else."""
    found = read_strict(data)
    _check(found, MOST_DEPTH)
    return found


def _check(value, depth: int) -> None:
    if isinstance(value, str):
        if UNSTORABLE.search(value):
            raise ValueError("a text in it has characters that cannot be stored")
    elif isinstance(value, dict | list):
        if not depth:
            raise ValueError("it is nested too deeply")
        for one in value:
            _check(one, depth - 1)
        for one in value.values() if isinstance(value, dict) else ():
            _check(one, depth - 1)


def no_constant(word: str):
    """For `parse_constant` of json: JSON itself knows neither NaN nor Infinity."""
    raise ValueError(f"{word} is not a finite number")


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"{word} is not a finite number")
    return number
