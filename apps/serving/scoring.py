"""The bodies of MLflow's scoring protocol, POST /invocations; called by server.py.

JSON with exactly one of `dataframe_split`, `dataframe_records`, `instances` and `inputs`, or CSV with a heading. The
answer is {"predictions": …}: of the model's first output, which for a model with several is an object of all of them.
"""

from __future__ import annotations

import csv
import io

import numpy as np
import orjson
from bodies import as_tensor
from protocol import BadRequest, parsed

VERSION = "3.17.2"  # the release of MLflow whose protocol it is
FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
ANY = {"name": "input", "datatype": "FP64", "shape": [-1]}


def read(body: bytes, content_type: str, inputs: list[dict], frames: bool = False) -> list[dict]:
    """Return the tensors of a request; `inputs` are those that the model declares. Raises BadRequest.

    A missing text of a table is None for a model that takes data frames (`frames`), else empty.
    """
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == "text/csv":
            return _table(_csv(body, frames), inputs, frames)
        if kind not in ("", "application/json", "application/x-www-form-urlencoded"):
            raise BadRequest(f"Content-Type: must be application/json or text/csv, not {kind}")
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
            return _table(_split(data), inputs, frames)
        if forms[0] == "dataframe_records":
            return _table(_records(data, forms[0]), inputs, frames)
        return _tensors(data, inputs, frames, rows=forms[0] == "instances")
    except orjson.JSONDecodeError as problem:
        raise BadRequest(f"body: not JSON ({problem})")
    except (ValueError, TypeError, OverflowError, KeyError) as problem:
        raise BadRequest(f"body: does not fit the model: {problem}")


def predictions(outputs: list[tuple[str, list]]):
    """Return what a scoring server answers: the values of the first output, which is the prediction."""
    names = [name for name, _values in outputs]
    if len(outputs) == 1 or "predict" in names:
        return outputs[0][1]
    return dict(outputs)


def _csv(body: bytes, frames: bool) -> tuple[list[str], list[list]]:
    rows = [row for row in csv.reader(io.StringIO(body.decode("utf-8-sig"))) if row]
    if len(rows) < 2:
        raise BadRequest("body: the CSV needs a heading and a row")
    if any(len(row) != len(rows[0]) for row in rows):
        raise BadRequest("body: the rows of the CSV are of different lengths")
    values = [[value or None for value in row] for row in rows[1:]] if frames else rows[1:]
    return [word.strip() for word in rows[0]], values


def _split(data) -> tuple[list[str], list[list]]:
    if not isinstance(data, dict) or not isinstance(data.get("data"), list):
        raise BadRequest("dataframe_split: must be an object with columns and data")
    rows = data["data"]
    columns = data.get("columns")
    if columns is None:
        columns = [str(number) for number in range(len(rows[0]))] if rows else []
    if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        raise BadRequest("dataframe_split: each row of data must have a value for each column")
    return [str(column) for column in columns], rows


def _records(data, form: str) -> tuple[list[str], list[list]]:
    if not isinstance(data, list) or not data or not all(isinstance(row, dict) for row in data):
        raise BadRequest(f"{form}: must be a list of objects")
    columns = list(data[0])
    for number, row in enumerate(data):
        if set(row) != set(columns):
            raise BadRequest(f"{form}: row {number} has other columns than the first")
    return columns, [[row[column] for column in columns] for row in data]


def _table(table: tuple[list[str], list[list]], inputs: list[dict], frames: bool) -> list[dict]:
    """Return a table as tensors: a column for each input, or all of them for a model of one input."""
    columns, rows = table
    if not rows:
        raise BadRequest("body: the table has no rows")
    if len(inputs) <= 1 and not (inputs and [inputs[0]["name"]] == columns and len(inputs[0]["shape"]) == 1):
        one = inputs[0] if inputs else ANY
        flat = one["shape"] == [-1] and len(columns) == 1
        return [as_tensor(one, [row[0] for row in rows] if flat else rows)]
    missing = [one["name"] for one in inputs if one["name"] not in columns]
    if missing:
        raise BadRequest(f"body: the column {missing[0]} is missing; the model has {_names(inputs)}")
    return [_column(one, [row[columns.index(one["name"])] for row in rows], frames) for one in inputs]


def _column(one: dict, values: list, frames: bool) -> dict:
    """Return a column as a tensor. A missing number is NaN."""
    if one["datatype"] != "BYTES":
        return as_tensor(one, values)
    words = ["" if value is None else value if isinstance(value, str) else str(value) for value in values]
    found = as_tensor(one, words)
    if frames:
        found["data"][[value is None for value in values]] = None
    return found


def _tensors(data, inputs: list[dict], frames: bool, rows: bool) -> list[dict]:
    """Return tensors by name, a tensor alone, or `instances`: a list of rows of either."""
    if rows and isinstance(data, list) and data and isinstance(data[0], dict):
        names, table = _records(data, "instances")
        data = {name: [row[at] for row in table] for at, name in enumerate(names)}
    if not isinstance(data, dict):
        if len(inputs) > 1 and all(len(one["shape"]) == 1 for one in inputs):
            return _table(([one["name"] for one in inputs], np.asarray(data, np.object_).tolist()), inputs, frames)
        return [as_tensor(inputs[0] if inputs else ANY, data)]
    declared = {one["name"]: one for one in inputs}
    if len(inputs) > 1 and set(data) != set(declared):
        raise BadRequest(f"inputs: the model takes {_names(inputs)}; given were {', '.join(map(str, data))}")
    return [as_tensor(declared.get(name, {**ANY, "name": name}), value) for name, value in data.items()]


def _names(inputs: list[dict]) -> str:
    return ", ".join(one["name"] for one in inputs)
