"""The features of requests and answers: JSON and CSV bodies as rows of plain values.

Known are the forms that applications take and give: named values and lists, lists of rows, the Open Inference Protocol
(`inputs`, `outputs`), MLflow (`dataframe_split`, `dataframe_records`, `instances`, `predictions`), chats, CSV. Whatever
a body has, a row has at most MAX_FEATURES values, and a body MAX_ROWS rows; those that are compared are fewer
(reading.Chosen).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator

from kernel import sanitize

MAX_FEATURES, MAX_ROWS, MAX_DEPTH = 1000, 200, 6
MAX_NAME, MAX_TEXT, MAX_TEXTS = 100, 2000, 20_000  # characters; of all texts of a row
MAX_CLASSES = 1000  # probabilities of one answer
OFF_BY = 1e-3  # of the sum of probabilities
WRAPPED = ("instances", "inputs", "outputs", "predictions", "dataframe_records")

Value = bool | int | float | str | None
Row = dict[str, Value]


def rows_of(body, fixed: frozenset[str] = frozenset()) -> list[Row]:
    """Return the rows of a JSON body; none where it has no values.

    The first axis of tensors counts rows, except for those whose names are `fixed`: one of these is one row.
    """
    if isinstance(body, dict) and isinstance(table := body.get("dataframe_split"), dict):
        names, data = table.get("columns"), table.get("data")
        if isinstance(names, list) and isinstance(data, list):
            return [_row({str(name): each for name, each in zip(names, row, strict=False)})
                    for row in data[:MAX_ROWS] if isinstance(row, list)]  # fmt: skip
        return []
    if isinstance(body, dict):
        for name in WRAPPED:
            if name in body:
                return _wrapped(name, body[name], fixed)
        return _named(body, fixed)
    return _wrapped("value", body, fixed)


def rows_of_csv(text: str, names: list[str] | None = None) -> Iterator[Row]:
    """Yield the rows of a table of text, whose first line has the names unless they are given. Raises csv.Error."""
    return rows_of_table(csv.reader(io.StringIO(text), delimiter=delimiter_of(text.lstrip().partition("\n")[0])), names)


def delimiter_of(line: str) -> str:
    """Return what is between the cells of a table's first line: programs of many countries write semicolons."""
    return max(",;\t", key=line.count)


def rows_of_table(lines: Iterator[list[str]], names: list[str] | None = None) -> Iterator[Row]:
    """Yield the rows of lines of cells. Raises csv.Error, UnicodeDecodeError."""
    for line in lines:
        if not line:
            continue
        if names is None:
            if any(not _is_number(cell) for cell in line):
                names = [cell.lstrip("\ufeff").strip() or str(at) for at, cell in enumerate(line)]
                continue
            names = [str(at) for at in range(len(line))]
        yield _row(dict(zip(names, line, strict=False)))


def _wrapped(name: str, value, fixed: frozenset[str]) -> list[Row]:
    """Return the rows of a list of rows or of tensors, or of what is below one of WRAPPED."""
    if isinstance(value, dict):
        return _named(value, fixed)
    if not isinstance(value, list):
        return [_row({name: value})]
    if value and all(isinstance(each, dict) and "data" in each and "name" in each for each in value[:MAX_FEATURES]):
        return _named({str(each["name"]): _shaped(each) for each in value[:MAX_FEATURES]}, fixed)
    return [_row(each if isinstance(each, dict) else {name: each}) for each in value[:MAX_ROWS]]


def _shaped(tensor: dict):
    """Return the data of a tensor as nested lists: those that come flat have their first axis from the shape."""
    data, shape = tensor["data"], tensor.get("shape")
    if not isinstance(data, list) or not isinstance(shape, list) or len(shape) < 2 or any(map(_is_list, data[:1])):
        return data
    count = shape[0]
    if type(count) is not int or not 0 < count <= len(data):
        return data
    width = len(data) // count
    return [data[at * width : (at + 1) * width] for at in range(min(count, MAX_ROWS))]


def _named(values: dict, fixed: frozenset[str]) -> list[Row]:
    """Return the rows of named values: as many as the lists have entries, where all have as many."""
    lists = {name: each for name, each in values.items() if isinstance(each, list)}
    lengths = {len(each) for each in lists.values()}
    together = lists and len(lists) == len(values) and len(lengths) == 1 and not fixed & lists.keys()
    if not together or any(isinstance(entry, dict) for each in lists.values() for entry in each[:1]):
        return [_row(values)]
    return [_row({name: each[at] for name, each in lists.items()}) for at in range(min(lengths.pop(), MAX_ROWS))]


def _row(values: dict) -> Row:
    """Return nested values as one level of names: a.b of objects, a.0 of lists; of a list of objects its last one."""
    row: Row = {}
    for name, value in values.items():
        if len(row) >= MAX_FEATURES:
            break
        _add(row, sanitize.text(str(name)[:MAX_NAME]), value, 0)
    left = MAX_TEXTS
    for name, each in row.items():
        if isinstance(each, str):
            row[name] = sanitize.text(each[:left])
            left -= len(row[name])
    return row


def _add(row: Row, name: str, value, depth: int) -> None:
    if len(row) >= MAX_FEATURES or depth > MAX_DEPTH or len(name) > MAX_NAME:
        return
    if isinstance(value, dict):
        for key, each in value.items():
            _add(row, f"{name}.{sanitize.text(key)}", each, depth + 1)
    elif isinstance(value, list):
        if value and isinstance(value[-1], dict):  # the messages of a chat, the choices of an answer
            _add(row, name, value[-1], depth + 1)
        elif (best := _most_probable(value)) is not None:
            row[f"{name} (class)"] = best
        elif len(value) == 1:
            _add(row, name, value[0], depth + 1)
        else:
            for at, each in enumerate(value[:MAX_FEATURES]):
                _add(row, f"{name}.{at}", each, depth + 1)
    else:
        row[name] = value[:MAX_TEXT] if isinstance(value, str) else value


def _most_probable(values: list) -> str | None:
    """Return the number of the largest of probabilities that add up to 1; None for other values."""
    if not 2 <= len(values) <= MAX_CLASSES or any(type(each) not in (int, float) for each in values):
        return None
    if not all(0 <= each <= 1 for each in values) or abs(sum(values) - 1) > OFF_BY or all(map(_is_whole, values)):
        return None
    return str(max(range(len(values)), key=values.__getitem__))


def _is_whole(value) -> bool:
    return isinstance(value, int)


def _is_list(value) -> bool:
    return isinstance(value, list)


def _is_number(cell: str) -> bool:
    return number_in(cell) is not None or not cell.strip()


def number_in(value: Value) -> float | None:
    """Return a value as a finite number; None for what is none."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
