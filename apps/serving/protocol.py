"""Tensors of the Open Inference Protocol v2 (REST) on the wire: JSON, and the binary tensor data extension.

In memory a tensor is a dict of name, datatype, shape and data (a numpy array of that shape).
Source: github.com/kserve/open-inference-protocol and Triton's extension_binary_data.md.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import math
import re
import struct

import numpy as np
import orjson
import values
from values import DATATYPES, MAX_LISTS, MAX_VALUES, BadRequest

LENGTH = struct.Struct("<I")


def parsed(body: bytes):
    """Return the JSON of a body. It may have NaN, Infinity and -Infinity, which Python's json writes.

    Raises BadRequest, before it is parsed where it would take much more memory than it has bytes.
    """
    if body.count(b"[") + body.count(b"{") > MAX_LISTS or body.count(b",") > MAX_VALUES:
        raise BadRequest(f"body: too much for JSON, at most {MAX_LISTS} lists and {MAX_VALUES} values; send it binary")
    body = body.removeprefix(b"\xef\xbb\xbf")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        if b"NaN" in body or b"Infinity" in body:
            with contextlib.suppress(ValueError, RecursionError):
                return json.loads(body.decode(), parse_float=_finite)
        raise BadRequest(f"body: not JSON ({problem})")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError("a number that would be infinite")
    return number


def written(answer, arrays: list[np.ndarray]) -> bytes:
    """Return an answer as JSON. If one of its arrays has NaN or infinity, these are bare words, as Python's json writes
    and reads them; orjson would make them null.
    """
    if all(map(_is_finite, arrays)):
        return orjson.dumps(answer)
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()


def _is_finite(array: np.ndarray) -> bool:
    if array.dtype.kind == "O":
        return float not in set(map(type, array.ravel().tolist()))
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def read_request(body: bytes, header_length: str | None) -> tuple[dict, list[dict]]:
    """Return (the request's JSON, its input tensors). Raises BadRequest."""
    binary = b""
    if header_length is not None:
        if not re.fullmatch("[0-9]{1,18}", header_length) or int(header_length) > len(body):
            raise BadRequest("Inference-Header-Content-Length: must be a length within the body")
        body, binary = body[: int(header_length)], body[int(header_length) :]
    request = parsed(body)
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, list) or not inputs:
        raise BadRequest("inputs: must be a list of at least one tensor")
    _parameters(request, "the request")
    if type(request.get("id")) not in (str, int, type(None)):
        raise BadRequest("id: must be a string")
    outputs = request.get("outputs") or []
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        raise BadRequest("outputs: must be a list of objects")
    for output in outputs:
        if not isinstance(output.get("name"), str):
            raise BadRequest("outputs: each must have a name")
        _parameters(output, output["name"])
    tensors, names = [], set()
    for given in inputs:
        tensor, used = _read_tensor(given, binary)
        binary = binary[used:]
        if tensor["name"] in names:
            raise BadRequest(f"{tensor['name']}: is there twice")
        names.add(tensor["name"])
        tensors.append(tensor)
    if binary:
        raise BadRequest(f"body: binary data that belongs to no input, bytes: {len(binary)}")
    return request, tensors


def joined(request: dict, tensors: list[dict], inputs: list[dict], features: tuple[str, ...]) -> list[dict]:
    """Return columns as the only input of a model, where the request says that they are a data frame, by MLServer's
    content type `pd`. `features` are the names that the model was fitted with. Raises BadRequest.
    """
    frame = _parameters(request, "the request").get("content_type") == "pd"
    if not frame or len(inputs) != 1 or len(inputs[0]["shape"]) != 2:
        return tensors
    if len(tensors) == 1 and len(tensors[0]["shape"]) == 2:
        return tensors
    if any(tensor["shape"] not in ([tensor["data"].size], [tensor["data"].size, 1]) for tensor in tensors):
        raise BadRequest("inputs: each column of a data frame (pd) must have the shape [rows] or [rows, 1]")
    if len({tensor["data"].size for tensor in tensors}) != 1:
        raise BadRequest("inputs: the columns of a data frame (pd) must have the same number of rows")
    places, kind = values.order([tensor["name"] for tensor in tensors], features), inputs[0]["datatype"]
    columns = [values.from_array(tensors[at]["name"], kind, tensors[at]["data"].ravel()) for at in places]
    return [values.tensor(inputs[0], np.stack(columns, axis=1))]


def _parameters(given: dict, name: str) -> dict:
    parameters = given.get("parameters")
    if not isinstance(parameters, dict | None):
        raise BadRequest(f"{name}: parameters must be an object")
    return parameters or {}


