"""CSV that spreadsheet programs open: written line by line, in UTF-8 with the mark by which Excel knows it, and without
texts that they would run as formulas.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

# The beginnings of what a spreadsheet program evaluates, also after blanks.
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
BLANK = ("\t", "\r", "\n")  # these alone change how a cell is read
MARK = "\ufeff"


def lines(rows: Iterable[Iterable]) -> Iterator[str]:
    """Yield each row as a line of CSV, after the byte order mark."""
    yield MARK
    for row in rows:
        yield part([row])


def part(rows: Iterable[Iterable]) -> str:
    """Return some rows of a file of CSV, which begins with `MARK`."""
    text = io.StringIO()
    csv.writer(text).writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value) -> str:
    """Return the value as text; a text that would be a formula gets an apostrophe in front."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    is_formula = value.startswith(BLANK) or value.lstrip().startswith(FORMULA)
    return f"'{value}" if is_formula and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
