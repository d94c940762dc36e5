"""One media item at one step, as the template `tracking/media/_item.html` shows it.

The files are untrusted: their type is detected from the content, each is read only up to a limit, and images and audio
are not decoded here.
"""

from __future__ import annotations

import math
import os
from itertools import pairwise
from typing import BinaryIO

from jobs.models import Job
from kernel import picture, sanitize, storage

from .charts import ridges, steps_of_bars
from .index import Item, path_of

READ_LIMIT = 8 << 20  # bytes of a table
MAX_SHOWN = 24  # pictures or sounds of one step
ROWS, COLUMNS, CELL = 100, 50, 500  # of a table on one page
CLASSES = 40  # of a confusion matrix
SHADES = 9
RIDGES = 24  # histograms of other steps, drawn behind
TEXT = 256 << 10


def at_step(job: Job, kind: str, steps: dict[int, list[Item]], step: int, sort: str = "", page: int = 1) -> dict:
    """Return the template's context. `sort` is a column's number, after a minus for descending order."""
    items = steps[step]
    context = {"kind": kind, "step": step, "item": items[-1]}
    if kind in ("image", "audio"):
        files = [_file(job, item) for item in items[:MAX_SHOWN]]
        return {**context, "files": files, "more": len(items) - len(files)}
    if kind == "text":
        data = _content(job, items[-1], TEXT)
        return {**context, "missing": data is None, "text": sanitize.text((data or b"").decode(errors="replace"))}
    value = read_value(job, items[-1])
    shown = {"table": lambda: _table(value, sort, page), "matrix": lambda: _matrix(value)}.get(kind)
    drawn = _histogram(job, steps, step, value) if shown is None else shown()
    return {**context, **(drawn or {"missing": True})}


def open_item(job: Job, file: str) -> BinaryIO | None:
    """Open a file of the run's media without following links; None if it does not exist."""
    return storage.open_file(storage.job_dir(job.user.username, job.name), path_of(file))


def read_value(job: Job, item: Item):
    """Return the JSON value of the item's file; None if it is invalid."""
    data = _content(job, item, READ_LIMIT)
    try:
        return None if data is None else sanitize.read_strict(data)
    except ValueError:
        return None


def kind_of(file: BinaryIO) -> str:
    """Return the media type of an image or audio file that may be sent to a browser; "" for any other file."""
    if picture.image_kind(file):
        return picture.image_kind(file) if picture.image_size(file) and picture.is_showable(file) else ""
    return picture.sound_kind(file)


def _content(job: Job, item: Item, limit: int) -> bytes | None:
    file = open_item(job, item.file)
    if file is None:
        return None
    with file:
        return file.read(limit) if os.fstat(file.fileno()).st_size <= limit else None


def _file(job: Job, item: Item) -> dict:
    """Return the properties of an image or audio file."""
    file = open_item(job, item.file)
    if file is None:
        return {"item": item, "missing": True}
    with file:
        size = picture.image_size(file)
        shown = kind_of(file).startswith(item.kind)
        bytes_ = os.fstat(file.fileno()).st_size
    return {"item": item, "shown": shown, "width": size and size[0], "height": size and size[1], "size": bytes_}


