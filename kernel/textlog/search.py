"""Searches a log for text, a regular expression in linear time (RE2), or lines that look like errors.

The text is searched as it is shown: without colours, each line as last drawn. A call reads for a bounded time and
returns the line to continue from.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator

import re2

from kernel import ansi
from kernel.errors import Refused

from .index import Index

MAX_Q = 1000  # characters
MAX_BYTES = 1 << 20  # of a block: of a line that is longer only the beginning is searched
MAX_SPANS = 100  # marked in one line
MEMORY = 1 << 20  # of a compiled expression and its states
ERRORS = (
    r"\b(?:ERROR|FATAL|CRITICAL|PANIC)\b|Traceback \(most recent call last\)|\b[A-Z]\w*(?:Error|Exception)\b"
    r"|(?i:\b(?:error|fatal|panic):\s*[^\s\d]|segmentation fault|out of memory|core dumped)"
)


class Wanted:
    """A search. Raises Refused for an invalid one."""

    def __init__(self, q: str = "", *, regex: bool = False, case: bool = False, errors: bool = False):
        if not errors and not 1 <= len(q) <= MAX_Q:
            raise Refused("must have %(low)s to %(high)s characters", field="q", low=1, high=MAX_Q)
        if errors:
            q, regex, case = ERRORS, True, True
        try:
            self.pattern = _compiled(q.encode(), regex, case)
        except UnicodeEncodeError:
            raise Refused("must be valid text", field="q") from None
        except re2.error as problem:
            raise Refused("invalid regular expression: %(problem)s", field="q", problem=_words(problem)) from None
        literal = q.encode() if case and not regex else b""
        self.find = functools.partial(_find, literal) if literal else self._match

    def _match(self, text: bytes, at: int) -> tuple[int, int]:
        match = self.pattern.search(text, at)
        return match.span() if match else (-1, -1)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the matches in a line, in characters."""
        places = []
        for match in self.pattern.finditer(text):
            if match.end() > match.start():
                places.append(match.span())
                if len(places) == MAX_SPANS:
                    break
        return places


def _find(literal: bytes, text: bytes, at: int) -> tuple[int, int]:
    start = text.find(literal, at)
    return start, start + len(literal)


@functools.lru_cache(64)
def _compiled(q: bytes, regex: bool, case: bool):
    options = re2.Options()
    options.never_nl, options.log_errors, options.max_mem = True, False, MEMORY
    options.case_sensitive, options.literal = case, not regex
    return re2.compile(b"(?m:" + q + b")" if regex else q, options)


def _words(problem: Exception) -> str:
    """Return the error message of RE2 as text, without the expression as we have given it to RE2."""
    words = problem.args[0] if problem.args else ""
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)
    return text.partition(": (?")[0]


def search(index: Index, wanted: Wanted, first: int, limit: int, seconds: float) -> tuple[list[int], int | None]:
    """Return the numbers (from 0) of at most `limit` matching lines from `first` on, and the line to continue from.

    That line is None when the log was searched to its end.
    """
    until = time.monotonic() + seconds
    hits: list[int] = []
    begun = False
    for block in index.blocks(first):
        if begun and time.monotonic() > until:
            return hits, block.line
        begun = True
        data = os.pread(index.file, min(block.end - block.start, MAX_BYTES), block.start)
        for number in _lines(ansi.plain(data), block.line, first, wanted.find):
            if len(hits) == limit:
                return hits, number
            hits.append(number)
    return hits, None


def _lines(text: bytes, number: int, first: int, find: Callable[[bytes, int], tuple[int, int]]) -> Iterator[int]:
    """Yield the numbers of the lines of `text` that match, from `first` on; its first line has `number`."""
    at = 0
    while number < first and (end := text.find(b"\n", at)) >= 0:
        at, number = end + 1, number + 1
    end = len(text) - text.endswith(b"\n")
    while at < len(text):
        start, stop = find(text, at)
        if start < 0 or start > end:
            return
        number += text.count(b"\n", at, start)
        yield number
        line_end = text.find(b"\n", stop)
        if line_end < 0:
            return
        at, number = line_end + 1, number + 1
