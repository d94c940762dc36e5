"""The request bodies of POST /predict: plain JSON, a file (CSV, .npy, an image, any for a BYTES input), or a form.

Called by server.py. Bodies are converted to input tensors (protocol.py) by the inputs that the model declares; `TAKES`
describes how, and is shown by /schema.
"""

from __future__ import annotations

import csv
import io
import math

import numpy as np
from protocol import DATATYPES, BadRequest, parsed
from python_multipart import parse_form
from python_multipart.exceptions import FormParserError

FORM, BINARY = "multipart/form-data", "application/octet-stream"
JSON = ("", "application/json", "application/x-www-form-urlencoded")  # the last is the default of curl -d
BY_ENDING = {
    "json": "application/json", "csv": "text/csv", "npy": "application/x-npy", "png": "image/png", "jpg": "image/jpeg",
    "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp",
}  # fmt: skip
TAKES = {
    "application/json": "{name of an input: nested list}, or the nested list alone for a model of one input",
    "text/csv": "rows of numbers or words, the first may be a heading; columns go to the inputs of these names, or all "
    "of them to the only input",
    "application/x-npy": "an array as numpy.save writes it",
    "image/*": "the file to an input of BYTES, else its pixels, resized to the sides that the input fixes; channels as "
    "its shape has them, floats from 0 to 1",
    "application/octet-stream": "the bytes, to an input of BYTES",
    "multipart/form-data": "a part for each input, named like it (any name for the only input); its type or the ending "
    "of its file name says which of the others it is",
}
MOST_PIXELS = 64 << 20
MOST_PARTS = 1000  # of a form
ANY = {"name": "input", "datatype": "FP32", "shape": [-1]}


def read(body: bytes, content_type: str, inputs: list[dict]) -> list[dict]:
    """Return the tensors in the body; `inputs` are those that the model declares. Raises BadRequest."""
    declared = {one["name"]: one for one in inputs} or {"input": ANY}
    kind = content_type.partition(";")[0].strip().lower()
    try:
        given = _form(body, content_type, declared) if kind == FORM else _one(body, kind, declared)
        return [as_tensor(declared.get(name, {**ANY, "name": name}), array) for name, array in given.items()]
    except (ValueError, TypeError, OverflowError, OSError) as problem:
        raise BadRequest(f"body: not {kind or 'application/json'} that fits the model: {problem}")


def _one(body: bytes, kind: str, declared: dict[str, dict]) -> dict:
    """Return the arrays or nested lists in one file, by the names of the inputs."""
    first = next(iter(declared.values()))
    if kind in JSON:
        return _json(body, first["name"])
    if kind == "text/csv":
        return _csv(body, declared)
    if len(declared) > 1:
        raise BadRequest(
            f"body: the model has several inputs ({', '.join(declared)}): send a form with a part for each"
        )
    return {first["name"]: _file(body, kind, first)}


def _json(body: bytes, name: str) -> dict:
    given = parsed(body)
    return given if isinstance(given, dict) else {name: given}


def _file(body: bytes, kind: str, one: dict):
    if kind == "application/x-npy":
        return np.load(io.BytesIO(body), allow_pickle=False)
    if one["datatype"] == "BYTES":
        return _bytes(body, one)
    if kind.startswith("image/"):
        return _pixels(body, one)
    raise BadRequest(f"Content-Type: {kind} cannot become {one['name']} ({one['datatype']}); see /schema")


def _bytes(body: bytes, one: dict) -> np.ndarray:
    array = np.empty([1] * max(1, len(one["shape"])), np.object_)
    array.flat[0] = body
    return array


