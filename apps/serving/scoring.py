"""The bodies of MLflow's scoring protocol, POST /invocations; called by server.py.

JSON with exactly one of `dataframe_split`, `dataframe_records`, `instances` and `inputs`, or CSV with a heading. The
answer is {"predictions": …}: of the model's first output, which for a model with several is an object of all of them.

Unlike MLflow's server, which casts, values have to fit their columns (values.py). A column that the signature does not
require may be missing, in some rows or in all; a missing number is NaN, a missing text None.
"""

from __future__ import annotations

import binascii

import numpy as np
import values
from bodies import csv_rows, media_type, only_once
from protocol import parsed
from values import BadRequest, Unsupported

VERSION = "3.17.2"  # the release of MLflow whose protocol it is
FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
ANY = {"name": "input", "datatype": "FP64", "shape": [-1]}
JSON = ("", "application/json", "application/x-www-form-urlencoded")


class Table:
    """The columns of a table with their rows, as JSON has them, or words of a CSV."""

    def __init__(self, columns: list[str], rows: list[list], words: bool = False):
        self.columns, self.rows, self.words = columns, rows, words


ABSENT = object()  # a column that a record does not have


def read(body: bytes, content_type: str, model) -> list[dict]:
    """Return the tensors of a request to a model (loading.Loaded). Raises BadRequest."""
    kind = media_type(content_type)
    if kind == "text/csv":
        rows = csv_rows(body, model.columns or {spec["name"] for spec in model.inputs})
        if len(rows) < 2:
            raise BadRequest("body: the CSV needs a heading and a row")
        return _table(Table([word.strip() for word in rows[0]], rows[1:], words=True), model)
    if kind not in JSON:
        raise Unsupported(f"Content-Type: must be application/json or text/csv, not {kind}")
    given = parsed(body)
    forms = [form for form in FORMS if isinstance(given, dict) and form in given]
    if len(forms) != 1:
        raise BadRequest(f"body: must have exactly one of {', '.join(FORMS)}")
    if given.get("params"):
        raise BadRequest("params: the models that are served here take none")
    unknown = sorted(set(given) - {*FORMS, "params", "signature_name"})
    if unknown:
        raise BadRequest(f"{unknown[0]}: unknown field")
    data = given[forms[0]]
    if forms[0] == "dataframe_split":
        return _table(_split(data), model)
    if forms[0] == "dataframe_records" or _has_records(data):
        return _table(_records(data, forms[0]), model, named=forms[0] != "dataframe_records" and not model.columns)
    return _tensors(data, model)


def predictions(outputs: list[tuple[str, list]]):
    """Return what a scoring server answers: the values of the first output, which is the prediction."""
    names = [name for name, _values in outputs]
    if len(outputs) == 1 or "predict" in names:
        return outputs[0][1]
    return dict(outputs)


def _has_records(data) -> bool:
    return isinstance(data, list) and bool(data) and isinstance(data[0], dict)


def _split(data) -> Table:
    if not isinstance(data, dict) or not isinstance(data.get("data"), list):
        raise BadRequest("dataframe_split: must be an object with columns and data")
    rows, columns = data["data"], data.get("columns")
    if columns is None:
        columns = list(range(len(rows[0]))) if rows and isinstance(rows[0], list) else []
    if not isinstance(columns, list):
        raise BadRequest("dataframe_split: columns must be a list")
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(columns):
            raise BadRequest(f"dataframe_split: row {number} of data must have a value for each column")
    return Table([str(column) for column in columns], rows)


def _records(data, form: str) -> Table:
    if not isinstance(data, list) or not data or not all(isinstance(row, dict) for row in data):
        raise BadRequest(f"{form}: must be a list of objects")
    columns = list(dict.fromkeys(name for row in data for name in row))
    return Table(columns, [[row.get(column, ABSENT) for column in columns] for row in data])


def _table(table: Table, model, named: bool = False) -> list[dict]:
    """Return a table as tensors: a column for each input, or all of them for a model of one input.

    `named`: the columns are inputs of any shape, also if there is one only.
    """
    inputs, columns = model.inputs, table.columns
    if named and len(inputs) == len(columns) == 1:
        columns = [inputs[0]["name"]]  # a model of one input takes any name for it
    if not table.rows:
        raise BadRequest("body: the table has no rows")
    by_name = model.columns or named or (inputs and [inputs[0]["name"]] == columns and len(inputs[0]["shape"]) == 1)
    if len(inputs) <= 1 and not by_name:
        places = values.order(columns, model.features if inputs else ())
        rows = table.rows if places == sorted(places) else [[row[at] for at in places] for row in table.rows]
        ordered = Table([columns[at] for at in places], rows, table.words)
        return [_whole(ordered, inputs[0] if inputs else ANY)]
    if not inputs:
        inputs = [{**ANY, "name": name} for name in columns]
    only_once(columns, [spec["name"] for spec in inputs])
    series = []
    for spec in inputs:
        if spec["name"] in columns:
            at = columns.index(spec["name"])
            series.append(_column(spec, [row[at] for row in table.rows], model, table.words))
        elif spec["name"] not in model.optional:
            raise BadRequest(f"body: the column {spec['name']} is missing; the model has {_names(inputs)}")
    if not series:
        raise BadRequest(f"body: no column of the model is there; it has {_names(inputs)}")
    return series


