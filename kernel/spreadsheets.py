"""CSV that spreadsheet programs open: written line by line, without texts that they would run as formulas."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # the beginnings of what a spreadsheet program evaluates


class _Echo:
    """A file whose `write` returns the text, which csv's `writerow` passes on."""

    def write(self, text: str) -> str:
        return text


def lines(rows: Iterable[Iterable]) -> Iterator[str]:
    """Yield each row as a line of CSV."""
    writer = csv.writer(_Echo())
    for row in rows:
        yield writer.writerow([_cell(value) for value in row])


def _cell(value) -> str:
    """Return the value as text; a text that would be a formula gets an apostrophe in front."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    return f"'{value}" if value.startswith(FORMULA) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
