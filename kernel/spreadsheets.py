"""CSV that spreadsheet programs open: written line by line, in UTF-8 with the mark by which Excel knows it, and without
texts that they would run as formulas.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

FORMULA = ("=", "+", "-", "@")  # the beginnings of what a spreadsheet program evaluates, also after blanks
BLANK = ("\t", "\r")  # these alone change how a cell is read
MARK = "\ufeff"


class _Echo:
    """A file whose `write` returns the text, which csv's `writerow` passes on."""

    def write(self, text: str) -> str:
        return text


def lines(rows: Iterable[Iterable]) -> Iterator[str]:
    """Yield each row as a line of CSV, after the byte order mark."""
    writer = csv.writer(_Echo())
    yield MARK
    for row in rows:
        yield writer.writerow([_cell(value) for value in row])


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
