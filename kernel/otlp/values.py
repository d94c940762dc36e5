"""Values of OTLP as plain ones: AnyValue in its JSON form and in protobuf, ids, numbers, and what a body says.

The protobuf classes are OTLP's own with bytes in place of texts, because one text that is not UTF-8 would lose its
record.
"""

from __future__ import annotations

import base64
import binascii
import re
from contextlib import suppress
from itertools import islice

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from kernel.lenient import text_of

from .pieces import MAX_BYTES, fields

TEXTS = ("log", "message", "msg", "body")  # of a structured record: the first that is present is its line
UTF8 = ("utf-8", "surrogateescape")
ATTRIBUTES, MAX_RESOURCE = 1, 10_000  # of a Resource: its field, and how many fields are read
ODD, ODD_OF = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\udc80-\udcff]"), 10  # at most one of so many is odd
HEX = re.compile(r"(?:[0-9a-fA-F]{2})+", re.ASCII)
KINDS = ("stringValue", "boolValue", "intValue", "doubleValue", "arrayValue", "kvlistValue", "bytesValue")
SNAKE = {re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), kind): kind for kind in KINDS}


def _with_bytes(message: descriptor_pb2.DescriptorProto) -> None:
    """Make each text of a message, and of those that are declared in it, bytes."""
    for field in message.field:
        if field.type == field.TYPE_STRING:
            field.type = field.TYPE_BYTES
    for inner in message.nested_type:
        _with_bytes(inner)


def _classes():
    pool = descriptor_pool.DescriptorPool()
    for module in (common_pb2, resource_pb2, logs_pb2, trace_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            _with_bytes(message)
        pool.Add(file)
    names = (f"{module.DESCRIPTOR.package}.{name}" for module, name in
             ((common_pb2, "KeyValue"), (common_pb2, "AnyValue"), (logs_pb2, "LogRecord"),
             (trace_pb2, "Span")))  # fmt: skip
    return tuple(message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)


KeyValue, AnyValue, LogRecord, Span = _classes()


def text_of_bytes(data: bytes) -> str:
    """Return bytes as the text that they are, also with a few odd ones in it, else as base64.

    Collectors that do not decode a file send its lines as bytes: one odd byte must not hide the others.
    """
    text = data.decode(*UTF8)
    return text if len(ODD.findall(text)) * ODD_OF <= len(text) else base64.b64encode(data).decode()


def of_protobuf(value) -> object:
    """Return an AnyValue as a plain value."""
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value.decode(*UTF8)
        case "bytes_value":
            return text_of_bytes(value.bytes_value)
        case "array_value":
            return [of_protobuf(item) for item in value.array_value.values]
        case "kvlist_value":
            return pairs_of_protobuf(value.kvlist_value.values)
        case "bool_value" | "int_value" | "double_value" as kind:
            return getattr(value, kind)
    return None


def pairs_of_protobuf(pairs) -> dict[str, object]:
    return {pair.key.decode(*UTF8): of_protobuf(pair.value) for pair in pairs}


def resource_of_protobuf(data: memoryview) -> dict[str, object]:
    """Return the attributes of a Resource, without those that cannot be read. Raises ValueError."""
    names: dict[str, object] = {}
    for number, _whole, content in islice(fields(data), MAX_RESOURCE):
        if number == ATTRIBUTES and len(content) <= MAX_BYTES:
            with suppress(DecodeError):
                names |= pairs_of_protobuf([KeyValue.FromString(bytes(content))])
    return names


def of_json(value: object) -> object:
    """Return an AnyValue as a plain value; one that is no AnyValue is plain already."""
    if not isinstance(value, dict):
        return value
    name = next((name for name in value if SNAKE.get(name, name) in KINDS), None)
    if name is None:  # some clients put each value into one more object
        return of_json(value["value"]) if value.keys() == {"value"} else value or None
    inner = value[name]
    match SNAKE.get(name, name):
        case "stringValue" | "boolValue":
            return inner
        case "intValue":
            return _number(inner, int)
        case "doubleValue":
            return _number(inner, float)
        case "bytesValue":
            return _of_base64(inner)
        case "arrayValue":
            values = inner.get("values") if isinstance(inner, dict) else inner
            return [of_json(value) for value in values] if isinstance(values, list) else []
        case "kvlistValue":
            return pairs_of_json(inner.get("values") if isinstance(inner, dict) else inner)
    return None


def pairs_of_json(pairs: object) -> dict[str, object]:
    """Return a list of {"key", "value"} as a dict; an object is taken as what it says."""
    if isinstance(pairs, dict):
        return {name: of_json(value) for name, value in pairs.items()}
    some = [pair for pair in pairs if isinstance(pair, dict)] if isinstance(pairs, list) else []
    return {text_of(pair.get("key")): of_json(pair.get("value")) for pair in some}


def _number(value: object, kind: type) -> object:
    try:
        return kind(value) if isinstance(value, str | int | float) else value
    except (ValueError, OverflowError):
        return value


def _of_base64(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return text_of_bytes(base64.b64decode(value.translate(str.maketrans("-_", "+/")), validate=True))
    except (binascii.Error, ValueError):
        return value


def id_of_json(value: object, size: int) -> str:
    """Return an id of that many bytes as hex digits, also when base64 was sent; another text as it is."""
    text = text_of(value)
    if HEX.fullmatch(text):
        return text.lower()
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text
    return data.hex() if len(data) == size else text


def text_and_rest(body: object) -> tuple[str, dict[str, object]]:
    """Return the line that a body says, and what else is in it."""
    if not isinstance(body, dict):
        return text_of(body), {}
    name = next((name for name in TEXTS if body.get(name) not in (None, "", [], {})), None)
    if name is None:
        return text_of(body), {}
    return text_of(body[name]), {key: value for key, value in body.items() if key != name}