def _read_tensor(given, binary: bytes) -> tuple[dict, int]:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise BadRequest("inputs: each must be an object with a name")
    name, kind, shape = given["name"], given.get("datatype"), given.get("shape")
    if kind not in DATATYPES:
        raise BadRequest(f"{name}: datatype must be one of {', '.join(DATATYPES)}")
    if isinstance(shape, list):  # 2.0 is a whole number of JSON
        shape = [int(side) if type(side) is float and side.is_integer() else side for side in shape]
    if not isinstance(shape, list) or not all(type(side) is int and side >= 0 for side in shape):
        raise BadRequest(f"{name}: shape must be a list of whole numbers")
    parameters = _parameters(given, name)
    size = parameters.get("binary_data_size")
    if size is None:
        if "data" not in given:
            raise BadRequest(f"{name}: has no data")
        array = values.from_json(name, kind, given["data"])
        if kind == "BYTES" and parameters.get("content_type") == "base64":  # as MLServer's codec
            array = _from_base64(name, array)
    elif type(size) is not int or not 0 <= size <= len(binary):
        raise BadRequest(f"{name}: binary_data_size is more than the body has")
    else:
        array = _from_bytes(name, kind, binary[:size])
    if math.prod(shape) != array.size:
        raise BadRequest(f"{name}: has {array.size} values, the shape {shape} takes {math.prod(shape)}")
    try:
        return {"name": name, "datatype": kind, "shape": shape, "data": array.reshape(shape)}, size or 0
    except ValueError as problem:  # too many dimensions, or too large ones beside a 0
        raise BadRequest(f"{name}: the shape {shape} is not possible ({problem})")


def _from_base64(name: str, array: np.ndarray) -> np.ndarray:
    try:
        strings = [binascii.a2b_base64(text, strict_mode=True) for text in array.ravel()]
    except binascii.Error as problem:
        raise BadRequest(f"{name}: its content type is base64 ({problem})")
    return values.from_json(name, "BYTES", strings).reshape(array.shape)


def _from_bytes(name: str, kind: str, data: bytes) -> np.ndarray:
    if kind != "BYTES":
        width = np.dtype(DATATYPES[kind]).itemsize
        if len(data) % width:
            raise BadRequest(f"{name}: must have a whole number of {kind}, each {width} B, but has {len(data)} B")
        if kind == "BOOL" and data.translate(None, b"\0\1"):
            raise BadRequest(f"{name}: a byte of BOOL is 0 or 1")
        return np.frombuffer(data, dtype=DATATYPES[kind])
    strings, at = [], 0
    while at < len(data):
        length = LENGTH.unpack_from(data, at)[0] if at + 4 <= len(data) else len(data)
        if at + 4 + length > len(data):
            raise BadRequest(f"{name}: string {len(strings)} is longer than the data")
        strings.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    array = np.empty(len(strings), np.object_)
    array[:] = strings
    return array


def write_response(request: dict, model: str, outputs: list[dict]) -> tuple[bytes, int | None]:
    """Return (body, length of its JSON if binary data follow, else None). Raises BadRequest."""
    wanted = {output["name"]: output for output in request.get("outputs") or []}
    missing = set(wanted) - {output["name"] for output in outputs}
    if missing:
        raise BadRequest(f"outputs: the model gives no {', '.join(sorted(missing))}")
    all_binary = (request.get("parameters") or {}).get("binary_data_output") is True
    entries, blobs = [], []
    for output in outputs:
        if wanted and output["name"] not in wanted:
            continue
        asked = (wanted.get(output["name"], {}).get("parameters") or {}).get("binary_data", all_binary)
        entry = {"name": output["name"], "datatype": output["datatype"], "shape": list(output["shape"])}
        if asked:
            blob = _to_bytes(output)
            blobs.append(blob)
            entry["parameters"] = {"binary_data_size": len(blob)}
        else:
            entry |= _to_json(output)
        entries.append(entry)
    response = {"model_name": model, "model_version": "1", "outputs": entries}
    if request.get("id") is not None:
        response["id"] = str(request["id"])
    head = written(response, [output["data"] for output in outputs])
    return b"".join([head, *blobs]), len(head) if blobs else None


def _to_bytes(tensor: dict) -> bytes:
    if tensor["datatype"] != "BYTES":
        return np.ascontiguousarray(tensor["data"]).tobytes()
    words = [word if isinstance(word, bytes) else str(word).encode() for word in tensor["data"].ravel()]
    return b"".join(LENGTH.pack(len(word)) + word for word in words)


def _to_json(tensor: dict) -> dict:
    """Return the data of an output for JSON. Strings of which one is no UTF-8 are in base64, which MLServer's content
    type says.
    """
    flat = tensor["data"].ravel().tolist()
    if tensor["datatype"] != "BYTES":
        return {"data": flat}
    words = [word if isinstance(word, bytes) else str(word).encode() for word in flat]
    try:
        return {"data": [word.decode() for word in words]}
    except UnicodeDecodeError:
        return {"parameters": {"content_type": "base64"}, "data": [base64.b64encode(word).decode() for word in words]}


def plain(tensor: dict) -> list:
    """Return a tensor as nested lists for JSON."""
    array = np.asarray(tensor["data"])
    return [] if not array.size else _words(array.tolist())


def _words(value):
    """Return values with bytes as text; those that are no UTF-8 are {"b64": …}, as TensorFlow Serving writes them."""
    if isinstance(value, list):
        return [_words(item) for item in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}
