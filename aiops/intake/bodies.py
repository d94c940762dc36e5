"""Bodies of many log lines in JSON, read one line at a time, so that their size is not that of the memory they take.

Each line is (its number from 1, its value); the value of one that cannot be read alone is a Refused.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from itertools import islice

from kernel import lenient
from kernel.errors import Refused
from kernel.otlp import coding

Line = tuple[int, object]
KEPT = 10_000  # elements that are kept while the rest of an array is checked
MAX_BAD = 10_000  # elements that are not valid JSON
BLOCK = 16 << 10  # characters that are decoded at first; if the element has more, eight times as many
MAX_ELEMENT = 4 << 20  # characters of one element that are decoded before its end is known
SPACE = re.compile(r"[ \t\r\n]*")
MARK = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
CODING = "Content-Encoding"
NEAR = 16  # characters before the end of a block at which a value may have been cut


def unpacked(data: bytes, header: str) -> bytes:
    """Return the body without its Content-Encoding. Raises Refused."""
    try:
        return coding.unpacked(data, header)
    except coding.UnknownCoding as problem:
        raise Refused(
            "%(coding)s is unknown; use one of %(known)s",
            field=CODING,
            coding=str(problem),
            known=coding.ACCEPTED,
        ) from None
    except coding.TooLarge:
        limit = coding.MAX_BYTES >> 20
        raise Refused("has more than %(limit)s MiB unpacked", field="body", limit=limit) from None
    except ValueError:
        raise Refused("is not what Content-Encoding says", field="body") from None


def lines(data: bytes) -> Iterator[Line]:
    """Yield the value of each line that is not empty."""
    for number, text in enumerate(io.BytesIO(data), start=1):
        if text.strip():
            try:
                yield number, lenient.read_json(text)
            except ValueError:
                yield number, _bad_line()


def elements(data: bytes) -> Iterator[Line]:
    """Return the elements of an array, or the values of another body, one after the other. The form of the whole body
    is checked before the first one is returned. Raises Refused.
    """
    text = lenient.decoded(data)
    begin = SPACE.match(text).end()
    read, at = (_array, begin + 1) if text.startswith("[", begin) else (_stream, begin)
    bounded = _bounded(read(text, at))
    kept = list(islice(bounded, KEPT))
    if next(bounded, None) is None:
        return enumerate(kept, start=1)
    for _one in bounded:
        pass
    del kept
    return enumerate(read(text, at), start=1)


def _bounded(values: Iterator[object]) -> Iterator[object]:
    """Yield the values. Raises Refused where more than MAX_BAD are not valid: finding their ends takes time."""
    bad = 0
    for value in values:
        bad += isinstance(value, Refused)
        if bad > MAX_BAD:
            raise _invalid()
        yield value


def _stream(text: str, at: int) -> Iterator[object]:
    """Yield the values of a body without an array. Raises Refused where there is none."""
    first = True
    while first or at < len(text):
        value, at = _element(text, at)
        yield value
        first = False
        at = SPACE.match(text, at).end()


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
    """Return the element at that place and the place after it; of a large body only a block is looked at."""
    size = BLOCK if len(text) > MAX_ELEMENT else len(text)
    while True:
        part, begin = (text, at) if size >= len(text) else (text[at : at + size], 0)
        is_rest = part is text or at + size >= len(text)
        try:
            value, end = lenient.DECODER.raw_decode(part, begin)
        except RecursionError:
            break
        except json.JSONDecodeError as problem:
            was_cut = "Unterminated" in problem.msg or problem.pos >= len(part) - NEAR
            if is_rest or size >= MAX_ELEMENT or not was_cut:
                break
        else:
            if is_rest or end < len(part):  # otherwise a number may go on
                return value, end if part is text else at + end
        if size >= MAX_ELEMENT:
            break
        size = min(size * 8, MAX_ELEMENT)
    return _apart(text, at)


def _apart(text: str, at: int) -> tuple[object, int]:
    """Return an element that is not valid, or is very large, and the place after it: the others are read. Raises
    Refused where no end can be found.
    """
    end = _end(text, at)
    if end is None:
        raise _invalid()
    try:
        return lenient.read_json(text[at:end]), end
    except ValueError:
        return _bad_line(), end


def _end(text: str, at: int) -> int | None:
    """Return the place after the object or array at that place, by its brackets."""
    depth = 0
    if not text.startswith(("{", "["), at):
        return None
    for mark in MARK.finditer(text, at):
        if mark[0] in ("{", "["):
            depth += 1
        elif mark[0] in ("}", "]"):
            depth -= 1
            if depth == 0:
                return mark.end()
    return None


def _bad_line() -> Refused:
    return Refused("is not valid JSON", field="line")


def _invalid() -> Refused:
    return Refused("not valid JSON", field="body")