# --- tables ---------------------------------------------------------------------------------------------------------
def _table(value, sort: str, page: int) -> dict | None:
    """Return one page of a table, sorted by the requested column."""
    if not isinstance(value, dict):
        return None
    head, rows = value.get("columns"), value.get("rows")
    if not isinstance(head, list) or not head or not isinstance(rows, list):
        return None
    rows = [row for row in rows if isinstance(row, list) and len(row) == len(head)]
    down, column = sort.startswith("-"), sort.removeprefix("-")
    if column.isascii() and column.isdigit() and int(column[:6]) < len(head):
        rows.sort(key=lambda row: _order(row[int(column[:6])]), reverse=down)
    else:
        column = ""
    page = min(max(1, page), max(1, -(-len(rows) // ROWS)))
    names = [
        {
            "name": _cell(name),
            "sort": f"-{at}" if column == str(at) and not down else str(at),
            "number": bool(rows) and type(rows[0][at]) in (int, float),
            "order": ("descending" if down else "ascending") if column == str(at) else "",
        }
        for at, name in enumerate(head[:COLUMNS])
    ]
    first = (page - 1) * ROWS
    cells = [[_typed(cell) for cell in row[:COLUMNS]] for row in rows[first : first + ROWS]]
    return {
        "head": names, "rows": cells, "count": len(rows), "first": first + 1, "last": first + len(cells), "page": page,
        "before": page - 1, "after": page + 1 if first + ROWS < len(rows) else 0, "hidden": max(0, len(head) - COLUMNS),
        "sort": sort if column else "",
    }  # fmt: skip


def _order(cell) -> tuple:
    """Return the sort key: numbers, then texts, then missing values."""
    if isinstance(cell, int | float):
        return 0, cell, ""
    return (2, 0, "") if cell is None else (1, 0, str(cell))


def _typed(cell) -> dict:
    return {"text": _cell(cell), "number": type(cell) in (int, float)}


def _cell(value) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return sanitize.text(str(value))[:CELL]


# --- confusion matrices ---------------------------------------------------------------------------------------------
def _matrix(value) -> dict | None:
    """Return the cells with their counts, their percentage of the true class, and their shade."""
    if not isinstance(value, dict):
        return None
    labels, matrix = value.get("labels"), value.get("matrix")
    if not isinstance(labels, list) or not isinstance(matrix, list) or not 1 <= len(labels) <= 1000:
        return None
    if len(matrix) != len(labels) or not all(is_counts(row, len(labels)) for row in matrix):
        return None
    names = [_cell(label) for label in labels[:CLASSES]]
    right, all_of_them = sum(row[at] for at, row in enumerate(matrix)), sum(map(sum, matrix))
    rows = []
    for at, row in enumerate(matrix[:CLASSES]):
        whole = sum(row)
        cells = [_share(count, whole, hit=column == at) for column, count in enumerate(row[:CLASSES])]
        rows.append({"name": names[at], "cells": cells, "count": _cell(whole)})
    accuracy = 100 * right / all_of_them if all_of_them else None
    return {"labels": names, "rows": rows, "accuracy": accuracy, "hidden": max(0, len(labels) - CLASSES)}


def _share(count: float, whole: float, hit: bool) -> dict:
    share = count / whole if whole else 0
    return {"count": f"{count:g}", "percent": round(100 * share), "shade": math.ceil(share * SHADES), "hit": hit}


def is_counts(row, length: int) -> bool:
    """Return whether the value is a list of `length` finite numbers that are not negative."""
    if not isinstance(row, list) or len(row) != length:
        return False
    return all(type(count) in (int, float) and 0 <= count < 1e15 for count in row)


# --- histograms -----------------------------------------------------------------------------------------------------
def _histogram(job: Job, steps: dict[int, list[Item]], step: int, value) -> dict | None:
    """Return the bars of this step's histogram, and the outlines of up to RIDGES steps behind one another."""
    if not is_histogram(value):
        return None
    chosen = list(steps)[:: max(1, -(-len(steps) // RIDGES))]
    pairs = [(at, value if at == step else read_value(job, steps[at][-1])) for at in sorted({*chosen, step})]
    others = [(at, read) for at, read in pairs if is_histogram(read)]
    left_out = value.get("left_out")
    return {
        "bars": steps_of_bars(value["counts"], value["edges"]),
        "low": f"{value['edges'][0]:.4g}",
        "high": f"{value['edges'][-1]:.4g}",
        "peak": f"{max(value['counts']):.6g}",
        "left_out": left_out if type(left_out) is int and left_out > 0 else 0,
        "ridges": ridges(others, step) if len(others) > 1 else None,
    }


def is_histogram(value) -> bool:
    """Return whether the value is a valid histogram: counts, and one more rising edge."""
    if not isinstance(value, dict) or not isinstance(value.get("counts"), list):
        return False
    counts, edges = value["counts"], value.get("edges")
    if not 1 <= len(counts) <= 1000 or not is_counts(counts, len(counts)):
        return False
    if not isinstance(edges, list) or len(edges) != len(counts) + 1:
        return False
    finite = all(type(edge) in (int, float) and abs(edge) < 1e300 for edge in edges)
    return finite and edges[0] < edges[-1] and all(low <= high for low, high in pairwise(edges))
