"""Where the files of a new version are, by the source that the caller names.

    jobs/{job}, jobs/{job}/{path}, home/{path}     as for a model
    models/{name}                                  a model of the caller's
    runs:/{run id}/{path}                          an artifact of a run, else its logged model of that name, else a
                                                   file of its output
    mlflow-artifacts:/{experiment}/{run id}/artifacts/{path}
    models:/{id}, mlflow-artifacts:/{experiment}/models/{id}/artifacts/{path}     a logged model, or a file of it
    models:/{name}/{version}, models:/{name}@{alias}   the files of another version

Anything else is elsewhere, and so is what cannot be found: MLflow's clients register versions before their files are
there, and versions of files in stores that the platform does not know.
"""

from __future__ import annotations

import re
import uuid
from contextlib import suppress

from jobs.artifacts.finished import finished_job
from jobs.models import Job, LoggedModel
from kernel import copying, storage
from kernel.errors import Refused
from models_app import lifecycle
from models_app.models import Model, ModelVersion, RegisteredModel, State

from . import registered
from .versions import Files

ARTIFACTS = "artifacts"  # the folder of a run's output that has its MLflow artifacts
LOGGED_FOLDER = "models"  # and that of the models that it has logged
OWN = re.compile(r"(jobs|home)/")
MODEL = re.compile(r"models/([a-z]{1,50})")
RUN = re.compile(r"runs:/+([0-9a-fA-F-]{32,36})(?:/(.*))?", re.DOTALL)
PROXIED = re.compile(r"mlflow-artifacts:/+(?:[^/]+/)?([0-9]+)/([0-9a-fA-F]{32})/artifacts(?:/(.*))?", re.DOTALL)
LOGGED = re.compile(
    r"(?:models:/+|mlflow-artifacts:/+(?:[^/]+/)?[0-9]+/models/)(m-[0-9a-f]{32})(?:/artifacts)?(?:/(.*))?", re.DOTALL
)
VERSION = re.compile(r"models:/+([^/@]+)(?:/([0-9]+)|@([\w-]+))")


def files_of(user, source: str, run_id: str = "") -> Files:
    """Return where the files of a source are. Raises Refused for a source of the platform's own that is not there."""
    if OWN.match(source):
        kind, job_name, _path = copying.parse(source)
        job = finished_job(user, job_name) if kind == "jobs" else None
        return Files(origin=lifecycle.measured(user, source, job), job=job)
    if named := MODEL.fullmatch(source):
        model = _model(user, named[1])
        return Files(model=model, job=_run(user, run_id) or _origin(model))
    job = _run(user, run_id)
    if match := LOGGED.fullmatch(source):
        model = _logged(user, match[1])
        return Files(job=job) if model is None else _of_logged(user, model, match[2] or "")
    if same := VERSION.fullmatch(source):
        return _of_version(user, *same.groups())
    if match := RUN.fullmatch(source):
        job = _run(user, match[1]) or job
        return _of_run(user, job, match[2] or "")
    if match := PROXIED.fullmatch(source):
        job = _run(user, match[2]) or job
        return _of_run(user, job, match[3] or "")
    return Files(job=job)


def download_uri(version: ModelVersion) -> str:
    """Return where a client of MLflow fetches the files of a version: its source, as far as that is known."""
    user = version.registered.user
    if match := RUN.fullmatch(version.source):
        job = _run(user, match[1])
        if job is not None:
            path = match[2] or ""
            model, rest = _named(job, path)
            own = model is None or _has_artifact(job, path)
            return artifact_uri(job, path) if own else logged_uri(model, rest)
    if match := LOGGED.fullmatch(version.source):
        model = _logged(user, match[1])
        if model is not None:
            return logged_uri(model, match[2] or "")
    if same := VERSION.fullmatch(version.source):
        row = RegisteredModel.objects.filter(user=user, name=same[1]).first()
        with suppress(Refused):
            other = row and (registered.version_of_alias(row, same[3]) if same[3] else _numbered(row, int(same[2])))
            if other and other.pk != version.pk and not VERSION.fullmatch(other.source):
                return download_uri(other)
    return version.source


