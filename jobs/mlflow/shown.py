"""Runs as MLflow has them. In a job's run the script is the source, and the arguments are parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from jobs import client_runs
from jobs.models import Job, LoggedModel, ModelUse, RunInput, RunMetric, RunParam, State

from .reading import number_out
from .writing import NAME, NOTE

STATUS = {
    "creating": "SCHEDULED",
    "running": "RUNNING",
    "finished": "FINISHED",
    "error": "FAILED",
    "cancelled": "KILLED",
    "deleting": "KILLED",
}
CONTEXT = "mlflow.data.context"
# The columns of runs that `runs_of` needs: a page of runs is read several times faster without the others.
READ = (
    "run_id", "project_id", "user_id", "name", "title", "entry", "origin", "state", "reserved", "reason", "notes",
    "tags", "system_tags", "created", "started", "ended", "trashed",
)  # fmt: skip


def milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def status_of(job: Job) -> str:
    if client_runs.MARKED in job.system_tags and job.state == State.RUNNING:
        return "SCHEDULED"
    return STATUS["cancelled" if job.shown_state == "cancelled" else job.state]


def tags_of(job: Job) -> dict[str, str]:
    """Return the tags of a run, with what MLflow keeps as tags."""
    found = {} if job.is_client else {"mlflow.source.name": job.entry, "mlflow.source.type": "JOB"}
    found |= {key: value for key, value in job.system_tags.items() if key.startswith("mlflow.")}
    found.setdefault("mlflow.user", job.user.username)
    if job.notes:
        found[NOTE] = job.notes
    return {**found, **job.tags, NAME: job.shown_name}


def artifact_uri(job: Job) -> str:
    """Return the address of a run's artifacts, which clients resolve against the address of their server."""
    return f"mlflow-artifacts:/{job.project_id or 0}/{job.run_id.hex}/artifacts"


def info_of(job: Job) -> dict:
    """Return what is said of a run besides its data."""
    run_id, experiment = job.run_id.hex, str(job.project_id or 0)
    found = {
        "run_id": run_id,
        "run_uuid": run_id,
        "run_name": job.shown_name,
        "experiment_id": experiment,
        "user_id": job.system_tags.get("mlflow.user", job.user.username),
        "status": status_of(job),
        "start_time": milliseconds(job.started or job.created),
        "artifact_uri": artifact_uri(job),
        "lifecycle_stage": "active" if job.trashed is None else "deleted",
    }
    if job.ended is not None and job.state != State.RUNNING:
        found["end_time"] = milliseconds(job.ended)
    return found


def logged_model(model: LoggedModel) -> dict:
    """Return a logged model."""
    job = model.job
    return {
        "info": {
            "model_id": model.key,
            "experiment_id": str(job.project_id or 0),
            "name": model.name,
            "creation_timestamp_ms": milliseconds(model.created),
            "last_updated_timestamp_ms": milliseconds(model.updated),
            "artifact_uri": f"mlflow-artifacts:/{job.project_id or 0}/models/{model.key}/artifacts",
            "status": model.status,
            "model_type": model.model_type,
            "source_run_id": job.run_id.hex if model.has_source else "",
            "tags": _pairs(model.tags),
        },
        "data": {
            "params": _pairs(model.params),
            "metrics": [{"key": key, **one, "model_id": model.key} for key, one in sorted(model.metrics.items())],
        },
    }


def _pairs(given: dict[str, str]) -> list[dict]:
    return [{"key": key, "value": value} for key, value in given.items()]


def run_of(job: Job) -> dict:
    return runs_of([job])[0]


def runs_of(jobs: Iterable[Job]) -> list[dict]:
    """Return runs with their data: the last value of each metric, parameters, tags and inputs."""
    jobs = list(jobs)
    started = {job.pk: milliseconds(job.started or job.created) for job in jobs}
    metrics, params, inputs = defaultdict(list), defaultdict(list), defaultdict(list)
    rows = RunMetric.objects.filter(job__in=started).order_by("job", "name")
    for key, name, value, step, at in rows.values_list("job", "name", "last", "step", "at"):
        stamp = started[key] if at is None else milliseconds(at)
        metrics[key].append({"key": name, "value": number_out(value), "timestamp": stamp, "step": step})
    named = RunParam.objects.filter(job__in=started).order_by("job", "name")
    for key, name, text in named.values_list("job", "name", "text"):
        params[key].append({"key": name, "value": text})
    for row in RunInput.objects.filter(job__in=started):
        inputs[row.job_id].append(input_of(row))
    uses = defaultdict(list)
    for key, kind, model, step in ModelUse.objects.filter(job__in=started).values_list(
        "job", "kind", "model__key", "step"
    ):
        uses[key, kind].append({"model_id": model, **({"step": step} if kind == ModelUse.Kind.OUTPUT else {})})
    return [
        {
            "info": info_of(job),
            "data": {
                "metrics": metrics[job.pk],
                "params": params[job.pk],
                "tags": [{"key": key, "value": value} for key, value in tags_of(job).items()],
            },
            "inputs": {"dataset_inputs": inputs[job.pk], "model_inputs": uses[job.pk, ModelUse.Kind.INPUT]},
            "outputs": {"model_outputs": uses[job.pk, ModelUse.Kind.OUTPUT]},
        }
        for job in jobs
    ]


def input_of(row: RunInput) -> dict:
    """Return a dataset that a run has read."""
    dataset = {
        "name": row.name, "digest": row.digest, "source_type": row.source_type, "source": row.source,
        "schema": row.schema, "profile": row.profile,
    }  # fmt: skip
    tags = {**row.tags, **({CONTEXT: row.context} if row.context else {})}
    return {"dataset": dataset, "tags": [{"key": key, "value": value} for key, value in tags.items()]}
