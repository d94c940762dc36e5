"""The only reading of values for an application's endpoints: what does not fit its datatype is refused, never changed.

Whole numbers come from whole numbers (1.0 is one, as in JavaScript, 1.7 is not), BOOL from true and false, BYTES from
strings. Floating-point types take the nearest number that they have, but nothing that would become infinite. Lists are
checked by their types and arrays by their values, not in a loop over either.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

DATATYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_,
}  # fmt: skip
EXACT = 2.0**53  # beyond it a float of JSON may not be the whole number that was written
NOT_FINITE = {"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"}
MISSING = {"", "NA", "N/A", "<NA>", "null", "NULL", "None", "NaN", "nan"}  # in a column of numbers
BOOLS = {"true": True, "True": True, "TRUE": True, "1": True,
         "false": False, "False": False, "FALSE": False, "0": False}  # fmt: skip
MAX_SHOWN = 40
MAX_LISTS, MAX_VALUES = 2 << 20, 16 << 20  # of a JSON text or a CSV: an empty list takes 30 times its bytes
WRONG = (ValueError, TypeError, OverflowError, KeyError)  # what a value raises that does not fit


class BadRequest(Exception):
    """The request is not one that the model or the protocol takes; the message says how."""

    status = 400
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Unsupported(BadRequest):
    """The request's media type or character set is not taken."""

    status = 415


class UnknownCoding(Unsupported):
    """The request's Content-Encoding is not taken."""

    headers = ((b"accept-encoding", b"gzip, deflate"),)


class TooLarge(BadRequest):
    """The body is larger than the limit."""

    status = 413


def takes(kind: str) -> str:
    """Return in words what a datatype takes."""
    if kind in ("BOOL", "BYTES"):
        return {"BOOL": "true and false", "BYTES": "strings"}[kind]
    if kind.startswith("FP"):
        return f"numbers up to {float(np.finfo(DATATYPES[kind]).max):.5g}, NaN, null, Infinity and -Infinity"
    limits = np.iinfo(DATATYPES[kind])
    return f"whole numbers from {limits.min} to {limits.max}"


def is_number(word: str) -> bool:
    """Return whether a cell is a number, of any size."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def tensor(spec: dict, array: np.ndarray) -> dict:
    """Return an array as a tensor of the declared input."""
    return {"name": spec["name"], "datatype": spec["datatype"], "shape": list(array.shape), "data": array}


def from_json(name: str, kind: str, data) -> np.ndarray:
    """Return nested lists as an array. Raises BadRequest, which names the first value that does not fit."""
    flat, shape = [data], []
    while isinstance(data, list) and (not shape or (flat and isinstance(flat[0], list))):
        if set(map(type, flat)) != {list} or len(set(map(len, flat))) != 1:
            raise BadRequest(f"{name}: the lists are of different lengths or depths")
        shape.append(len(flat[0]))
        flat = list(itertools.chain.from_iterable(flat))
    return _checked(_listed, name, kind, flat, shape)


def from_words(name: str, kind: str, words: list[str], shape: list[int], columns: list[str] | None = None):
    """Return the cells of a table of text as an array. `columns` are the names of its last dimension."""
    return _checked(_spelled, name, kind, words, shape, columns)


def order(columns: list[str], features: tuple[str, ...]) -> list[int]:
    """Return the places of the columns in the order of the features that the model was fitted with. Numbers from 0 are
    no names. Raises BadRequest where the names are others.
    """
    unnamed = list(range(len(columns)))
    if not features or columns == list(map(str, unnamed)):
        return unnamed
    if sorted(columns) != sorted(features):
        raise BadRequest(f"body: the columns must be {', '.join(features)}; given were {', '.join(columns)}")
    return [columns.index(name) for name in features]


def from_array(name: str, kind: str, array: np.ndarray) -> np.ndarray:
    """Return an array as one of the datatype. Raises BadRequest."""
    fitting = {"BOOL": "b", "BYTES": "SU"}.get(kind, "iuf")
    if array.dtype.kind not in fitting:
        raise BadRequest(f"{name}: an array of {array.dtype} does not fit {kind}, which takes {takes(kind)}")
    return _checked(_cast, name, kind, array.ravel(), list(array.shape))


def fitted(given: dict, spec: dict) -> dict:
    """Return a tensor of a request as one of a column's datatype. Raises BadRequest."""
    if given["datatype"] == spec["datatype"]:
        return given
    return tensor(spec, from_array(spec["name"], spec["datatype"], given["data"]))


