"""The newest lines that match a query, fast for every word.

A frequent word is found among the newest lines at once. For all others the partitions are asked one after the other,
from the newest to the oldest, by the index of their text: none of them is so large that it takes long, and most have
nothing of a rare word. What still takes longer (words that are frequent, but never as the phrase that is searched) ends
after BUDGET_S with what was found, and a cursor from which the search goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.models import Q

from aiops.models import LogLine

from . import partitions
from .conditions import LAST, condition, has_text, is_indexed, known

LATEST = 5000  # lines that are read first, whatever is searched
BUDGET_S = 0.6
ALWAYS = 6  # partitions that are searched whatever that takes
MEMORY = "64MB"  # for the positions of what the index finds: with less, whole pages are read again


def newest(tree, size: int, after=None) -> tuple[list[LogLine], tuple[int, int] | None]:
    """Return up to `size` matching lines, the newest first, and the cursor of what follows."""
    rows = LogLine.objects.filter(condition(tree))
    if after is not None:
        at, pk = after
        rows = rows.filter(Q(time__lt=at) | Q(time=at, pk__lt=pk), time__lte=at)
    if not has_text(tree):
        page, reached = list(rows.order_by("-time", "-pk")[: size + 1]), None
    else:
        asked = known(tree)
        until = asked.until if after is None else min(asked.until, after[0] + 1)
        page, reached = _collect(
            lambda part, left: list(part.order_by("-time", "-pk")[:left]), rows, tree, size + 1, (asked.since, until)
        )
    if len(page) > size:
        return page[:size], (page[size - 1].time, page[size - 1].pk)
    return page, None if reached is None else (reached, 0)


def matches(tree, most: int, since: int = 0, until: int = LAST) -> tuple[list[tuple[int, str]], bool]:
    """Return (time, verdict) of up to `most` matching lines in that time, and whether these are all."""
    rows = LogLine.objects.filter(condition(tree), time__gte=since, time__lt=until)
    asked = known(tree)
    span = max(since, asked.since), min(until, asked.until)

    def some(part, left: int) -> list[tuple[int, str]]:
        return list(part.order_by().values_list("time", "level")[:left])

    if not has_text(tree):
        lines, reached = some(rows, most + 1), None
    else:
        lines, reached = _collect(some, rows, tree, most + 1, span)
    return lines[:most], reached is None and len(lines) <= most


def _collect(take: Callable, rows, tree, wanted: int, span: tuple[int, int]) -> tuple[list, int | None]:
    """Return the lines that `take(rows, number)` gets of each part, at most `wanted`, and the time down to which was
    searched; None: all of it was.
    """
    begun, lines, indexed = time.monotonic(), [], is_indexed(tree)
    with transaction.atomic(), connection.cursor() as cursor:
        for place, (since, until, has_index, edge) in enumerate(_parts(cursor, span)):
            if place > ALWAYS and time.monotonic() - begun > BUDGET_S:
                return lines, until
            with _by_index(cursor, indexed and has_index and not edge):
                lines += take(rows.filter(time__gte=since, time__lt=until), wanted - len(lines))
            if len(lines) >= wanted:
                break
    return lines, None


def _parts(cursor, span: tuple[int, int]) -> Iterator[tuple[int, int, bool, bool]]:
    """Yield the spans of time to search, the newest first: (since, until, the text has an index, are the newest lines).

    The first is that of the LATEST lines; the others are those of the partitions.
    """
    since, until = span
    cursor.execute(
        "SELECT time FROM aiops_log WHERE time >= %s AND time < %s ORDER BY time DESC OFFSET %s LIMIT 1",
        [since, until, LATEST],
    )
    if not (row := cursor.fetchone()):
        yield since, until, False, True
        return
    edge = row[0] + 1
    yield edge, until, False, True
    for partition in partitions.listed():
        low = since if partition.since is None else max(since, partition.since)
        high = edge if partition.until is None else min(edge, partition.until)
        if low < high and partition.bytes:
            yield low, high, partition.indexed, False


@contextmanager
def _by_index(cursor, wanted: bool) -> Iterator[None]:
    """Let the index of the text decide what is read: the planner would often rather read a partition by time, hoping
    for enough lines soon, and read all of it.
    """
    if not wanted:
        yield
        return
    cursor.execute(f"SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off; SET LOCAL work_mem = '{MEMORY}'")
    yield
    cursor.execute("SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = on; RESET work_mem")
