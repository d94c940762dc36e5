"""Reads a log for REST and pages: lines, search hits, the start of each run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from . import index as indexing
from .files import LogFile
from .index import Index
from .rows import rows
from .search import Wanted, search
from .times import Times

SEARCH_S = 1.0  # of one call


@contextlib.contextmanager
def opened(log: LogFile) -> Iterator[Index | None]:
    """Yield the up-to-date index of the log; None while there is no log."""
    file = log.open()
    if file is None:
        yield None
        return
    with file:
        yield indexing.index_of(file.fileno(), log.index)


def lines(log: LogFile, first: int | None, limit: int, wanted: Wanted | None = None) -> dict:
    """Return at most `limit` lines from number `first` (from 1) on, by default the last, and the number of lines."""
    with opened(log) as index:
        if index is None:
            return {"total": 0, "size": 0, "rows": []}
        start = max(0, index.total - limit) if first is None else first - 1
        with Times(log.open_times()) as times:
            page = rows(index, start, limit, times, wanted)
        return {"total": index.total, "size": index.size, "rows": page}


def hits(log: LogFile, wanted: Wanted, first: int, limit: int) -> dict:
    """Return the numbers of matching lines, from number `first` on, and the line to continue from."""
    with opened(log) as index:
        if index is None:
            return {"total": 0, "lines": [], "next": None}
        numbers, after = search(index, wanted, first - 1, limit, SEARCH_S)
        return {
            "total": index.total,
            "lines": [number + 1 for number in numbers],
            "next": None if after is None else after + 1,
        }


def runs(log: LogFile) -> list[dict]:
    """Return the runs that wrote the log, if it has marks of them: `number`, the first `line` of each, `at`."""
    with Times(log.open_times()) as times:
        begins = times.begins()
    first = 2 if begins and begins[0][0] else 1  # before that the recorder kept no times
    numbers = line_numbers(log, [offset for offset, _at in begins])
    return [
        {"number": number, "line": line, "at": at}
        for number, line, (_offset, at) in zip(range(first, first + len(begins)), numbers, begins, strict=True)
    ]


def line_numbers(log: LogFile, offsets: Sequence[int]) -> list[int]:
    """Return the numbers (from 1) of the lines that contain these bytes."""
    if not offsets:
        return []
    with opened(log) as index:
        return [index.line_at(min(offset, index.size)) + 1 if index else 1 for offset in offsets]
