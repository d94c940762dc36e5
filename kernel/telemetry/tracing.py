"""Traces, by OpenTelemetry: from a request to the start of the process that it asked for. Off by default.

A trace goes with what it causes: in the headers of a request (W3C `traceparent`), in the options of a task's message,
in the row of a job that waits for its turn, and as TRACEPARENT in the environment of its run.

What sends traces is not imported while they are off, or before a process has its first span: the library is large, and
its threads do not survive the forks in which our processes begin. Spans are sent in the background every few
seconds; those of a killed process are lost, and so are spans that a receiver does not take in time.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from types import ModuleType
from typing import Any

from django.conf import settings
from django.core.exceptions import MiddlewareNotUsed
from dramatiq import Message, Middleware

from . import meters

STANDARD = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
HEADER = "traceparent"
VARIABLE = "TRACEPARENT"
MAX = 55  # characters of a traceparent
QUIET = ("/healthz", "/metrics", "/internal/", settings.STATIC_URL)  # asked too often to be of interest
_lock = threading.Lock()
_made: tuple[int, Any] = (0, None)


@cache
def enabled() -> bool:
    """Return whether there is a receiver for traces."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    return bool(settings.OTLP_ENDPOINT or any(os.environ.get(name) for name in STANDARD))


def _api() -> ModuleType:
    return importlib.import_module("opentelemetry.trace")


def _tracer() -> Any:
    """Return the tracer of this process, made when it is first asked for."""
    global _made
    with _lock:
        if _made[0] != os.getpid():
            _made = os.getpid(), _provider().get_tracer("mlp")
        return _made[1]


def _provider() -> Any:
    sdk = importlib.import_module("opentelemetry.sdk.trace")
    export = importlib.import_module("opentelemetry.sdk.trace.export")
    resources = importlib.import_module("opentelemetry.sdk.resources")
    otlp = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    part = os.environ.get("MLP_PART") or "command"
    about = {"service.name": "mlp", "service.instance.id": f"{part}-{os.getpid()}", "mlp.part": part}
    if name := os.environ.get("OTEL_SERVICE_NAME"):
        about["service.name"] = name
    provider = sdk.TracerProvider(resource=resources.Resource.create(about))
    given = {"endpoint": settings.OTLP_ENDPOINT.rstrip("/") + "/v1/traces"} if settings.OTLP_ENDPOINT else {}
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter(**given)))
    return provider


# --- the context -----------------------------------------------------------------------------------------------------
def traceparent() -> str:
    """Return the current span as W3C writes it, "" where there is none."""
    if not enabled():
        return ""
    carrier: dict[str, str] = {}
    _propagator().inject(carrier)
    return carrier.get(HEADER, "")


def _propagator() -> Any:
    return importlib.import_module("opentelemetry.trace.propagation.tracecontext").TraceContextTextMapPropagator()


def _context(parent: str) -> Any:
    """Return the context with that parent; an empty one, which begins a trace, for text that is no traceparent."""
    empty = importlib.import_module("opentelemetry.context").Context()
    return _propagator().extract({HEADER: parent[:MAX]}, context=empty)


@contextmanager
def span(name: str, kind: str = "INTERNAL", parent: str | None = None, **attributes: Any) -> Iterator[Any]:
    """Run the block as a span below `parent`, or below the current one where None is given; yield it.

    Yields None while traces are off. What the block raises is recorded.
    """
    if not enabled():
        yield None
        return
    context = None if parent is None else _context(parent)
    with _tracer().start_as_current_span(
        name, context=context, kind=getattr(_api().SpanKind, kind), attributes=_known(attributes)
    ) as current:
        yield current


def waited(name: str, since: datetime, parent: str, **attributes: Any) -> None:
    """Record a span from that moment until now, such as the time that something has spent in a queue."""
    if enabled() and parent:
        start = int(since.timestamp() * 1e9)
        _tracer().start_span(name, context=_context(parent), attributes=_known(attributes), start_time=start).end()


def environment() -> dict[str, str]:
    """Return the variable by which a program continues the current trace."""
    current = traceparent()
    return {VARIABLE: current} if current else {}


def _known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes with OpenTelemetry's names: a keyword has `__` for each point."""
    return {name.replace("__", "."): value for name, value in attributes.items() if value is not None}


# --- where traces begin and go on ------------------------------------------------------------------------------------
class TraceRequests:
    """Middleware: a span for each request that a caller makes."""

    def __init__(self, get_response):
        if not enabled():
            raise MiddlewareNotUsed
        self.get_response = get_response

    def __call__(self, request):
        path = request.path_info
        if path.startswith(QUIET):
            return self.get_response(request)
        given = request.META.get("HTTP_TRACEPARENT", "")
        method = request.method if request.method in meters.METHODS else "_OTHER"
        about = {"http__request__method": method, "url__path": path, "url__scheme": request.scheme}
        with span(method, "SERVER", given, **about) as current:
            response = self.get_response(request)
            match = getattr(request, "resolver_match", None)
            if match is not None:
                route = meters.route_name(match.route)
                current.update_name(f"{method} {route}")
                current.set_attribute("http.route", route)
            current.set_attribute("http.response.status_code", response.status_code)
            if response.status_code >= 500:
                current.set_status(_api().StatusCode.ERROR)
            return response


@contextmanager
def sending(message: Message) -> Iterator[None]:
    """Send a task's message within the block, as a span that the message carries to its worker."""
    if not traceparent():  # nothing to go on from
        yield
        return
    with span(f"{message.actor_name} publish", "PRODUCER", **_about(message)):
        message.options[HEADER] = traceparent()
        yield


class TraceTasks(Middleware):
    """A span for each task whose message carries a trace."""

    def __init__(self):
        self.running: dict[str, tuple[Any, Any]] = {}  # by message

    def before_process_message(self, broker, message):
        parent = message.options.get(HEADER)
        if isinstance(parent, str) and parent:
            opened = span(f"{message.actor_name} process", "CONSUMER", parent, **_about(message))
            self.running[message.message_id] = opened, opened.__enter__()

    def after_process_message(self, broker, message, *, result=None, exception=None):
        opened, current = self.running.pop(message.message_id, (None, None))
        if opened is None:
            return
        if exception is not None:
            current.record_exception(exception)
            current.set_status(_api().StatusCode.ERROR, type(exception).__name__)
        opened.__exit__(None, None, None)

    after_skip_message = after_process_message


def _about(message: Message) -> dict[str, Any]:
    return {
        "messaging__system": "dramatiq",
        "messaging__destination__name": message.queue_name,
        "messaging__message__id": message.message_id,
    }
