"""The spans of an ExportTraceServiceRequest, as JSON or as protobuf, which is read span by span (kernel.otlp).

What is odd in one span, attribute or resource loses nothing else. The same span is the same in both forms.
https://github.com/open-telemetry/opentelemetry-proto has the messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from google.protobuf.message import DecodeError, Message

from jobs.models import Span
from kernel import lenient
from kernel.otlp import values
from kernel.otlp.pieces import MAX_BYTES, Pieces, fields

from . import storable

RESOURCE_SPANS = 1  # of ExportTraceServiceRequest
RESOURCE, SCOPE_SPANS, LIBRARY_SPANS = 1, 2, 1000  # of ResourceSpans; the last as releases 0.15 to 0.19 had it
SCOPE, SPANS = 1, 2  # of ScopeSpans and InstrumentationLibrarySpans
NAME = 1  # of InstrumentationScope
# The same in JSON, by the names of protobuf and of older releases, too.
BODY_NAMES = ("resourceSpans", "resource_spans")
SCOPE_NAMES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans")
ABOUT_SCOPE = ("scope", "instrumentationLibrary", "instrumentation_library")
SPAN_ATTRIBUTES = 9  # of Span
KEY, VALUE = 1, 2  # of KeyValue
STRING, ARRAY, OBJECT = 1, 5, 6  # of AnyValue
HOLDERS = {ARRAY: "array_value", OBJECT: "kvlist_value"}  # whose elements are in the field 1 of each
ITEM = 50  # bytes that an element takes in memory, at least
KEPT = 256 << 10  # bytes of a text in a span that is too large
MAX_FIELDS = 10_000  # of a span that is read field by field
TRACE_BYTES, SPAN_BYTES = 16, 8  # of ids
KINDS = ("", "internal", "server", "client", "producer", "consumer")
STATUSES = (Span.Status.UNSET, Span.Status.OK, Span.Status.ERROR)
LAST_NS = 2**63 - 1
REMOTE = 0x300  # SpanFlags: it is known whether the parent is in another process, and it is


@dataclass
class Sent:
    """One span as it was sent. Ids are hex digits, times nanoseconds since 1970; `ended_ns` is None without an end. Its
    attributes are bounded and can be stored, so that many spans fit into memory.
    """

    trace: str
    key: str
    parent: str
    name: str
    kind: str
    status: str
    message: str
    started_ns: int
    ended_ns: int | None
    attributes: dict[str, object]
    events: list[dict] = field(default_factory=list)
    resource: dict[str, object] = field(default_factory=dict)
    scope: str = ""
    from_afar: bool = False  # the parent is in another process


def read_json(data: bytes) -> Iterator[Sent | None]:
    """Yield each span, None for one that cannot be read. Raises ValueError."""
    body = lenient.read_json(data)
    if not isinstance(body, dict):
        raise ValueError("it is not an object")
    if body and not any(name in body for name in BODY_NAMES):
        raise ValueError("there is no resourceSpans")
    for group in lenient.listed(body, *BODY_NAMES):
        if isinstance(group, dict):
            yield from _json_spans(group)
        else:
            yield None


def _json_spans(group: dict) -> Iterator[Sent | None]:
    """Yield the spans of one ResourceSpans."""
    owner = group.get("resource")
    about = values.pairs_of_json(owner.get("attributes")) if isinstance(owner, dict) else {}
    resource = storable.attributes(about, storable.MAX_RESOURCE)
    for scope in lenient.listed(group, *SCOPE_NAMES):
        if not isinstance(scope, dict):
            yield None
            continue
        about = next((scope[name] for name in ABOUT_SCOPE if isinstance(scope.get(name), dict)), {})
        for span in lenient.listed(scope, "spans"):
            yield _json_span(span, resource, lenient.text_of(about.get("name")))


def _json_span(given: object, resource: dict[str, object], scope: str) -> Sent | None:
    if not isinstance(given, dict):
        return None

    def get(name: str, snake: str) -> object:
        return given.get(name, given.get(snake))

    status = given.get("status")
    status = status if isinstance(status, dict) else {}
    try:
        return Sent(
            values.id_of_json(get("traceId", "trace_id"), TRACE_BYTES),
            values.id_of_json(get("spanId", "span_id"), SPAN_BYTES),
            values.id_of_json(get("parentSpanId", "parent_span_id"), SPAN_BYTES),
            lenient.text_of(given.get("name")),
            _one_of(KINDS, given.get("kind"), "SPAN_KIND_"),
            _one_of(STATUSES, status.get("code"), "STATUS_CODE_"),
            lenient.text_of(status.get("message")),
            _json_ns(get("startTimeUnixNano", "start_time_unix_nano")),
            _json_ns(get("endTimeUnixNano", "end_time_unix_nano")) or None,
            storable.attributes(values.pairs_of_json(given.get("attributes"))),
            storable.events(_json_event(event) for event in lenient.listed(given, "events") if isinstance(event, dict)),
            resource,
            scope,
            _is_remote(given.get("flags")),
        )
    except RecursionError:
        return None


def _json_event(event: dict) -> dict:
    at = event.get("timeUnixNano", event.get("time_unix_nano"))
    return {
        "name": lenient.text_of(event.get("name")),
        "at_ns": _json_ns(at),
        "attributes": values.pairs_of_json(event.get("attributes")),
    }


def _one_of(choices: tuple[str, ...], value: object, prefix: str) -> str:
    """Return the choice of that number, or of the enum's name; the first one for what is unknown."""
    if isinstance(value, str) and not value.isdigit():
        name = value.removeprefix(prefix).lower()
        return name if name in choices else choices[0]
    number = int(value) if isinstance(value, str) and len(value) < 4 else value
    return choices[number] if type(number) is int and 0 <= number < len(choices) else choices[0]


