"""Bodies of many log lines in JSON, read one line at a time, so that their size is not that of the memory they take.

Each line is (its number from 1, its value); the value of one that cannot be read alone is a Refused.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from itertools import chain, islice

from kernel import sanitize
from kernel.errors import Refused

Line = tuple[int, object]
KEPT = 10_000  # elements that are kept while the rest of an array is checked
BLOCK = 1 << 20  # characters that are decoded at a time
MOST_ELEMENT = 4 << 20  # characters of one element
SPACE = re.compile(r"[ \t\r\n]*")
DECODER = json.JSONDecoder(parse_constant=sanitize.no_constant)


def lines(data: bytes) -> Iterator[Line]:
    """Yield the value of each line that is not empty."""
    for number, text in enumerate(io.BytesIO(data), start=1):
        if text.strip():
            try:
                yield number, sanitize.read_json(text)
            except ValueError:
                yield number, Refused("is not valid JSON", field="line")


def elements(data: bytes) -> Iterator[Line]:
    """Return the elements of an array, or the one value of another body. The whole body is checked before the first
    one is returned. Raises Refused.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise _invalid()
    begin = SPACE.match(text).end()
    if not text.startswith("[", begin):
        return iter([(1, _whole(text))])
    found = _array(text, begin + 1)
    kept = list(islice(found, KEPT))
    if next(found, None) is None:
        return enumerate(kept, start=1)
    for _one in found:
        pass
    del kept
    return enumerate(_array(text, begin + 1), start=1)


def _whole(text: str) -> object:
    try:
        return sanitize.read_json(text)
    except ValueError:
        raise _invalid()


def _array(text: str, at: int) -> Iterator[object]:
    """Yield the elements of the array that begins before that place. Raises Refused where it is none."""
    at = SPACE.match(text, at).end()
    first = True
    while first or not text.startswith("]", at):
        if first and text.startswith("]", at):
            break
        if not first:
            if not text.startswith(",", at):
                raise _invalid()
            at = SPACE.match(text, at + 1).end()
        value, at = _element(text, at)
        yield value
        first = False
        at = SPACE.match(text, at).end()
    if SPACE.match(text, at + 1).end() != len(text):
        raise _invalid()


def _element(text: str, at: int) -> tuple[object, int]:
    """Return the element at that place and the place after it; of a very large body only a block is looked at."""
    for size in chain(range(BLOCK, MOST_ELEMENT, BLOCK), [MOST_ELEMENT]):
        part = text if len(text) <= MOST_ELEMENT else text[at : at + size]
        begin = at if part is text else 0
        try:
            value, end = DECODER.raw_decode(part, begin)
        except RecursionError:
            raise _invalid()
        except ValueError:
            if part is text or at + size >= len(text):
                raise _invalid()
            continue
        if part is not text and end == len(part) and at + size < len(text):
            continue  # a number may go on
        return value, end if part is text else at + end
    raise Refused("an element has more than %(limit)s characters", field="body", limit=MOST_ELEMENT)


def _invalid() -> Refused:
    return Refused("not valid JSON", field="body")
