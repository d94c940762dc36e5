"""The preview of a user's file on pages: an image by its first bytes, the beginning of a text, the first rows of a
table.

Terminal output keeps its colours.
"""

from __future__ import annotations

import csv
import io
import os
from typing import BinaryIO

from . import ansi
from .picture import image_kind, is_showable

SHOWN_BYTES = 128 << 10
TABLE_ROWS, TABLE_COLUMNS, CELL = 100, 50, 200
DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}
LOGS = (".log", ".out", ".err")


def preview_of(file: BinaryIO, name: str) -> dict:
    """Return what the template `_preview.html` shows: size (bytes), image, table ({head, rows} or None), text (None for
    binary data), and whether it was cut.
    """
    size, kind = os.fstat(file.fileno()).st_size, image_kind(file)
    text = None if kind else _text(file.read(SHOWN_BYTES + 1))
    delimiters = DELIMITERS.get(os.path.splitext(name)[1].lower())
    table = _table(text, delimiters) if text and delimiters else None
    if text and ("\x1b[" in text or name.lower().endswith(LOGS)):
        text = ansi.html(text)
    shown = bool(kind) and is_showable(file)
    return {"size": size, "image": shown, "table": table, "text": text, "cut": size > SHOWN_BYTES}


def _text(data: bytes) -> str | None:
    """Return the text that the bytes begin with, up to the last whole line where there is more;
    None for binary data.
    """
    whole = len(data) <= SHOWN_BYTES
    data = data[:SHOWN_BYTES]
    if b"\0" in data:
        return None
    if not whole and b"\n" in data:
        data = data[: data.rindex(b"\n") + 1]
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        cut_in_a_letter = not whole and problem.start >= len(data) - 3
        return data[: problem.start].decode("utf-8-sig") if cut_in_a_letter else None


def _table(text: str, delimiters: str) -> dict | None:
    """Return the first rows; None for a text without columns."""
    first = text.partition("\n")[0]
    delimiter = max(delimiters, key=first.count)
    rows = []
    try:
        for row in csv.reader(io.StringIO(text), delimiter=delimiter):
            rows.append([cell[:CELL] for cell in row[:TABLE_COLUMNS]])
            if len(rows) > TABLE_ROWS:
                break
    except csv.Error:
        return None
    return {"head": rows[0], "rows": rows[1:]} if len(rows) > 1 and rows[0] else None
