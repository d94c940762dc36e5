"""The request bodies of POST /predict: plain JSON, a file (CSV, .npy, an image, any for a BYTES input), or a form.

Called by server.py. Bodies are converted to input tensors (values.py) by the inputs that the model declares; `TAKES`
describes how, and is shown by /schema.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import sys
from collections.abc import Container

import numpy as np
import pictures
import values
from protocol import parsed
from python_multipart import parse_form
from python_multipart.multipart import parse_options_header
from values import BadRequest, Unsupported

FORM, BINARY = "multipart/form-data", "application/octet-stream"
JSON = ("", "application/json", "application/x-www-form-urlencoded")  # the last is the default of curl -d
BY_ENDING = {
    "json": "application/json", "csv": "text/csv", "npy": "application/x-npy", "png": "image/png", "jpg": "image/jpeg",
    "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp", "bmp": "image/bmp", "tif": "image/tiff",
    "tiff": "image/tiff", "avif": "image/avif",
}  # fmt: skip
TAKES = {
    "application/json": "{name of an input: nested list}, or the nested list alone for a model of one input; NaN, "
    "Infinity and -Infinity may be bare words or strings, null is NaN",
    "text/csv": "rows of numbers or words, the first may be a heading of words; columns go to the inputs of these "
    "names, or all of them to the only input; an empty cell of a floating-point number is NaN; semicolons or "
    "tabs instead of commas where a heading of several inputs has them, UTF-8 or UTF-16 with a byte order mark",
    "application/x-npy": "an array as numpy.save writes it, of numbers, BOOL or text as the input is",
    "image/*": pictures.TAKES,
    "application/octet-stream": "the bytes, to an input of BYTES",
    "multipart/form-data": "a part for each input, named like it (any name for the only input); its type or the ending "
    "of its file name says which of the others it is",
}
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
UTF8 = ("", "utf-8", "utf8", "us-ascii", "ascii")
MAX_PARTS = 1000  # of a form
ANY = {"name": "input", "datatype": "FP32", "shape": [-1]}

csv.field_size_limit(sys.maxsize)  # a body has a limit of its own


def read(body: bytes, content_type: str, inputs: list[dict], features: tuple[str, ...] = ()) -> list[dict]:
    """Return the tensors in the body; `inputs` are those that the model declares, `features` the names of the columns
    of the only one. Raises BadRequest.
    """
    declared = {spec["name"]: {**spec, "features": features} for spec in inputs} or {"input": ANY}
    kind = media_type(content_type)
    given = _form(body, content_type, declared) if kind == FORM else _content(body, kind, declared)
    return [values.tensor(_input(declared, name), array) for name, array in given.items()]


def media_type(content_type: str) -> str:
    """Return the type without its parameters. Raises Unsupported for a character set other than UTF-8."""
    kind, options = parse_options_header(content_type)
    charset = options.get(b"charset", b"").decode("latin-1").strip("\"' ").lower()
    if charset not in UTF8:
        raise Unsupported(f"Content-Type: the character set must be utf-8, not {charset}")
    return kind.decode("latin-1").strip().lower()


def _input(declared: dict[str, dict], name: str) -> dict:
    return declared.get(name, {**ANY, "name": name})


def _content(body: bytes, kind: str, declared: dict[str, dict]) -> dict[str, np.ndarray]:
    """Return the arrays in one file, by the names of the inputs."""
    first = next(iter(declared.values()))
    if kind in JSON:
        return _json(body, declared)
    if kind == "text/csv":
        return _csv(body, declared)
    if len(declared) > 1:
        raise BadRequest(
            f"body: the model has several inputs ({', '.join(declared)}): send a form with a part for each"
        )
    return {first["name"]: _file(body, kind, first)}


def _json(body: bytes, declared: dict[str, dict]) -> dict[str, np.ndarray]:
    given = parsed(body)
    given = given if isinstance(given, dict) else {next(iter(declared)): given}
    return {name: values.from_json(name, _input(declared, name)["datatype"], data) for name, data in given.items()}


def _file(body: bytes, kind: str, spec: dict) -> np.ndarray:
    if kind == "application/x-npy":
        return values.from_array(spec["name"], spec["datatype"], _npy(body))
    if spec["datatype"] == "BYTES":
        return _bytes(body, spec)
    if kind.startswith("image/"):
        return values.from_array(spec["name"], spec["datatype"], pictures.pixels(body, spec))
    raise Unsupported(f"Content-Type: {kind} cannot become {spec['name']} ({spec['datatype']}); see /schema")


def _bytes(body: bytes, spec: dict) -> np.ndarray:
    array = np.empty([1] * max(1, len(spec["shape"])), np.object_)
    array.flat[0] = body
    return array


def _npy(body: bytes) -> np.ndarray:
    """Return the array of a file of numpy.save. Its header is compared with the body before room is made for it."""
    if body[:2] == b"PK":
        raise BadRequest("body: a .npz or another zip, not an .npy file; send one array")
    file = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(file)
        headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, by_columns, kind = headers[version](file)
    except Exception as problem:  # of its parser: SyntaxError, TokenError, EOFError and others
        raise BadRequest(f"body: not an .npy file ({problem or type(problem).__name__})")
    if kind.hasobject:
        raise BadRequest("body: an .npy file of Python objects (pickle) is not read")
    size, had = math.prod(shape) * kind.itemsize, len(body) - file.tell()
    if size != had:
        raise BadRequest(f"body: the .npy file says {size} B for its array, and has {had} B")
    array = np.frombuffer(body, kind, offset=file.tell()) if size else np.empty(math.prod(shape), kind)
    return array.reshape(shape[::-1]).T if by_columns else array.reshape(shape)


def csv_rows(body: bytes, names: Container[str]) -> list[list[str]]:
    """Return the rows of a CSV that have cells, all as long as the first. Raises BadRequest.

    Spreadsheets of many languages write semicolons, and tabs in UTF-16: these separate the cells where the heading has
    several of the names then and no comma.
    """
    try:
        text = body.decode("utf-16" if body.startswith(UTF16) else "utf-8-sig")
        mark = mark_of(text.lstrip("\r\n").partition("\n")[0], names)
        if text.count(mark) + text.count("\n") + text.count("\r") > values.MAX_VALUES:
            raise BadRequest(f"body: too much for a CSV, at most {values.MAX_VALUES} cells; send it as .npy or binary")
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, strict=True)
        rows = [row for row in reader if row]
    except (UnicodeDecodeError, csv.Error) as problem:
        raise BadRequest(f"body: not text/csv ({problem})")
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise BadRequest(
                f"body: the rows of the CSV are of different lengths: row {number} has {len(row)} cells, "
                f"the first {len(rows[0])}"
            )
    return rows


def mark_of(heading: str, names: Container[str]) -> str:
    """Return what separates the cells of a CSV with this heading."""
    return next((mark for mark in ";\t" if "," not in heading and _names(heading, mark, names) > 1), ",")


def is_headed(row: list[str], inputs: list[dict]) -> bool:
    """Return whether the first row of a CSV is a heading for a model with these inputs."""
    declared = inputs or [ANY]
    words = [word.strip() for word in row]
    if any(spec["name"] in words for spec in declared):
        return True
    return len(declared) == 1 and _is_heading(words, declared[0]["datatype"])


def _names(heading: str, mark: str, names: Container[str]) -> int:
    """Return how many of the names a heading has that this character separates."""
    return sum(cell.strip().strip('"') in names for cell in heading.split(mark))


def only_once(names: list[str], wanted) -> None:
    """Raise BadRequest where a wanted column is there twice: nobody can know which is meant."""
    for name in wanted:
        if names.count(name) > 1:
            raise BadRequest(f"body: the column {name} is there {names.count(name)} times")


def _csv(body: bytes, declared: dict[str, dict]) -> dict[str, np.ndarray]:
    rows = csv_rows(body, declared)
    if not rows:
        raise BadRequest("body: the CSV has no rows")
    heading = [word.strip() for word in rows[0]]
    only = next(iter(declared.values())) if len(declared) == 1 else None
    named = [name for name in declared if name in heading]
    headed = bool(named) or (only is not None and _is_heading(heading, only["datatype"]))
    rows = rows[1:] if headed else rows
    if named:
        only_once(heading, named)
        kinds = {name: (heading.index(name), declared[name]["datatype"]) for name in named}
        return {
            name: values.from_words(name, kind, [row[at] for row in rows], [len(rows)])
            for name, (at, kind) in kinds.items()
        }
    if only is None:
        raise BadRequest(f"body: the CSV needs a heading that names the inputs {', '.join(declared)}")
    if headed:
        places = values.order(heading, only.get("features", ()))
        heading, rows = [heading[at] for at in places], [[row[at] for at in places] for row in rows]
    flat = [word for row in rows for word in row]
    line = len(only["shape"]) == 1 and (len(heading) == 1 or len(rows) == 1)
    shape, columns = ([len(flat)], None) if line else ([len(rows), len(heading)], heading if headed else None)
    return {only["name"]: values.from_words(only["name"], only["datatype"], flat, shape, columns)}


def _is_heading(row: list[str], kind: str) -> bool:
    """Return whether no cell of the first row is a value of the input's type; text has a heading only by name."""
    if kind == "BYTES":
        return False
    known = values.BOOLS if kind == "BOOL" else values.MISSING
    return not any(word in known or values.is_number(word) for word in row)


