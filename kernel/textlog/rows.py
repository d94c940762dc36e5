"""The lines of a log for display: text, styles, search hits, timestamp. Of a very long line only a part is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from kernel import ansi

from .index import PIECE, Index
from .search import Wanted
from .times import Times

SHOWN = 4 << 10  # bytes of a line


@dataclass(frozen=True)
class Raw:
    """A line from `offset` to `end`, without its line end. `data` is set if it was read completely."""

    number: int
    offset: int
    end: int
    data: bytes | None
    style: int


def rows(index: Index, first: int, count: int, times: Times, wanted: Wanted | None = None) -> list[dict]:
    """Return `count` lines from `first` (from 0) on, as the REST interface describes them."""
    shown = []
    for raw in _raw(index, first):
        if len(shown) == count:
            break
        data, cut = _shown(index, raw)
        text = data.decode("utf-8", "replace")
        text, styles, _style = ansi.draw(text.rstrip("\ufffd") if cut else text, raw.style)
        row = {"line": raw.number + 1, "offset": raw.offset, "at": None, "text": text}
        more = {"styles": styles, "hits": wanted.spans(text) if wanted else [], "cut": cut}
        shown.append(row | {name: value for name, value in more.items() if value})
    times.put(shown)
    return shown


def _shown(index: Index, raw: Raw) -> tuple[bytes, int]:
    """Return the bytes of a line that are shown, and how many are omitted.

    Of a long line it is the beginning, or the last part for lines that are redrawn repeatedly, such as progress bars.
    """
    size = raw.end - raw.offset
    if size <= SHOWN and raw.data is not None:
        return raw.data, 0
    last = os.pread(index.file, min(SHOWN, size), raw.end - min(SHOWN, size)).rstrip(b"\r")
    if b"\r" in last:
        return last[last.rindex(b"\r") + 1 :], 0
    return os.pread(index.file, min(SHOWN, size), raw.offset), max(0, size - SHOWN)


def _raw(index: Index, first: int) -> Iterator[Raw]:
    """Yield the lines from that one on."""
    for block in index.blocks(first):
        size = block.end - block.start
        data = os.pread(index.file, size if size <= 2 * PIECE else PIECE, block.start)
        number, offset, style = block.line, block.start, block.style
        ended = os.pread(index.file, 1, block.end - 1) == b"\n"
        whole = data.split(b"\n")
        if len(data) == size and ended:
            whole.pop()
        skipped = min(max(0, first - number), len(whole))
        if skipped:
            before = sum(map(len, whole[:skipped])) + skipped
            number, offset, style = number + skipped, offset + before, ansi.after(data[:before], style)
        for piece in whole[skipped:]:
            partial = offset + len(piece) == block.start + len(data) < block.end
            yield Raw(
                number, offset, block.end - ended if partial else offset + len(piece), None if partial else piece, style
            )
            number, offset, style = number + 1, offset + len(piece) + 1, ansi.after(piece, style)
