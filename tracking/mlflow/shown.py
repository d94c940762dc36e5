"""Runs as MLflow has them. In a job's run the script is the source, and the arguments are parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from jobs.models import Job, LoggedModel, ModelUse, RunInput, RunMetric, RunParam, State
from mlflow_protocol.reading import number_out
from tracking import client_runs

from .writing import NAME, NOTE

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

STATUS = {
    "creating": "SCHEDULED",
    "running": "RUNNING",
    "finished": "FINISHED",
    "error": "FAILED",
    "deleting": "KILLED",
}
CONTEXT = "mlflow.data.context"


class Uses(NamedTuple):
    """What a run has read and written, in MLflow's form."""

    datasets: list[dict]
    read: list[dict]
    written: list[dict]


NOTHING = Uses([], [], [])


class Found(NamedTuple):
    """What `info_of` and `tags_of` read of a job, without the job: a page of a search has hundreds.

    Times are milliseconds since 1970.
    """

    run_id: UUID
    project_id: int | None
    history_owner: str
    name: str
    title: str
    entry: str
    origin: str
    state: str
    reserved: bool
    outcome: str
    notes: str
    created: int
    started: int | None
    ended: int | None
    trashed: bool | None
    tags: dict[str, str]
    system_tags: dict[str, str]

    is_client = Job.is_client
    shown_name = Job.shown_name
    was_stopped = Job.was_stopped


def milliseconds(moment: datetime | int | None) -> int | None:
    if not isinstance(moment, datetime):
        return moment
    return ((moment - EPOCH) // timedelta(microseconds=1) + 500) // 1000  # halves up, as PostgreSQL rounds them


def status_of(job: Job | Found) -> str:
    if client_runs.MARKED in job.system_tags and job.state == State.RUNNING:
        return "SCHEDULED"
    return "KILLED" if job.was_stopped else STATUS[job.state]


def tags_of(job: Job | Found) -> dict[str, str]:
    """Return the tags of a run, with what MLflow keeps as tags."""
    tags = {} if job.is_client else {"mlflow.source.name": job.entry, "mlflow.source.type": "JOB"}
    tags |= {key: value for key, value in job.system_tags.items() if key.startswith("mlflow.")}
    tags.setdefault("mlflow.user", job.history_owner)
    if job.notes:
        tags[NOTE] = job.notes
    return {**tags, **job.tags, NAME: job.shown_name}


def artifact_uri(job: Job | Found) -> str:
    """Return the address of a run's artifacts, which clients resolve against the address of their server."""
    return f"mlflow-artifacts:/{job.project_id or 0}/{job.run_id.hex}/artifacts"


def info_of(job: Job | Found) -> dict:
    """Return what is said of a run besides its data."""
    run_id, experiment = job.run_id.hex, str(job.project_id or 0)
    info = {
        "run_id": run_id,
        "run_uuid": run_id,
        "run_name": job.shown_name,
        "experiment_id": experiment,
        "user_id": job.system_tags.get("mlflow.user", job.history_owner),
        "status": status_of(job),
        "start_time": milliseconds(job.started or job.created),
        "artifact_uri": artifact_uri(job),
        "lifecycle_stage": "active" if job.trashed is None else "deleted",
    }
    if job.ended is not None and job.state != State.RUNNING:
        info["end_time"] = milliseconds(job.ended)
    return info


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
            "metrics": [{"key": key, **point, "model_id": model.key} for key, point in sorted(model.metrics.items())],
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
    metrics, params = defaultdict(list), defaultdict(list)
    rows = RunMetric.objects.filter(job__in=started).order_by("job", "name")
    for key, name, value, step, at in rows.values_list("job", "name", "last", "step", "at"):
        stamp = started[key] if at is None else milliseconds(at)
        metrics[key].append({"key": name, "value": number_out(value), "timestamp": stamp, "step": step})
    named = RunParam.objects.filter(job__in=started).order_by("job", "name")
    for key, name, text in named.values_list("job", "name", "text"):
        params[key].append({"key": name, "value": text})
    used = uses_of(started)
    return [run_from(job, metrics[job.pk], params[job.pk], used.get(job.pk, NOTHING)) for job in jobs]


def run_from(job: Job | Found, metrics, params, used: Uses) -> dict:
    """Return a run with what was read of it."""
    return {
        "info": info_of(job),
        "data": {"metrics": metrics, "params": params, "tags": _pairs(tags_of(job))},
        "inputs": {"dataset_inputs": used.datasets, "model_inputs": used.read},
        "outputs": {"model_outputs": used.written},
    }


def uses_of(jobs: Collection[int]) -> dict[int, Uses]:
    """Return by job the datasets and logged models that runs have read and written; nothing for those without any."""
    uses: dict[int, Uses] = defaultdict(lambda: Uses([], [], []))
    for row in RunInput.objects.filter(job__in=jobs):
        uses[row.job_id].datasets.append(input_of(row))
    rows = ModelUse.objects.filter(job__in=jobs).values_list("job", "kind", "model__key", "step")
    for key, kind, model, step in rows:
        if kind == ModelUse.Kind.OUTPUT:
            uses[key].written.append({"model_id": model, "step": step})
        else:
            uses[key].read.append({"model_id": model})
    return dict(uses)


def input_of(row: RunInput) -> dict:
    """Return a dataset that a run has read."""
    dataset = {
        "name": row.name, "digest": row.digest, "source_type": row.source_type, "source": row.source,
        "schema": row.schema, "profile": row.profile,
    }  # fmt: skip
    tags = {**row.tags, **({CONTEXT: row.context} if row.context else {})}
    return {"dataset": dataset, "tags": [{"key": key, "value": value} for key, value in tags.items()]}