def _form(body: bytes, content_type: str, declared: dict[str, dict]) -> dict[str, np.ndarray]:
    given: dict[str, np.ndarray] = {}
    parts = _parts(body, content_type)
    for name, file_name, content_kind, content in parts:
        spec = declared.get(name) or (next(iter(declared.values())) if len(declared) == len(parts) == 1 else None)
        if spec is None:
            raise BadRequest(f"{name}: the model's inputs are {', '.join(declared)}")
        if spec["name"] in given:
            raise BadRequest(f"{name}: the form has several parts of this name")
        kind = media_type(content_kind)
        if file_name and kind in ("", BINARY):
            kind = BY_ENDING.get(_ending(file_name), BINARY)
        if not file_name and spec["datatype"] == "BYTES":
            given[spec["name"]] = _bytes(content, spec)
        else:
            given |= _content(content, kind, {spec["name"]: spec})
    if not given:
        raise BadRequest("body: the form has no parts")
    return given


def _parts(body: bytes, content_type: str) -> list[tuple[str, str, str, bytes]]:
    """Return (name, file name, type, content) of each part of a form that has its end."""
    parts: list[tuple[str, str, str, bytes]] = []

    def add(*part) -> None:
        if len(parts) == MAX_PARTS:
            raise BadRequest(f"body: a form of more than {MAX_PARTS} parts")
        parts.append(part)

    def on_field(field) -> None:
        add(_text(field.field_name), "", "", field.value or b"")

    def on_file(file) -> None:
        file.file_object.seek(0)
        add(_text(file.field_name), _text(file.file_name), _text(file.content_type), file.file_object.read())

    boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
    if not boundary or b"--" + boundary + b"--" not in body:
        raise BadRequest("body: not a form: its last boundary is missing, so it may be cut off")
    try:
        parse_form({"Content-Type": content_type.encode("latin-1")}, io.BytesIO(body), on_field, on_file)
    except BadRequest:
        raise
    except Exception as problem:  # of its parser: FormParserError, base64's and others
        raise BadRequest(f"body: not a form ({problem})")
    return parts


def _ending(file_name: str) -> str:
    return file_name.rpartition(".")[2].lower()


def _text(value: bytes | str | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