def artifact_uri(job: Job, path: str) -> str:
    """Return the address of an artifact of a run, as MLflow's clients resolve it against their server."""
    return f"mlflow-artifacts:/{job.project_id}/{job.run_id.hex}/artifacts/{path}".rstrip("/")


def logged_uri(model: LoggedModel, path: str) -> str:
    """Return the address of a logged model's files, in the same form."""
    return f"mlflow-artifacts:/{model.job.project_id}/models/{model.key}/artifacts/{path}".rstrip("/")


def _logged(user, key: str) -> LoggedModel | None:
    return LoggedModel.objects.select_related("job").filter(user=user, key=key).first()


def _named(job: Job, path: str) -> tuple[LoggedModel | None, str]:
    """Return the newest logged model of a run whose name a path begins with, and the rest of the path."""
    name, _slash, rest = path.strip("/").partition("/")
    models = LoggedModel.objects.select_related("job").filter(job=job, name=name)
    return models.order_by("-created").first(), rest


def _has_artifact(job: Job, path: str) -> bool:
    with suppress(Refused):
        folder = storage.job_dir(job.user.username, job.name)
        return storage.status(folder, f"{ARTIFACTS}/{path.strip('/')}") is not None
    return False


def _of_logged(user, model: LoggedModel, path: str) -> Files:
    """Return the files of a logged model."""
    src = "/".join(filter(None, ("jobs", model.job.name, LOGGED_FOLDER, model.key, path.strip("/"))))
    with suppress(Refused):
        return Files(origin=lifecycle.measured(user, src, model.job), job=model.job)
    return Files(job=model.job)


def _run(user, run_id: str) -> Job | None:
    try:
        return Job.objects.filter(user=user, run_id=uuid.UUID(run_id)).select_related("user").first()
    except ValueError:
        return None


def _of_run(user, job: Job | None, path: str) -> Files:
    """Return the files at a path of a run: an artifact, else a file of the job's output."""
    if job is not None:
        for folder in (ARTIFACTS, LOGGED_FOLDER, ""):
            if folder == LOGGED_FOLDER:
                model, rest = _named(job, path)
                if model is not None and (files := _of_logged(user, model, rest)).origin is not None:
                    return files
                continue
            src = "/".join(filter(None, ("jobs", job.name, folder, path.strip("/"))))
            if src != f"jobs/{job.name}":
                with suppress(Refused):
                    return Files(origin=lifecycle.measured(user, src, job), job=job)
    return Files(job=job)


def _model(user, name: str) -> Model:
    model = Model.kept.filter(user=user, name=name).exclude(state=State.DELETING).first()
    if model is None:
        raise Refused("you have no model named %(name)s", field="source", name=name)
    return model


def _origin(model: Model) -> Job | None:
    """Return the run whose output a model is, unless it is gone and another one has its name."""
    lineage = model.lineage if isinstance(model.lineage, dict) else {}
    job = Job.objects.filter(user=model.user, name=str(lineage.get("job", ""))).select_related("user").first()
    ended = job.ended.isoformat() if job is not None and job.ended else None
    return job if job is not None and ended == lineage.get("ended") else None


def _of_version(user, name: str, number: str | None, alias: str | None) -> Files:
    row = RegisteredModel.objects.filter(user=user, name=name).first()
    if row is None:
        return Files()
    with suppress(Refused):
        version = registered.version_of_alias(row, alias) if alias else _numbered(row, int(number or 0))
        if version is not None:
            return Files(model=version.model, job=version.job)
    return Files()


def _numbered(row: RegisteredModel, number: int) -> ModelVersion | None:
    return row.versions.select_related("model", "job").filter(number=number).first()
