"""Traces, spans and assessments as MLflow 3 has them: protocol buffers' JSON, ids of spans in base64."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from jobs.models import Assessment, Span, Trace

from .lookup import id_of
from .recording import COST, SESSION, USAGE

STATES = {Trace.Status.IN_PROGRESS: "IN_PROGRESS", Trace.Status.OK: "OK", Trace.Status.ERROR: "ERROR"}
CODES = {Span.Status.UNSET: 0, Span.Status.OK: 1, Span.Status.ERROR: 2}
KINDS = {"": 0, "internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
NAME = "mlflow.traceName"
LOCATION = "mlflow.trace.spansLocation"  # a tag: the client reads the spans from here, and uploads no file of them
SCHEMA = "mlflow.trace_schema.version"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INT64 = 2**63


def info(trace: Trace, said: Iterable[Assessment]) -> dict:
    """Return what is known of a trace, without its spans."""
    shown = {
        "trace_id": id_of(trace.key),
        "trace_location": {
            "type": "MLFLOW_EXPERIMENT",
            "mlflow_experiment": {"experiment_id": str(trace.project_id)},
        },
        "request_preview": trace.request,
        "response_preview": trace.response,
        "request_time": time_of_ns(trace.started_ns),
        "state": STATES[trace.status],
        "trace_metadata": metadata(trace),
        "tags": {NAME: trace.name, **trace.tags, LOCATION: "TRACKING_STORE"},
        "assessments": [assessment(row, trace) for row in said],
    }
    if trace.duration_ns is not None:
        shown["execution_duration"] = f"{trace.duration_ns // 10**9}.{trace.duration_ns % 10**9:09}s"
    if client_id := trace.metadata.get("client_request_id"):
        shown["client_request_id"] = client_id
    return shown


def metadata(trace: Trace) -> dict[str, str]:
    """Return the metadata that a client has sent, with what the spans say beside it."""
    given = {name: value for name, value in trace.metadata.items() if name != "client_request_id"}
    more: dict[str, str] = {SCHEMA: "3"}
    if trace.tokens is not None:
        more[USAGE] = (
            f'{{"input_tokens": {trace.input_tokens or 0}, "output_tokens": {trace.output_tokens or 0}, '
            f'"total_tokens": {trace.tokens}}}'
        )
    if trace.cost is not None:
        more[COST] = f'{{"total_cost": {trace.cost!r}}}'
    if trace.session:
        more[SESSION] = trace.session
    return {**more, **given}


def time_of_ns(ns: int) -> str:
    """Return a time as a Timestamp of protocol buffers has it."""
    return text_of_time(EPOCH + timedelta(microseconds=ns // 1000))


def text_of_time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# --- spans ------------------------------------------------------------------------------------------------------------
def span(row: Span, trace: str) -> dict:
    """Return a span as OTLP has it, in the JSON of protocol buffers, where ids are base64."""
    return {
        "trace_id": base64_of(trace),
        "span_id": base64_of(row.key),
        **({"parent_span_id": base64_of(row.parent)} if row.parent else {}),
        "name": row.name,
        "kind": KINDS.get(row.kind, 0),
        "start_time_unix_nano": str(row.started_ns),
        "end_time_unix_nano": str(row.ended_ns or 0),
        "attributes": pairs(row.attributes),
        "events": [
            {"time_unix_nano": str(event["at_ns"]), "name": event["name"], "attributes": pairs(event["attributes"])}
            for event in row.events
        ],
        "status": {"code": CODES[row.status], "message": row.message},
    }


def base64_of(digits: str) -> str:
    """Return the bytes of an id of hex digits as base64."""
    return b64encode(bytes.fromhex(digits)).decode()


def pairs(values: dict[str, object]) -> list[dict]:
    """Return attributes as a list of KeyValue."""
    return [{"key": name, "value": any_value(value)} for name, value in values.items()]


def any_value(value: object) -> dict:
    """Return a plain value as AnyValue."""
    match value:
        case bool():
            return {"bool_value": value}
        case int() if -INT64 <= value < INT64:
            return {"int_value": str(value)}
        case int():
            return {"string_value": str(value)}
        case float():
            return {"double_value": value}
        case str():
            return {"string_value": value}
        case list():
            return {"array_value": {"values": [any_value(item) for item in value]}}
        case dict():
            return {"kvlist_value": {"values": pairs(value)}}
    return {}


# --- assessments ------------------------------------------------------------------------------------------------------
def assessment(row: Assessment, trace: Trace) -> dict:
    shown = {
        "assessment_id": row.key,
        "assessment_name": row.name,
        "trace_id": id_of(trace.key),
        "source": {"source_type": row.source_type, "source_id": row.source},
        "create_time": text_of_time(row.created),
        "last_update_time": text_of_time(row.updated),
        "rationale": row.rationale,
        "metadata": row.metadata,
        "valid": row.valid,
    }
    if row.span:
        shown["span_id"] = row.span
    if row.overrides:
        shown["overrides"] = row.overrides
    if row.kind == Assessment.Kind.EXPECTATION:
        shown["expectation"] = expectation(row.value)
    else:
        shown["feedback"] = {"value": row.value, **({"error": row.error} if row.error else {})}
    return shown


def expectation(value: object) -> dict:
    """Return an expected value: lists and objects as JSON text, as MLflow has them."""
    if isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=False)
        return {"serialized_value": {"serialization_format": "JSON_FORMAT", "value": text}}
    return {"value": value}
