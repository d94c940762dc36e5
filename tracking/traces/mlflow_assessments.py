"""The calls by which MLflow's clients write feedback and expectations: log_feedback, log_expectation and evaluate."""

from __future__ import annotations

import json

from jobs.models import Assessment, Trace
from kernel.effects import DESTROY, READ, SUBMIT
from mlflow_protocol.protocol import Call, MlflowError, Routes, effect, for_jobs
from mlflow_protocol.reading import Fields, WrongField

from . import assessments, lookup, mlflow_shown, storable

SOURCES = ("HUMAN", "LLM_JUDGE", "AI_JUDGE", "CODE", "SOURCE_TYPE_UNSPECIFIED")
MAX_METADATA = 100
MAX_ERROR, MAX_PAIRS = 20_000, 64 << 10  # characters of an error, and of the metadata of one assessment
SERIALIZED = "serialized_value"  # the field of an expectation that is a list or an object


@effect(SUBMIT)
@for_jobs
def create(call: Call, trace: str) -> dict:
    row = _own(call, trace)
    return {"assessment": mlflow_shown.assessment(add(row, call.fields.nested("assessment")), row)}


def add(trace: Trace, given: Fields) -> Assessment:
    """Add the assessment of a message to a trace. Raises WrongField, Refused."""
    fields = {"name": given.text("assessment_name", required=True), **_said(given)}
    source = given.nested("source")
    fields["source_type"] = source.text("source_type", "HUMAN")
    if fields["source_type"] not in SOURCES:
        raise WrongField(f"Invalid value for parameter 'source_type': must be one of {', '.join(SOURCES)}")
    fields["source"] = source.text("source_id")[:250]
    fields["span"] = given.text("span_id", most=16)
    fields["overrides"] = given.text("overrides", most=34)
    fields["valid"] = given.flag("valid", True)
    return assessments.add(trace, **fields)


def _own(call: Call, trace: str) -> Trace:
    row = lookup.trace(call, trace, write=True)
    lookup.require_active(row)
    return row


def _said(given: Fields, only: set[str] | None = None) -> dict:
    """Return the columns that a message gives: its value, rationale and metadata; `only` those of a mask."""
    columns: dict = {}
    if "expectation" in given and (only is None or "expectation" in only):
        columns |= {"kind": Assessment.Kind.EXPECTATION, "value": _expected(given.nested("expectation"))}
    elif "feedback" in given and (only is None or "feedback" in only):
        feedback = given.nested("feedback")
        error = storable.attributes(feedback.nested("error").given, MAX_ERROR) if "error" in feedback else None
        columns |= {"kind": Assessment.Kind.FEEDBACK, "value": feedback.given.get("value"), "error": error}
    elif only is None:
        raise WrongField("Missing value for required parameter 'assessment.feedback' or 'assessment.expectation'.")
    if only is None or "rationale" in only:
        columns["rationale"] = given.text("rationale", most=storable.MAX_TEXT)
    if only is None or "metadata" in only:
        metadata = given.given.get("metadata") or {}
        if not isinstance(metadata, dict) or len(metadata) > MAX_METADATA:
            raise WrongField(f"Invalid value for parameter 'metadata': must be at most {MAX_METADATA} pairs")
        columns["metadata"] = {name: str(value) for name, value in storable.attributes(metadata, MAX_PAIRS).items()}
    return columns


def _expected(given: Fields) -> object:
    if SERIALIZED not in given:
        return given.given.get("value")
    try:
        return json.loads(given.nested(SERIALIZED).text("value"))
    except (ValueError, RecursionError):
        raise WrongField("Invalid value for parameter 'serialized_value': must be JSON") from None


@effect(READ)
@for_jobs
def get(call: Call, trace: str, key: str) -> dict:
    row = lookup.trace(call, trace)
    found = Assessment.objects.filter(trace=row, key=key).first()
    if found is None:
        raise _missing(trace, key)
    return {"assessment": mlflow_shown.assessment(found, row)}


@effect(SUBMIT)
@for_jobs
def update(call: Call, trace: str, key: str) -> dict:
    row, given = _own(call, trace), call.fields.nested("assessment")
    only = {_snake(path.strip()) for path in _masked(call.fields) if path}
    columns = _said(given, only)
    if "assessment_name" in only:
        columns["name"] = given.text("assessment_name", required=True)
    if not Assessment.objects.filter(trace=row, key=key).exists():
        raise _missing(trace, key)
    return {"assessment": mlflow_shown.assessment(assessments.change(row, key, **columns), row)}


def _masked(fields: Fields) -> list[str]:
    """Return the names in a FieldMask, which is a text in JSON, or an object with its paths. Raises WrongField."""
    if isinstance(fields.given.get("update_mask"), dict):
        return fields.nested("update_mask").texts("paths")
    return fields.text("update_mask").split(",")


def _snake(path: str) -> str:
    """Return the name of a field: a mask has assessmentName in JSON."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in path)


@effect(DESTROY)
@for_jobs
def delete(call: Call, trace: str, key: str) -> dict:
    assessments.delete(_own(call, trace), key)
    return {}


def _missing(trace: str, key: str) -> MlflowError:
    return MlflowError(
        "RESOURCE_DOES_NOT_EXIST", f"Assessment with ID '{key[:50]}' not found for trace '{trace[:100]}'"
    )


ROUTES_3: Routes = {
    "traces/<str:trace>/assessments": {"POST": create},
    "traces/<str:trace>/assessments/<str:key>": {"GET": get, "PATCH": update, "DELETE": delete},
}
