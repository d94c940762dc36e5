"""The calls about versions of registered models."""

from __future__ import annotations

import re
from urllib.parse import unquote

from kernel.effects import DESTROY, READ, REGISTER
from kernel.sanitize import UNSTORABLE
from mlflow_protocol.protocol import Call, effect, for_jobs
from mlflow_protocol.reading import WrongField, whole_of
from models_app.models import ModelVersion
from models_app.registry import reading, sources, versions

from . import rights, search, shown
from .registered import PROMPTS, missing_version, named, tags_of

MAX_RESULTS = RESULTS = 10_000
# A client would load what is at such a path of its own machine. A single word is what prompts have.
LOCAL = re.compile(r"\s*(file:|local:|[a-z]:|[./\\~])", re.IGNORECASE)
DECODINGS = 10  # of a source, before it counts as wrong
UPWARDS = re.compile(r"(^|[/\\])\.\.([/\\]|$)")


def of_call(call: Call) -> ModelVersion:
    """Return the version that a request names. Raises MlflowError."""
    row, given = named(call), call.fields.given.get("version")
    if isinstance(given, str) and whole_of(given) is None:
        raise WrongField(f"Parameter 'version' must be an integer, got '{given[:100]}'.")
    number = call.fields.whole("version", low=0, high=2**31 - 1, required=True)
    version = reading.versions().filter(registered=row, number=number).first()
    if version is None:
        raise missing_version(row.name, number)
    return version


def _at(call: Call) -> tuple:
    version = of_call(call)
    return call.user, version.registered.name, version.number


def _answer(pk: int) -> dict:
    return {"model_version": shown.version(reading.versions().get(pk=pk))}


def _checked(source: str) -> str:
    """Return the source of a version. Raises WrongField for one that is local, or leads out of its own folder."""
    text = source
    for _ in range(DECODINGS):
        decoded = unquote(text)
        if UPWARDS.search(decoded) or UNSTORABLE.search(decoded) or LOCAL.match(decoded):
            break
        if decoded == text:
            return source
        text = decoded
    raise WrongField(
        f"Invalid model version source: '{source[:200]}'. If supplying a source as an http, https, local file path, "
        "ftp, objectstore, or mlflow-artifacts uri, an absolute path must be provided without relative path "
        "references present. Local files cannot be registered: log the model to a run first."
    )


@effect(REGISTER)
@for_jobs
def create(call: Call) -> dict:
    """Register a version."""
    fields, row = call.fields, named(call)
    source, run_id = _checked(fields.text("source", required=True)), fields.text("run_id")
    rights.require(call, REGISTER, row.name)
    rights.require_source(call, source, run_id)
    version = versions.create(
        call.user, row.name, source=source, files=sources.files_of(call.user, source, run_id), run_id=run_id,
        run_link=fields.text("run_link"), logged_model=fields.text("model_id"), tags=tags_of(fields),
        description=fields.text("description"), tenant=rights.tenant_of(call), by=call.caller.by,
    )  # fmt: skip
    return _answer(version.pk)


@effect(READ)
@for_jobs
def get(call: Call) -> dict:
    """Return a version."""
    return {"model_version": shown.version(of_call(call))}


@for_jobs
def update(call: Call) -> dict:
    """Change the description."""
    row = of_call(call)
    rights.require_own(call, row)
    if "description" in call.fields:
        text = call.fields.text("description")
        versions.edit(call.user, row.registered.name, row.number, description=text, by=call.caller.by)
    return _answer(row.pk)


@effect(DESTROY)
def delete(call: Call) -> dict:
    """Delete a version."""
    versions.delete(*_at(call), call.caller.by)
    return {}


@effect(READ)
@for_jobs
def find(call: Call) -> dict:
    """Return the versions that match. Without a condition about prompts, those of prompts are left out."""
    fields = call.fields
    most = min(fields.whole("max_results", RESULTS, low=1), MAX_RESULTS)
    condition, about_prompts = search.condition(fields.text("filter"), search.VERSIONS)
    rows = reading.versions().filter(condition, registered__user=call.caller.user_id)
    if not about_prompts:
        rows = rows.exclude(tags__contains=PROMPTS)
    last = (
        ["-updated", "registered__name", "-number"] if not fields.texts("order_by") else ["registered__name", "-number"]
    )
    rows = search.ordered(rows, fields.texts("order_by"), search.VERSIONS, last)
    rows_shown, token = search.page(rows, fields.text("page_token"), most)
    answer = {"model_versions": [shown.version(row) for row in rows_shown]}
    return {**answer, "next_page_token": token} if token else answer


@for_jobs
def set_tag(call: Call) -> dict:
    """Set a tag."""
    rights.require_own(call, of_call(call))
    key, value = call.fields.text("key", required=True), call.fields.text("value")
    versions.set_tag(*_at(call), key, value, call.caller.by)
    return {}


@effect(DESTROY)
def delete_tag(call: Call) -> dict:
    """Delete a tag."""
    versions.delete_tag(*_at(call), call.fields.text("key", required=True), call.caller.by)
    return {}


def set_stage(call: Call) -> dict:
    """Move a version to a stage."""
    row, stage = of_call(call), call.fields.text("stage", required=True)
    archive = call.fields.flag("archive_existing_versions")
    versions.set_stage(call.user, row.registered.name, row.number, stage, archive=archive, by=call.caller.by)
    return _answer(row.pk)


@effect(READ)
@for_jobs
def download_uri(call: Call) -> dict:
    """Return where the files of a version are, as a client can fetch them."""
    return {"artifact_uri": sources.download_uri(of_call(call))}
