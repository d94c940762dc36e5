"""Logged models, which MLflow 3 has: they are created pending, their files are uploaded, and then they are finalized.

A model belongs to the run that has logged it, is read by those who read the run, and is deleted with it. One that is
logged outside of a run gets a run of its own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping

from django.db import transaction
from django.http import HttpResponseBase
from django.utils import timezone

from jobs.artifacts import files
from jobs.models import Job, LoggedModel, ModelUse
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.locking import lock_row
from mlflow_protocol import limits
from mlflow_protocol.protocol import Call, MlflowError, Routes, effect, for_jobs
from mlflow_protocol.reading import Fields, WrongField, number_of, number_out, whole_of
from tracking import client_runs

from . import artifact_paths, artifacts, lookup, runs, writing
from .shown import logged_model as shown_model

ODD = set("/:.%\"'")  # what the name of a model cannot have, as with MLflow's own server
PARAMS, TAGS, METRICS = 10_000, 1000, 10_000  # of one model
USES = 1000  # of one request
HISTORY, MAX_HISTORY = "mlflow.log-model.history", 100_000  # characters
NUMBERED = {1: "LOGGED_MODEL_PENDING", 2: "LOGGED_MODEL_READY", 3: "LOGGED_MODEL_UPLOAD_FAILED"}


@effect(SUBMIT)
@for_jobs
def create(call: Call) -> dict:
    fields = call.fields
    name = fields.text("name", most=limits.MAX_NAME) or f"{runs.any_name()}-{random.randrange(1000)}"
    if ODD & set(name):
        raise WrongField(f"Invalid model name ('{name[:100]}'): it must not contain {' '.join(sorted(ODD))}")
    given = {
        "name": name,
        "model_type": fields.text("model_type", most=500),
        "params": _params(fields),
        "tags": _tags(fields),
    }
    source = fields.text("source_run_id")
    if source or call.caller.job_id:
        job = lookup.run(call, write=True, **({"text": source} if source else {"text": _own_run(call)}))
    else:
        job = _run_of(call, name)
    model = LoggedModel.objects.create(user_id=job.user_id, job=job, has_source=bool(source), **given)
    _wake(call, job)
    return {"model": shown_model(model)}


def _own_run(call: Call) -> str:
    return Job.objects.get(pk=call.caller.job_id).run_id.hex


def _run_of(call: Call, name: str) -> Job:
    """Create the run of a model that was logged outside of one; it is finished at once."""
    project = lookup.project(call, call.fields.text("experiment_id", lookup.DEFAULT_ID), write=True)
    job = client_runs.create(
        call.user, project, title=name, started=timezone.now(), by=call.caller.by, tenant=call.workspace
    )
    client_runs.report(job.pk, state=client_runs.FINISHED, by=call.caller.by)
    return job


@effect(READ)
@for_jobs
def get(call: Call, key: str) -> dict:
    return {"model": shown_model(lookup.model(call, key))}


@effect(SUBMIT)
@for_jobs
def finalize(call: Call, key: str) -> dict:
    """Record whether the upload of the files has succeeded."""
    lookup.model(call, key, write=True)
    given = call.fields.given.get("status")
    status = NUMBERED.get(given, given) if not isinstance(given, bool) else None
    if status not in (LoggedModel.Status.READY, LoggedModel.Status.FAILED):
        raise WrongField("Invalid value for parameter 'status': must be LOGGED_MODEL_READY or _UPLOAD_FAILED")
    return {"model": shown_model(_change(call, key, {"status": status}))}


@effect(DESTROY)
def delete(call: Call, key: str) -> dict:
    """Delete a model with its files."""
    model = lookup.model(call, key, write=True)
    place = artifact_paths.of_model(model, "")
    model.delete()
    files.remove(place.job, place.path)
    _wake(call, place.job)
    return {}


@effect(SUBMIT)
@for_jobs
def set_tags(call: Call, key: str) -> dict:
    _change(call, key, {"tags": _tags(call.fields)})
    return {}


@effect(DESTROY)
@for_jobs
def delete_tag(call: Call, key: str, tag: str) -> dict:
    row = lookup.model(call, key, write=True)
    with transaction.atomic():
        model = lock_row(LoggedModel, pk=row.pk)
        if model is None or model.tags.pop(tag, None) is None:
            raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"No tag with key '{tag[:250]}' for model with ID '{key}'.")
        model.save(update_fields=["tags", "updated"])
    return {}


@effect(SUBMIT)
@for_jobs
def log_params(call: Call, key: str) -> dict:
    _change(call, key, {"params": _params(call.fields)})
    return {}


def _params(fields: Fields) -> dict[str, str]:
    pairs = fields.pairs("params", PARAMS)
    return {limits.key(name): value[: limits.MAX_PARAM] for name, value in pairs}


def _tags(fields: Fields) -> dict[str, str]:
    return {limits.tag_key(name): value[: limits.MAX_TAG] for name, value in fields.pairs("tags", TAGS)}


def _change(call: Call, key: str, by: dict) -> LoggedModel:
    """Store the status of a model, and add tags and parameters. Raises MlflowError, WrongField."""
    row = lookup.model(call, key, write=True)
    with transaction.atomic():
        model = lock_row(LoggedModel, pk=row.pk)
        if model is None:
            raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"Logged model with ID '{key}' not found.")
        for field, value in by.items():
            setattr(model, field, {**getattr(model, field), **value} if isinstance(value, Mapping) else value)
        if len(model.params) > PARAMS or len(model.tags) > TAGS:
            raise WrongField(f"a model has at most {PARAMS} parameters and {TAGS} tags")
        model.save(update_fields=[*by, "updated"])
    model.job = row.job
    _wake(call, row.job)
    return model


def _wake(call: Call, job: Job) -> None:
    writing.PAGES.wake(job.pk, call.caller.username, job.name)


# --- files ------------------------------------------------------------------------------------------------------------
@effect(READ)
@for_jobs
def listing(call: Call, key: str) -> dict:
    """List a folder of a model's files, with paths relative to the model's."""
    model, inner = lookup.model(call, key), call.fields.text("artifact_directory_path").strip("/")
    entries = artifacts.entries(artifact_paths.of_model(model, inner), inner)
    return {"root_uri": shown_model(model)["info"]["artifact_uri"], "files": entries}


@effect(READ)
@for_jobs
def file(call: Call, key: str) -> HttpResponseBase:
    model, inner = lookup.model(call, key), call.fields.text("artifact_file_path", required=True)
    return artifacts.send(call, artifact_paths.of_model(model, inner))


# --- the models of a run ----------------------------------------------------------------------------------------------
@effect(SUBMIT)
@for_jobs
def log_inputs(call: Call) -> dict:
    """Record the datasets and models that a run reads."""
    job = lookup.run(call, write=True)
    runs.log_datasets(call, job)
    note_uses(call, job, ModelUse.Kind.INPUT)
    return {}


@effect(SUBMIT)
@for_jobs
def log_outputs(call: Call) -> dict:
    """Record the models that a run has made."""
    note_uses(call, lookup.run(call, write=True), ModelUse.Kind.OUTPUT)
    return {}


def note_uses(call: Call, job: Job, kind: ModelUse.Kind) -> None:
    """Record the models of a request as inputs or outputs of a run. Raises MlflowError, WrongField."""
    rows: dict[int, ModelUse] = {}  # a client may name a model twice: the last counts
    for message in call.fields.messages("models", USES):
        model = lookup.model(call, message.text("model_id", required=True))
        rows[model.pk] = ModelUse(job=job, model=model, kind=kind, step=message.whole("step", 0))
    if rows:
        ModelUse.objects.bulk_create(
            rows.values(), update_conflicts=True, unique_fields=["job", "model", "kind"], update_fields=["step"]
        )
        _wake(call, job)


@effect(SUBMIT)
@for_jobs
def log_model(call: Call) -> dict:
    """Record a model as MLflow 2 does: its description is added to a list, which is a tag of the run."""
    run = lookup.run(call, write=True)
    try:
        said = json.loads(call.fields.text("model_json", required=True))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or any(name not in said for name in ("artifact_path", "flavors", "utc_time_created")):
        raise WrongField("Invalid value for parameter 'model_json': must describe a model in JSON")
    with transaction.atomic():
        job = lock_row(Job, pk=run.pk) or run
        try:
            history = json.loads(job.system_tags.get(HISTORY, "[]"))
        except ValueError:
            history = []
        text = json.dumps([*(history if isinstance(history, list) else []), said])
        if len(text) > MAX_HISTORY:
            raise WrongField(f"the descriptions of the run's models have more than {MAX_HISTORY} characters")
        job.system_tags = {**job.system_tags, HISTORY: text}
        job.save(update_fields=["system_tags"])
    _wake(call, run)
    return {}


def note_metrics(call: Call, run: str, rows: Iterable[dict]) -> None:
    """Keep the metrics that were logged for a model with it: of each the last. Models that are not there, or not to be
    changed, are left out: the metric is the run's in any case.
    """
    by_model: dict[str, dict[str, dict]] = {}
    for row in rows:
        key = row.get("model_id")
        if isinstance(key, str) and key:
            kept = {
                "value": number_out(number_of(row["value"])),
                "timestamp": whole_of(row["timestamp"]),
                "step": whole_of(row.get("step") or 0),
            }
            extra = {name: str(row[name])[:500] for name in ("dataset_name", "dataset_digest") if row.get(name)}
            by_model.setdefault(key, {})[row["key"]] = {**kept, **extra, "run_id": row.get("run_id") or run}
    for key, metrics in by_model.items():
        own = lookup.runs(call, write=True)
        with transaction.atomic():
            logged = LoggedModel.objects.filter(key=key, job__in=own).first()
            model = logged and lock_row(LoggedModel, pk=logged.pk)
            if model is not None and len(model.metrics) + len(metrics) <= METRICS:
                model.metrics = {**model.metrics, **metrics}
                model.save(update_fields=["metrics", "updated"])


ROUTES: Routes = {
    "logged-models": {"POST": create},
    "logged-models/<str:key>": {"GET": get, "PATCH": finalize, "DELETE": delete},
    "logged-models/<str:key>/tags": {"PATCH": set_tags},
    "logged-models/<str:key>/tags/<path:tag>": {"DELETE": delete_tag},
    "logged-models/<str:key>/params": {"POST": log_params},
    "logged-models/<str:key>/artifacts/directories": {"GET": listing},
    "logged-models/<str:key>/artifacts/files": {"GET": file},
    "runs/log-inputs": {"POST": log_inputs},
    "runs/outputs": {"POST": log_outputs},
    "runs/log-model": {"POST": log_model},
}
