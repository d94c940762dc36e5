"""What a token that may not do everything may do in the registry: a job's own token, and a named token for submission.

A job registers what its run, those nested in it and those of its project have logged, and other versions; never files
of `.home`, of other jobs or of other projects, which it could then read.
"""

from __future__ import annotations

from jobs.models import Job, LoggedModel
from kernel.effects import REGISTER, Effect
from mlflow_protocol.protocol import Call, MlflowError
from models_app.models import ModelVersion
from models_app.registry import sources
from tracking.mlflow import lookup


def require(call: Call, effect: Effect, name: str) -> None:
    """Refuse a change of a registered model that the token may not make. Raises MlflowError."""
    if not call.caller.rights.may(effect, name):
        raise MlflowError("PERMISSION_DENIED", f"this token may not do that with the registered model {name[:256]}")


def require_source(call: Call, source: str, run_id: str) -> None:
    """Refuse a source whose files the job could not read. Raises MlflowError."""
    if not call.caller.job_id:
        return
    if sources.OWN.match(source) or sources.MODEL.fullmatch(source):
        raise MlflowError("PERMISSION_DENIED", "a job's token registers what its run has logged")
    if logged := sources.LOGGED.fullmatch(source):
        lookup.model(call, logged[1])
    for match in (sources.RUN.fullmatch(source), sources.PROXIED.fullmatch(source)):
        if match:
            lookup.run(call, text=match[2] if match.re is sources.PROXIED else match[1].replace("-", ""))
    if run_id:
        lookup.run(call, text=run_id)


def require_own(call: Call, version: ModelVersion) -> None:
    """Refuse to change a version that no run of the job has made. Raises MlflowError."""
    require(call, REGISTER, version.registered.name)
    if call.caller.job_id and not lookup.runs(call, write=True).filter(pk=version.job_id or 0).exists():
        raise MlflowError("PERMISSION_DENIED", "a job's token changes the versions of its own run only")


def tenant_of(call: Call) -> str | None:
    """Return the tenant whose space the files of a new version take: the job's; None for the user's default one."""
    if not call.caller.job_id:
        return None
    return Job.objects.select_related("tenant").get(pk=call.caller.job_id).tenant.name


def is_registered(user_id: int, job: Job, model: LoggedModel | None, path: str) -> bool:
    """Return whether a path of a run's artifacts, or of its logged model, belongs to a version of the user's."""
    versions = ModelVersion.objects.filter(registered__user=user_id, job=job).select_related("registered__user")
    for version in versions:
        uri = sources.download_uri(version)
        if model is None:
            match = sources.PROXIED.fullmatch(uri)
            same = match and match[2].lower() == job.run_id.hex
            folder = (match[3] or "") if same else None
        else:
            match = sources.LOGGED.fullmatch(uri)
            folder = (match[2] or "") if match and match[1] == model.key else None
        if folder is not None and f"{path.strip('/')}/".startswith(f"{folder.strip('/')}/" if folder else ""):
            return True
    return False
