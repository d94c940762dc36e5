"""Parser of Loki's push messages: JSON, and protobuf by the few fields that matter (logproto.PushRequest).

Protobuf is read record by record (pieces.py), with bytes in place of texts: one text that is not UTF-8 would lose its
record. What is odd in one label, entry or stream loses nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from kernel import lenient, sent_times
from kernel.otlp.pieces import MAX_BYTES, Pieces, fields

Entry = tuple[int, str, dict]  # ns since 1970, line, structured metadata
LABEL = re.compile(r'\s*([^\s=,{}"]+)\s*=\s*("(?:[^"\\]|\\.)*")\s*(,|$)', re.DOTALL)

_TYPE = descriptor_pb2.FieldDescriptorProto
_TEXT = ""  # the kind of a text: that of the classes
_MESSAGES = {
    "Timestamp": (("seconds", 1, _TYPE.TYPE_INT64, ""), ("nanos", 2, _TYPE.TYPE_INT32, "")),
    "Pair": (("name", 1, _TEXT, ""), ("value", 2, _TEXT, "")),
    "Entry": (
        ("timestamp", 1, _TYPE.TYPE_MESSAGE, "Timestamp"),
        ("line", 2, _TEXT, ""),
        ("metadata", 3, _TYPE.TYPE_MESSAGE, "*Pair"),
    ),
    "Stream": (("labels", 1, _TEXT, ""), ("entries", 2, _TYPE.TYPE_MESSAGE, "*Entry")),
    "PushRequest": (("streams", 1, _TYPE.TYPE_MESSAGE, "*Stream"),),
}


STREAMS = 1  # of PushRequest
LABELS, ENTRIES = 1, 2  # of Stream
LINE = 2  # of Entry
ROWS = ("values", "entries")  # of a stream in JSON
ODD = "labels"  # the label with what cannot be read of the others
UTF8 = ("utf-8", "surrogateescape")
MAX_LABELS, MAX_PAIR, MAX_METADATA = 1 << 20, 64 << 10, 10_000


def _message_class(name: str, text: int):
    """Return the class of a message whose texts are of that kind."""
    file = descriptor_pb2.FileDescriptorProto(name="mlp/loki.proto", package="lokipush", syntax="proto3")
    for each, rows in _MESSAGES.items():
        message = file.message_type.add(name=each)
        for field, number, kind, message_type in rows:
            label = _TYPE.LABEL_REPEATED if message_type.startswith("*") else _TYPE.LABEL_OPTIONAL
            field_descriptor = message.field.add(name=field, number=number, type=kind or text, label=label)
            if message_type:
                field_descriptor.type_name = ".lokipush." + message_type.lstrip("*")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"lokipush.{name}"))


PushRequest = _message_class("PushRequest", _TYPE.TYPE_STRING)  # as senders have it
EntryMessage = _message_class("Entry", _TYPE.TYPE_BYTES)


def read_protobuf(data: bytes) -> Iterator[tuple[dict, Iterator[Entry | None]]]:
    """Yield (labels, entries) of each stream, None for an entry that cannot be read. Raises ValueError for a body of
    which the rest cannot be read.
    """
    pieces = Pieces()
    for number, stream in pieces.of(memoryview(data)):
        if number == STREAMS:
            yield _labels(pieces, stream), _entries(pieces, stream)


def _labels(pieces: Pieces, stream: memoryview) -> dict:
    """Return the labels of a stream, which may come after its entries."""
    labels = b""
    for number, content in pieces.of(stream, records=True):
        if number == LABELS:
            labels = bytes(content[:MAX_LABELS])
    return labels_of(labels.decode(*UTF8))


def _entries(pieces: Pieces, stream: memoryview) -> Iterator[Entry | None]:
    for number, content in pieces.of(stream, records=True):
        if number == ENTRIES:
            yield _entry(content)


def _entry(content: memoryview) -> Entry | None:
    """Return an entry; of one that is damaged or too large what can be read."""
    if len(content) <= MAX_BYTES:
        try:
            message = EntryMessage.FromString(bytes(content))
        except DecodeError:
            message = _parts(content)
    else:
        message = _parts(content)
    if not message.ListFields() and content:
        return None
    at = message.timestamp.seconds * 10**9 + message.timestamp.nanos
    metadata = {pair.name.decode(*UTF8): pair.value.decode(*UTF8) for pair in message.metadata[:MAX_METADATA]}
    return sent_times.nanoseconds(at) or 0, message.line.decode(*UTF8), metadata


def _parts(content: memoryview) -> Message:
    message = EntryMessage()
    for number, whole, inner in islice(fields(content), MAX_METADATA):
        try:
            if number == LINE:
                message.line = bytes(inner[:MAX_BYTES])
            elif len(whole) <= MAX_PAIR:
                message.MergeFrom(EntryMessage.FromString(bytes(whole)))
        except DecodeError:
            continue
    return message


def read_json(data: bytes) -> Iterator[tuple[dict, Iterator[Entry | None]]]:
    """Yield (labels, entries) of {"streams": [{"stream": {label: value}, "values": [["ns", "line", {…}?], …]}]}, or of
    the older form {"labels": "{…}", "entries": [{"ts", "line"}]}. Raises ValueError.
    """
    body = lenient.read_json(data)
    streams = body.get("streams") if isinstance(body, dict) else None
    if not isinstance(streams, list):
        raise ValueError("there are no streams")
    for stream in streams:
        given = stream if isinstance(stream, dict) else {}
        labels = given.get("stream", given.get("labels"))
        rows = lenient.listed(given, *ROWS)
        unread = lenient.beside(given, *ROWS, "stream", "labels")
        yield _named(labels), map(_row, [*rows, *(None for _one in unread)] if given else [None])
    yield {}, (None for _one in lenient.beside(body, "streams"))


def _named(labels: object) -> dict[str, str]:
    """Return labels or structured metadata as texts, as Loki has them; null is none."""
    if isinstance(labels, str):
        return labels_of(labels)
    if not isinstance(labels, dict):
        return {} if labels is None else {ODD: lenient.text_of(labels)}
    return {name: lenient.text_of(value) for name, value in labels.items() if value is not None}


def _row(row: object) -> Entry | None:
    if isinstance(row, dict):
        row = [row.get("ts", row.get("timestamp")), row.get("line"), row.get("structuredMetadata")]
    if not isinstance(row, list) or len(row) < 2 or row[1] is None:
        return None
    more = _named(row[2]) if len(row) > 2 else {}
    at = sent_times.nanoseconds(row[0])
    if at is None and row[0] not in (None, "", 0, "0"):
        more = {"timestamp": lenient.text_of(row[0])} | more
    return at or 0, lenient.text_of(row[1]), more


def labels_of(text: str) -> dict[str, str]:
    """Return `{app="web", namespace="shop"}` as a dict; what cannot be read of it is a label, too."""
    inner, at, labels = text.strip().removeprefix("{").removesuffix("}").strip(), 0, {}
    while at < len(inner):
        match = LABEL.match(inner, at)
        if match is None:
            return labels | {ODD: inner[at:]}
        labels[match[1]] = _unquoted(match[2])
        at = match.end()
    return labels


def _unquoted(text: str) -> str:
    """Return the content of a quoted value: with the escapes of JSON, as it is where it has others."""
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return text[1:-1]