def _csv(body: bytes, declared: dict[str, dict]) -> dict:
    rows = [row for row in csv.reader(io.StringIO(body.decode("utf-8-sig"))) if row]
    if not rows:
        raise BadRequest("body: the CSV has no rows")
    heading = [word.strip() for word in rows[0]]
    only = next(iter(declared.values())) if len(declared) == 1 else None
    words = only is not None and only["datatype"] == "BYTES"
    named = set(heading) & set(declared)
    if named or (not words and not all(_is_number(word) for word in heading)):
        rows = rows[1:]
    if any(len(row) != len(heading) for row in rows):
        raise BadRequest("body: the rows of the CSV are of different lengths")
    if named:
        return {name: [row[heading.index(name)] for row in rows] for name in declared if name in named}
    if only is None:
        raise BadRequest(f"body: the CSV needs a heading that names the inputs {', '.join(declared)}")
    flat = len(only["shape"]) == 1 and (len(heading) == 1 or len(rows) == 1)
    return {only["name"]: [word for row in rows for word in row] if flat else rows}


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _pixels(body: bytes, one: dict) -> np.ndarray:
    from PIL import Image

    shape = one["shape"]
    sides = shape[1:] if len(shape) == 4 else shape
    if len(sides) not in (2, 3) or (len(sides) == 2 and (sides[0] == -1) != (sides[1] == -1)):  # -1, 5: rows of five
        raise BadRequest(f"{one['name']}: an image does not fit the shape {shape}")
    first = len(sides) == 3 and sides[0] in (1, 3, 4)  # channels first, as in PyTorch
    channels = 1 if len(sides) == 2 else sides[0] if first else sides[2] if sides[2] in (1, 3, 4) else 3
    height, width = sides[1:] if first else sides[:2]
    with Image.open(io.BytesIO(body)) as image:
        if math.prod(image.size) > MOST_PIXELS:
            raise BadRequest(f"body: an image of more than {MOST_PIXELS} pixels")
        converted = image.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
    size = (converted.width if width == -1 else width, converted.height if height == -1 else height)
    pixels = np.asarray(converted if converted.size == size else converted.resize(size))
    pixels = pixels.reshape(size[1], size[0], channels)
    if len(sides) == 2:
        pixels = pixels[:, :, 0]
    elif first:
        pixels = pixels.transpose(2, 0, 1)
    if one["datatype"].startswith("FP"):
        pixels = pixels / 255.0
    return pixels[np.newaxis] if len(shape) == 4 else pixels


def _form(body: bytes, content_type: str, declared: dict[str, dict]) -> dict:
    parts: list[tuple[str, str, str, bytes]] = []  # name, file name, type, content

    def add(*part) -> None:
        if len(parts) == MOST_PARTS:
            raise BadRequest(f"body: a form of more than {MOST_PARTS} parts")
        parts.append(part)

    def on_field(field) -> None:
        add(_text(field.field_name), "", "", field.value or b"")

    def on_file(file) -> None:
        file.file_object.seek(0)
        kind = _text(file.content_type).partition(";")[0].strip().lower()
        add(_text(file.field_name), _text(file.file_name), kind, file.file_object.read())

    try:
        parse_form({"Content-Type": content_type.encode("latin-1")}, io.BytesIO(body), on_field, on_file)
    except FormParserError as problem:
        raise BadRequest(f"body: not a form ({problem})")
    given = {}
    for name, file_name, content_kind, content in parts:
        one = declared.get(name) or (next(iter(declared.values())) if len(declared) == len(parts) == 1 else None)
        if one is None:
            raise BadRequest(f"{name}: the model's inputs are {', '.join(declared)}")
        kind = content_kind
        if file_name and content_kind in ("", BINARY):
            kind = BY_ENDING.get(_ending(file_name), BINARY)
        if not file_name and one["datatype"] == "BYTES":
            given[one["name"]] = _bytes(content, one)
        else:
            given |= _one(content, kind, {one["name"]: one})
    if not given:
        raise BadRequest("body: the form has no parts")
    return given


def _ending(file_name: str) -> str:
    return file_name.rpartition(".")[2].lower()


def _text(value: bytes | str | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def as_tensor(one: dict, data) -> dict:
    """Return the data as a tensor of the declared type. Raises ValueError, TypeError or OverflowError."""
    kind = one["datatype"]
    if kind == "BYTES":
        array = np.array(data, np.object_)
        array = np.vectorize(_word, otypes="O")(array) if array.size else array
    else:
        array = _numbers(data, DATATYPES[kind])
    return {"name": one["name"], "datatype": kind, "shape": list(array.shape), "data": array}


def _numbers(data, kind: type) -> np.ndarray:
    array = np.asarray(data)
    if array.dtype.kind in "OSU":  # text of a CSV; raises for what is not a number or of uneven length
        return np.asarray(data, dtype=kind)
    if np.issubdtype(kind, np.integer) and array.size:
        limits = np.iinfo(kind)
        if not np.array_equal(array, np.trunc(array)) or array.min() < limits.min or array.max() > limits.max:
            raise ValueError(f"whole numbers from {limits.min} to {limits.max} are taken")
    return array.astype(kind)


def _word(value) -> bytes:
    if not isinstance(value, str | bytes):
        raise ValueError("BYTES takes strings")
    return value if isinstance(value, bytes) else value.encode()