def _checked(read, name: str, kind: str, flat, shape: list[int], columns: list[str] | None = None) -> np.ndarray:
    """Return what `read` makes of all values; where it cannot, look for the first at fault by halves."""
    try:
        return read(kind, flat).reshape(shape)
    except WRONG as problem:
        first, last = 0, len(flat)
        if _fits(read, kind, flat):
            raise BadRequest(f"{name}: {problem}")
    while last - first > 1:
        middle = (first + last) // 2
        if _fits(read, kind, flat[first:middle]):
            first = middle
        else:
            last = middle
    at = [int(side) for side in np.unravel_index(first, shape)] if shape else []
    where = "".join(f"[{side}]" for side in at)
    column = f" (column {columns[at[-1]]})" if columns else ""
    raise BadRequest(f"{name}{where}{column}: {_shown(flat[first])} does not fit {kind}, which takes {takes(kind)}")


def _fits(read, kind: str, flat) -> bool:
    try:
        read(kind, flat)
    except WRONG:
        return False
    return True


def _shown(value) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _listed(kind: str, flat: list) -> np.ndarray:
    """Return values of JSON. Raises one of WRONG."""
    types = set(map(type, flat))
    if kind == "BOOL":
        _only(types, {bool})
        return np.array(flat, np.bool_)
    if kind == "BYTES":
        _only(types, {str, bytes})
        return _strings(flat)
    if kind.startswith("FP"):
        _only(types, {int, float, str, type(None)})
        if not types <= {int, float}:
            flat = list(map(_number, flat))
        return _narrowed(np.array(flat, np.float64), kind)
    _only(types, {int, float})
    if float in types:
        _whole(np.array([value for value in flat if type(value) is float]))
        flat = list(map(int, flat))
    return np.array(flat, DATATYPES[kind])  # exact, or OverflowError


def _only(types: set[type], taken: set[type]) -> None:
    if not types <= taken:
        raise TypeError("of another type")


def _strings(words: list[str | bytes]) -> np.ndarray:
    array = np.empty(len(words), np.object_)
    array[:] = [word if isinstance(word, bytes) else word.encode() for word in words]
    return array


def _number(value) -> float:
    """Return a number for a floating-point type; null is NaN, and the words of NOT_FINITE may be strings."""
    if value is None:
        return math.nan
    if isinstance(value, str) and value.lower() not in NOT_FINITE:
        raise ValueError("a string")
    return float(value)


def _whole(array: np.ndarray) -> None:
    if not (np.abs(array) <= EXACT).all() or not np.array_equal(array, np.trunc(array)):
        raise ValueError("not a whole number")


def _narrowed(array: np.ndarray, kind: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        cast = array.astype(DATATYPES[kind])
    if np.count_nonzero(np.isinf(cast)) != np.count_nonzero(np.isinf(array)):
        raise OverflowError("infinite")
    return cast


def _spelled(kind: str, words: list[str]) -> np.ndarray:
    """Return the cells of a table of text. Raises one of WRONG."""
    if kind == "BYTES":
        return _strings(words)
    words = list(map(str.strip, words))
    if kind == "BOOL":
        return np.array([BOOLS[word] for word in words], np.bool_)
    joined = "".join(words)
    if "_" in joined or not joined.isascii():  # Python's numbers may have both
        raise ValueError("not a number")
    if not kind.startswith("FP"):
        try:
            return np.array(list(map(int, words)), DATATYPES[kind])
        except ValueError:
            return _listed(kind, [int(word) if word.lstrip("+-").isdigit() else float(word) for word in words])
    try:
        array = np.array(list(map(float, words)), np.float64)
    except ValueError:
        array = np.array([math.nan if word in MISSING else float(word) for word in words], np.float64)
    if any(words[at].lower() not in NOT_FINITE for at in np.flatnonzero(np.isinf(array))):
        raise OverflowError("infinite")
    return _narrowed(array, kind)


def _cast(kind: str, array: np.ndarray) -> np.ndarray:
    """Return an array of numbers, of BOOL or of text as one of the datatype. Raises one of WRONG."""
    if kind == "BYTES":
        return _strings(array.tolist())
    if kind == "BOOL" or kind.startswith("FP"):
        return _narrowed(array, kind) if kind != "BOOL" else array
    if array.dtype.kind == "f":
        _whole(array)
    elif array.size:
        limits = np.iinfo(DATATYPES[kind])
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise OverflowError("out of range")
        return array.astype(DATATYPES[kind])
    return _cast(kind, array.astype(np.int64)) if array.size else array.astype(DATATYPES[kind])
