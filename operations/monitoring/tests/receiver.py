"""A receiver of traces: OTLP over HTTP, as a collector takes it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Span(NamedTuple):
    """A span that came: ids in hexadecimal, times in nanoseconds."""

    name: str
    trace: str
    id: str
    parent: str
    began: int
    ended: int
    kind: int
    attributes: dict[str, str]
    resource: dict[str, str]


class Receiver:
    """Listens on a port of the loopback interface, and keeps what comes."""

    def __init__(self):
        self.spans: list[Span] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces"
                assert self.headers["Content-Type"] == "application/x-protobuf"
                receiver.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            about = texts(resource.resource.attributes)
            for scope in resource.scope_spans:
                for span in scope.spans:
                    times = span.start_time_unix_nano, span.end_time_unix_nano
                    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                    self.spans.append(Span(span.name, *ids, *times, span.kind, texts(span.attributes), about))

    def of(self, trace: str) -> dict[str, Span]:
        """Return the spans of a trace by their names."""
        return {span.name: span for span in list(self.spans) if span.trace == trace}

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def texts(attributes) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value or str(attribute.value.int_value) for attribute in attributes}
