"""The log records of an ExportLogsServiceRequest, as JSON or as protobuf, which is read record by record (pieces.py).

What is odd in one record, attribute or resource loses nothing else. The same record is the same in both forms.
https://github.com/open-telemetry/opentelemetry-proto has the messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber

from kernel import lenient
from kernel import sent_times as times
from kernel.otlp import values
from kernel.otlp.pieces import MAX_BYTES, Pieces, fields

RESOURCE_LOGS = 1  # of ExportLogsServiceRequest
RESOURCE, SCOPE_LOGS, LIBRARY_LOGS = 1, 2, 1000  # of ResourceLogs; the last as releases 0.15 to 0.19 had it
LOG_RECORDS = 2  # of ScopeLogs and InstrumentationLibraryLogs
# The same in JSON, by the names of protobuf and of older releases, too.
BODY_NAMES = ("resourceLogs", "resource_logs")
SCOPE_NAMES = ("scopeLogs", "scope_logs", "instrumentationLibraryLogs", "instrumentation_library_logs")
RECORD_NAMES = ("logRecords", "log_records", "logs")
ABOUT_SCOPE = ("scope", "instrumentationLibrary", "instrumentation_library")
BODY = 5  # of LogRecord
STRING = 1  # of AnyValue
KEPT = 256 << 10  # bytes of the text of a record that is too large
MAX_FIELDS = 10_000  # of a record that is read field by field
TRACE, SPAN = 16, 8  # bytes of ids


@dataclass
class Record:
    """A log record: its time in ns since 1970 (0: none), its line, and what else is said of it, by name."""

    at: int
    text: str
    names: dict[str, object]


@dataclass
class Given:
    """What both forms say of a record."""

    times: tuple[object, object]
    severity: object
    severity_text: str
    body: object
    attributes: dict[str, object]
    trace_id: str
    span_id: str
    event: str

    def record(self, resource: dict[str, object]) -> Record:
        text, rest = values.text_and_rest(self.body)
        names = {**resource, **rest, **self.attributes}
        if severity := self.severity_text or self.severity:
            names["severity"] = severity
        for name, id in (("trace_id", self.trace_id), ("span_id", self.span_id)):
            if id:
                names[name] = id
        # An event may have no body; what it says is then its name or its attributes.
        text = text or self.event or (lenient.text_of(self.attributes) if self.attributes else "")
        if self.event and text != self.event:
            names["event_name"] = self.event
        at = 0
        for given in self.times:
            at = at or times.nanoseconds(given) or 0
        if not at and (odd := next((time for time in self.times if time), None)):
            names["timeUnixNano"] = odd
        return Record(at, text, names)


def read_json(data: bytes) -> Iterator[Record | None]:
    """Yield each record, None for one that cannot be read. Raises ValueError."""
    body = lenient.read_json(data)
    if not isinstance(body, dict):
        raise ValueError("it is not an object")
    if body and not any(name in body for name in BODY_NAMES):
        raise ValueError("there is no resourceLogs")
    for logs in lenient.listed(body, *BODY_NAMES):
        if isinstance(logs, dict):
            yield from _json_records(logs)
        else:
            yield None
    yield from _unread(body, BODY_NAMES)


def _json_records(logs: dict) -> Iterator[Record | None]:
    """Yield the records of one ResourceLogs."""
    resource = logs.get("resource")
    names = values.pairs_of_json(resource.get("attributes")) if isinstance(resource, dict) else {}
    for scope in lenient.listed(logs, *SCOPE_NAMES):
        if not isinstance(scope, dict):
            yield None
            continue
        for record in lenient.listed(scope, *RECORD_NAMES):
            yield _json_record(record, names)
        yield from _unread(scope, (*RECORD_NAMES, *ABOUT_SCOPE))
    yield from _unread(logs, (*SCOPE_NAMES, "resource"))


def _unread(owner: dict, known: tuple[str, ...]) -> Iterator[None]:
    """Yield None for each object under another name, which may be records: none is lost without a word."""
    for _one in lenient.beside(owner, *known):
        yield None


def _json_record(given: object, resource: dict[str, object]) -> Record | None:
    if not isinstance(given, dict):
        return None

    def get(name: str, snake: str) -> object:
        return given.get(name, given.get(snake))

    try:
        return Given(
            (_json_time(get("timeUnixNano", "time_unix_nano")),
             _json_time(get("observedTimeUnixNano", "observed_time_unix_nano"))),
            _severity(get("severityNumber", "severity_number")),
            lenient.text_of(get("severityText", "severity_text")),
            values.of_json(given.get("body")),
            values.pairs_of_json(given.get("attributes")),
            values.id_of_json(get("traceId", "trace_id"), TRACE),
            values.id_of_json(get("spanId", "span_id"), SPAN),
            lenient.text_of(get("eventName", "event_name")),
        ).record(resource)  # fmt: skip
    except RecursionError:
        return None


def _json_time(value: object) -> object:
    """Return the time: clients in JavaScript have sent [seconds, ns], and halves of a number. "0" is none."""
    if isinstance(value, list) and len(value) == 2 and all(type(part) is int for part in value):
        return value[0] * 10**9 + value[1]
    if isinstance(value, dict) and isinstance(value.get("low"), int) and isinstance(value.get("high"), int):
        return (value["high"] << 32) + (value["low"] & 0xFFFFFFFF)
    return None if value == "0" else value


def _severity(value: object) -> str:
    """Return the number as text, also for the enum's name."""
    if isinstance(value, str) and value in SeverityNumber.keys():  # noqa: SIM118 - it is no dict
        value = SeverityNumber.Value(value)
    return "" if value in (0, "0", None) else lenient.text_of(value)


