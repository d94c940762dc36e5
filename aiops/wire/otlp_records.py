"""The log records of an ExportLogsServiceRequest, as JSON or as protobuf, which is read record by record (pieces.py).

https://github.com/open-telemetry/opentelemetry-proto has the messages.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from kernel import sanitize

from .pieces import MOST_BYTES, Pieces

RESOURCE_LOGS = 1  # of ExportLogsServiceRequest
RESOURCE, SCOPE_LOGS = 1, 2  # of ResourceLogs
LOG_RECORDS = 2  # of ScopeLogs
Pair = tuple[Resource, LogRecord | None]  # None for a record that cannot be read


def read_json(data: bytes) -> Iterator[Pair]:
    """Yield each record with its resource. Raises ValueError."""
    if not data.lstrip().startswith(b"{"):
        raise ValueError("it is not an object")
    sanitize.check_count(data)
    message = ExportLogsServiceRequest()
    try:
        json_format.Parse(data, message, ignore_unknown_fields=True)
    except (json_format.ParseError, RecursionError) as problem:
        raise ValueError(str(problem)) from None
    for logs in message.resource_logs:
        for scope in logs.scope_logs:
            for record in scope.log_records:
                yield logs.resource, record


def read_protobuf(data: bytes) -> Iterator[Pair]:
    """Yield each record with its resource, None for one that cannot be read. Raises ValueError for a body of which the
    rest cannot be read.
    """
    pieces = Pieces()
    try:
        for number, logs in pieces.of(memoryview(data)):
            if number == RESOURCE_LOGS:
                yield from _records(pieces, logs)
    except DecodeError as problem:
        raise ValueError(str(problem)) from None


def _records(pieces: Pieces, logs: memoryview) -> Iterator[Pair]:
    """Yield the records of one ResourceLogs. Its resource may come after them, and in several parts."""
    parts, scopes = [], []
    for number, content in pieces.of(logs):
        if number == RESOURCE:
            parts.append(pieces.record(content))
        elif number == SCOPE_LOGS:
            scopes.append(content)
    resource = Resource.FromString(pieces.record(memoryview(b"".join(parts))))
    for scope in scopes:
        for number, content in pieces.of(scope, records=True):
            if number == LOG_RECORDS:
                yield resource, _record(content)


def _record(content: memoryview) -> LogRecord | None:
    if len(content) > MOST_BYTES:
        return None
    try:
        return LogRecord.FromString(bytes(content))
    except DecodeError:
        return None