def _json_ns(value: object) -> int:
    """Return the time: clients in JavaScript have sent [seconds, ns], and halves of a number. 0 is none."""
    if isinstance(value, list) and len(value) == 2 and all(type(part) is int for part in value):
        value = value[0] * 10**9 + value[1]
    elif isinstance(value, dict) and isinstance(value.get("low"), int) and isinstance(value.get("high"), int):
        value = (value["high"] << 32) + (value["low"] & 0xFFFFFFFF)
    elif isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    return _bounded(value) if type(value) is int else 0


def _is_remote(flags: object) -> bool:
    """Return whether the flags of a span say that its parent is in another process."""
    return type(flags) is int and flags & REMOTE == REMOTE


def _bounded(ns: int) -> int:
    return min(max(ns, 0), LAST_NS)


def read_protobuf(data: bytes) -> Iterator[Sent | None]:
    """Yield each span, None for one that cannot be read. Raises ValueError for a body of which the rest cannot be
    read.
    """
    pieces = Pieces()
    for number, group in pieces.of(memoryview(data)):
        if number == RESOURCE_SPANS:
            yield from _spans(pieces, group)


def _spans(pieces: Pieces, group: memoryview) -> Iterator[Sent | None]:
    """Yield the spans of one ResourceSpans. Its resource may come after them, and in several parts."""
    resource: dict[str, object] = {}
    scopes = []
    for number, content in pieces.of(group):
        if number == RESOURCE:
            resource |= values.resource_of_protobuf(content)
        elif number in (SCOPE_SPANS, LIBRARY_SPANS):
            scopes.append(content)
    resource = storable.attributes(resource, storable.MAX_RESOURCE)
    for content in scopes:
        scope = ""
        for number, inner in pieces.of(content, records=True):
            if number == SCOPE:
                scope = _first_text(inner, NAME)[:250]
            elif number == SPANS:
                yield _protobuf_span(inner, resource, scope)


def _first_text(data: memoryview, field_number: int) -> str:
    found = (content for number, _whole, content in islice(fields(data), MAX_FIELDS) if number == field_number)
    return bytes(next(found, memoryview(b""))[:KEPT]).decode(*values.UTF8)


def _protobuf_span(content: memoryview, resource: dict[str, object], scope: str) -> Sent | None:
    message = _message(content)
    if message is None:
        return None
    code, kind = message.status.code, message.kind
    return Sent(
        message.trace_id.hex(),
        message.span_id.hex(),
        message.parent_span_id.hex(),
        message.name.decode(*values.UTF8),
        KINDS[kind] if 0 <= kind < len(KINDS) else "",
        STATUSES[code] if 0 <= code < len(STATUSES) else STATUSES[0],
        message.status.message.decode(*values.UTF8),
        _bounded(message.start_time_unix_nano),
        _bounded(message.end_time_unix_nano) or None,
        storable.attributes(values.pairs_of_protobuf(message.attributes)),
        storable.events(
            {
                "name": event.name.decode(*values.UTF8),
                "at_ns": _bounded(event.time_unix_nano),
                "attributes": values.pairs_of_protobuf(event.attributes),
            }
            for event in message.events
        ),
        resource,
        scope,
        _is_remote(message.flags),
    )


def _message(content: memoryview) -> Message | None:
    """Return a Span; of one that is damaged or too large those fields that can be read, None without any."""
    if len(content) <= MAX_BYTES:
        try:
            return values.Span.FromString(bytes(content))
        except DecodeError:
            pass
    message, room = values.Span(), MAX_BYTES
    for number, whole, inner in islice(fields(content), MAX_FIELDS):
        if number == SPAN_ATTRIBUTES and len(whole) > KEPT:
            _add_beginning(message, inner)
            continue
        room -= len(whole)
        try:
            if room > 0:
                message.MergeFrom(values.Span.FromString(bytes(whole)))
        except DecodeError:
            continue
    return message if message.ListFields() else None


def _add_beginning(message: Message, pair: memoryview) -> None:
    """Add what fits of a large attribute. The ends of its texts are marked."""
    added = values.KeyValue()
    _begin_pair(added, pair, storable.MAX_DEPTH, room := [storable.MAX_SPAN])
    if room[0] < storable.MAX_SPAN:
        message.attributes.append(added)


def _begin_pair(pair: Message, data: memoryview, depth: int, room: list[int]) -> None:
    given = {number: content for number, _whole, content in islice(fields(data), MAX_FIELDS)}
    pair.key = bytes(given.get(KEY, data[:0])[:KEPT])
    _begin(pair.value, given.get(VALUE, data[:0]), depth, room)


def _begin(value: Message, data: memoryview, depth: int, room: list[int]) -> None:
    """Set an AnyValue to the beginnings of the texts in it, in objects and lists, too, as many bytes as there is
    room for.
    """
    for number, whole, inner in islice(fields(data), MAX_FIELDS):
        if number in HOLDERS and len(inner) > KEPT:
            items = getattr(value, HOLDERS[number]).values
            for _number, _whole, item in islice(fields(inner), MAX_FIELDS):
                room[0] -= ITEM
                if room[0] <= 0 or not depth:
                    return
                (_begin if number == ARRAY else _begin_pair)(items.add(), item, depth - 1, room)
        elif number == STRING and len(inner) > KEPT:
            kept = bytes(inner[: max(0, min(KEPT, room[0]))])
            value.string_value = kept + "…".encode()
            room[0] -= len(kept) + ITEM
        elif len(whole) < room[0]:
            room[0] -= len(whole) + ITEM
            with contextlib.suppress(DecodeError):
                value.MergeFromString(bytes(whole))