def read_protobuf(data: bytes) -> Iterator[Record | None]:
    """Yield each record, None for one that cannot be read. Raises ValueError for a body of which the rest cannot be
    read.
    """
    pieces = Pieces()
    for number, logs in pieces.of(memoryview(data)):
        if number == RESOURCE_LOGS:
            yield from _records(pieces, logs)


def _records(pieces: Pieces, logs: memoryview) -> Iterator[Record | None]:
    """Yield the records of one ResourceLogs. Its resource may come after them, and in several parts."""
    resource: dict[str, object] = {}
    scopes = []
    for number, content in pieces.of(logs):
        if number == RESOURCE:
            resource |= values.resource_of_protobuf(content)
        elif number in (SCOPE_LOGS, LIBRARY_LOGS):
            scopes.append(content)
    for scope in scopes:
        for number, content in pieces.of(scope, records=True):
            if number == LOG_RECORDS:
                yield _protobuf_record(content, resource)


def _protobuf_record(content: memoryview, resource: dict[str, object]) -> Record | None:
    message = _message(content)
    if message is None:
        return None
    severity = str(message.severity_number) if message.severity_number else ""
    return Given(
        (message.time_unix_nano, message.observed_time_unix_nano),
        severity,
        message.severity_text.decode(*values.UTF8),
        values.of_protobuf(message.body),
        values.pairs_of_protobuf(message.attributes),
        message.trace_id.hex(),
        message.span_id.hex(),
        message.event_name.decode(*values.UTF8),
    ).record(resource)


def _message(content: memoryview) -> Message | None:
    """Return a LogRecord; of one that is damaged or too large those fields that can be read, None without any."""
    if len(content) <= MAX_BYTES:
        try:
            return values.LogRecord.FromString(bytes(content))
        except DecodeError:
            pass
    message, room = values.LogRecord(), MAX_BYTES
    for number, whole, inner in islice(fields(content), MAX_FIELDS):
        if number == BODY and len(whole) > KEPT:
            text = next((text for field, _whole, text in fields(inner) if field == STRING), None)
            if text is not None:
                message.body.string_value = bytes(text[:KEPT])
            continue
        room -= len(whole)
        try:
            if room > 0:
                message.MergeFrom(values.LogRecord.FromString(bytes(whole)))
        except DecodeError:
            continue
    return message if message.ListFields() else None
