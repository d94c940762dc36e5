"""The spans of a trace as a waterfall: a row for each, below its parent, with a bar from its begin to its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from jobs.models import Span

WIDTH = 1000.0  # units of the whole time
LEAST = 4.0  # of a bar, so that it can be seen
MAX_DEPTH = 12  # to which rows are indented


@dataclass(frozen=True)
class Row:
    """A span with its place. `x` and `width` are in units of WIDTH; `is_orphan`: its parent is not there (yet)."""

    span: Span
    depth: int
    x: float
    width: float
    is_orphan: bool

    @property
    def indent(self) -> int:
        return min(self.depth, MAX_DEPTH)

    @property
    def seconds(self) -> float | None:
        return None if self.span.ended_ns is None else (self.span.ended_ns - self.span.started_ns) / 1e9


def rows(spans: Iterable[Span]) -> list[Row]:
    """Return the rows in the order of a tree, children by their begin. A span whose parent is missing, or that is
    within itself, stands at the top.
    """
    spans = list(spans)
    if not spans:
        return []
    keys = {span.key for span in spans}
    children: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        children[span.parent if span.parent in keys else ""].append(span)
    begin = min((span.started_ns for span in spans if span.started_ns), default=0)
    end = max(max(span.ended_ns or span.started_ns, span.started_ns) for span in spans)
    scale = WIDTH / max(end - begin, 1)
    made: list[Row] = []
    seen: set[str] = set()

    def add(top: list[Span]) -> None:
        waiting = [(span, 0) for span in reversed(top)]
        while waiting:
            span, depth = waiting.pop()
            if span.key in seen:
                continue
            seen.add(span.key)
            started = max(span.started_ns, begin)  # 0 in a span that has no time
            left = min((started - begin) * scale, WIDTH - LEAST)
            last = end if span.ended_ns is None else span.ended_ns
            width = min(max((last - started) * scale, LEAST), WIDTH - left)
            orphan = bool(span.parent) and span.parent not in keys
            made.append(Row(span, depth, round(left, 2), round(width, 2), orphan))
            waiting += [(child, depth + 1) for child in reversed(children[span.key])]

    add(children[""])
    add([span for span in spans if span.key not in seen])  # of a circle, each of which has a parent
    return made