def _whole(table: Table, spec: dict) -> dict:
    """Return a table as the only input of a model: rows of numbers."""
    flat = [value for row in table.rows for value in row]
    shape = [len(table.rows)] if spec["shape"] == [-1] and len(table.columns) == 1 else [len(table.rows), -1]
    if table.words:
        shape = [side if side != -1 else len(table.columns) for side in shape]
        return values.tensor(spec, values.from_words(spec["name"], spec["datatype"], flat, shape, table.columns))
    if ABSENT in flat:
        raise BadRequest("body: each record must have the same columns")
    data = flat if len(shape) == 1 else table.rows
    return values.tensor(spec, values.from_json(spec["name"], spec["datatype"], data))


def _column(spec: dict, cells: list, model, words: bool) -> dict:
    """Return a column as a tensor. A missing number is NaN, a missing text None if the model takes data frames."""
    name, kind = spec["name"], spec["datatype"]
    if not words:
        missing = next((number for number, cell in enumerate(cells) if cell is ABSENT), None)
        if missing is not None and name not in model.optional:
            raise BadRequest(f"body: the column {name} is missing in row {missing}")
        cells = [None if cell is ABSENT else cell for cell in cells] if missing is not None else cells
    if kind != "BYTES":
        read = values.from_words(name, kind, cells, [len(cells)]) if words else values.from_json(name, kind, cells)
        return values.tensor(spec, read)
    empty = [cell is None or (words and not cell) for cell in cells] if model.frames else []
    if True in empty:
        cells = ["" if gone else cell for gone, cell in zip(empty, cells, strict=True)]
    if model.columns.get(name) == "datetime" and not set(map(type, cells)) <= {str, type(None)}:
        number = next(number for number, cell in enumerate(cells) if not isinstance(cell, str))
        raise BadRequest(f"{name}[{number}]: a column of type datetime takes text such as 2026-01-31T12:00:00")
    if model.columns.get(name) == "binary":
        cells = [_binary(name, number, cell) for number, cell in enumerate(cells)]
    array = values.from_json(name, kind, cells)
    if True in empty:
        array[np.array(empty)] = None
    return values.tensor(spec, array)


def _binary(name: str, number: int, cell):
    """Return the bytes of a cell of a binary column, which MLflow sends in base64."""
    try:
        return binascii.a2b_base64(cell.replace("\n", ""), strict_mode=True) if isinstance(cell, str) else cell
    except ValueError as problem:
        raise BadRequest(f"{name}[{number}]: a column of type binary takes base64 ({problem})")


def _tensors(data, model) -> list[dict]:
    """Return tensors by name, or a tensor alone, of `inputs`, or rows of `instances`."""
    inputs = model.inputs
    if not isinstance(data, dict):
        if model.columns or (len(inputs) > 1 and all(len(spec["shape"]) == 1 for spec in inputs)):
            return _table(Table([spec["name"] for spec in inputs], _rows(data, inputs)), model)
        only = inputs[0] if inputs else ANY
        return [values.tensor(only, values.from_json(only["name"], only["datatype"], data))]
    if model.columns:
        return _table(_by_column(data, inputs), model)
    declared = {spec["name"]: spec for spec in inputs}
    if len(inputs) > 1 and set(data) != set(declared):
        raise BadRequest(f"inputs: the model takes {_names(inputs)}; given were {', '.join(map(str, data))}")
    chosen = [(declared.get(name, {**ANY, "name": name}), value) for name, value in data.items()]
    return [values.tensor(spec, values.from_json(spec["name"], spec["datatype"], value)) for spec, value in chosen]


def _rows(data, inputs: list[dict]) -> list[list]:
    rows = data if isinstance(data, list) else [data]
    rows = [[row] if len(inputs) == 1 and not isinstance(row, list) else row for row in rows]
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(inputs):
            raise BadRequest(f"body: row {number} must have a value for each of {_names(inputs)}")
    return rows


def _by_column(data: dict, inputs: list[dict]) -> Table:
    """Return an object of columns as a table; one of values is a row."""
    if not any(isinstance(cells, list) for cells in data.values()):
        return Table(list(data), [list(data.values())])
    wrong = next((name for name, cells in data.items() if not isinstance(cells, list)), None)
    if wrong is not None or len(set(map(len, data.values()))) != 1:
        raise BadRequest(f"inputs: the columns must be lists of the same length; the model has {_names(inputs)}")
    return Table(list(data), [list(row) for row in zip(*data.values(), strict=True)])


def _names(inputs: list[dict]) -> str:
    return ", ".join(spec["name"] for spec in inputs)
