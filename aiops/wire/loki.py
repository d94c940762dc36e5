"""Parser of Loki's push messages: JSON, and protobuf by the few fields that matter (logproto.PushRequest).

Protobuf is read record by record (pieces.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from kernel import sanitize

from .pieces import Pieces

Entry = tuple[int, str, dict]  # ns since 1970, line, structured metadata
LABEL = re.compile(r'\s*([A-Za-z_][\w.]*)\s*=\s*("(?:[^"\\]|\\.)*")\s*(,|$)')

_TYPE = descriptor_pb2.FieldDescriptorProto
_MESSAGES = {
    "Timestamp": (("seconds", 1, _TYPE.TYPE_INT64, ""), ("nanos", 2, _TYPE.TYPE_INT32, "")),
    "Pair": (("name", 1, _TYPE.TYPE_STRING, ""), ("value", 2, _TYPE.TYPE_STRING, "")),
    "Entry": (
        ("timestamp", 1, _TYPE.TYPE_MESSAGE, "Timestamp"),
        ("line", 2, _TYPE.TYPE_STRING, ""),
        ("metadata", 3, _TYPE.TYPE_MESSAGE, "*Pair"),
    ),
    "Stream": (("labels", 1, _TYPE.TYPE_STRING, ""), ("entries", 2, _TYPE.TYPE_MESSAGE, "*Entry")),
    "PushRequest": (("streams", 1, _TYPE.TYPE_MESSAGE, "*Stream"),),
}


STREAMS = 1  # of PushRequest
LABELS, ENTRIES = 1, 2  # of Stream


def _classes():
    file = descriptor_pb2.FileDescriptorProto(name="mlp/loki.proto", package="lokipush", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, of in fields:
            label = _TYPE.LABEL_REPEATED if of.startswith("*") else _TYPE.LABEL_OPTIONAL
            made = message.field.add(name=field, number=number, type=kind, label=label)
            if of:
                made.type_name = ".lokipush." + of.lstrip("*")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"lokipush.{name}"))
        for name in ("PushRequest", "Entry")
    )


PushRequest, EntryMessage = _classes()


def read_protobuf(data: bytes) -> Iterator[tuple[dict, Iterator[Entry]]]:
    """Yield (labels, entries) of each stream. Raises ValueError."""
    pieces = Pieces()
    try:
        for number, stream in pieces.of(memoryview(data)):
            if number == STREAMS:
                yield _labels(pieces, stream), _entries(pieces, stream)
    except (DecodeError, ValueError) as problem:
        raise ValueError(f"no PushRequest: {problem}")


def _labels(pieces: Pieces, stream: memoryview) -> dict:
    """Return the labels of a stream, which may come after its entries."""
    labels = b""
    for number, content in pieces.of(stream, records=True):
        if number == LABELS:
            labels = pieces.record(content)
    return labels_of(labels.decode())


def _entries(pieces: Pieces, stream: memoryview) -> Iterator[Entry]:
    for number, content in pieces.of(stream, records=True):
        if number == ENTRIES:
            entry = EntryMessage.FromString(pieces.record(content))
            at = entry.timestamp.seconds * 10**9 + entry.timestamp.nanos
            yield at, entry.line, {pair.name: pair.value for pair in entry.metadata}


def read_json(data: bytes) -> list[tuple[dict, list[Entry]]]:
    """Return (labels, entries) of {"streams": [{"stream": {label: value}, "values": [["ns", "line", {…}?], …]}]}.
    Raises ValueError.
    """
    try:
        body = sanitize.read_json(data)
        return [
            (
                {str(name): str(value) for name, value in stream["stream"].items()},
                [_entry(row) for row in stream["values"]],
            )
            for stream in body["streams"]
        ]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as problem:
        raise ValueError(f"no push request: {problem}")


def _entry(row) -> Entry:
    """Return one entry. Structured metadata becomes text, as labels are: Loki has nothing else there."""
    if not isinstance(row, list):
        raise TypeError("each of values must be a list")
    more = row[2] if len(row) > 2 and isinstance(row[2], dict) else {}
    return int(row[0]), _text(row[1]), {name: str(value) for name, value in more.items()}


def _text(value) -> str:
    if not isinstance(value, str):
        raise TypeError("a line must be a string")
    return value


def labels_of(text: str) -> dict:
    """Return `{app="web", namespace="shop"}` as a dict. Raises ValueError."""
    inner = text.strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        raise ValueError(f"labels: {text[:100]!r} are no labels")
    inner, at, labels = inner[1:-1], 0, {}
    while at < len(inner.rstrip()):
        match = LABEL.match(inner, at)
        if match is None:
            raise ValueError(f"labels: cannot be read at {inner[at : at + 30]!r}")
        labels[match[1]] = json.loads(match[2])
        at = match.end()
    return labels
