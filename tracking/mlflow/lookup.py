"""Which projects and runs a call may be about: the caller's own, and of those a job's token sees only its own.

What others share with the caller can be read by its id, and not be changed. An object that is missing, another user's,
or being deleted gets one answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from django.db.models import Model, Q, QuerySet

from accounts.sharing import access
from jobs.models import Job, LoggedModel, Project, State
from mlflow_protocol.protocol import Call, MlflowError, missing
from mlflow_protocol.reading import WrongField, whole_of

# Functions that say whether a path of a run, or of its logged model, may be read by all jobs of the owner, given the
# owner's key, the run, the model or None, and the path: the registry's (models_app.apps).
READABLE: list[Callable[[int, Job, LoggedModel | None, str], bool]] = []
DEFAULT_ID, DEFAULT_NAME = "0", "Default"


def run_key(text: str) -> uuid.UUID | None:
    """Return the key of a run; None for a text that is none."""
    try:
        return uuid.UUID(text) if len(text) == 32 else None
    except ValueError:
        return None


def given_run(call: Call) -> str:
    """Return the id of the run that a call is about. Raises WrongField."""
    return call.fields.text("run_id") or call.fields.text("run_uuid") or call.fields.text("run_id", required=True)


def runs(call: Call, *, write: bool = False) -> QuerySet:
    """Return the runs that a call may read, or write: a job's token its own run and those nested in it."""
    jobs = Job.objects.filter(user=call.caller.user_id).exclude(state=State.DELETING)
    if not call.caller.job_id:
        return jobs
    own = Q(pk=call.caller.job_id) | Q(parent=call.caller.job_id)
    if write:
        return jobs.filter(own)
    project = Job.objects.filter(pk=call.caller.job_id).values("project")
    return jobs.filter(own | Q(project__in=project))


def run_of_owner(call: Call, text: str) -> Job | None:
    """Return the run of the caller's user with that id, also where a job's token does not see it otherwise."""
    jobs = Job.objects.filter(user=call.caller.user_id, run_id=run_key(text)).exclude(state=State.DELETING)
    return jobs.select_related("user", "project").first()


def run(call: Call, *, write: bool = False, trashed: bool = False, text: str | None = None) -> Job:
    """Return the run of a call; to change one in the trash is refused unless `trashed`. Raises MlflowError."""
    text = given_run(call) if text is None else text
    key = run_key(text)
    job = runs(call, write=write).filter(run_id=key).select_related("user", "project").first() if key else None
    if job is None:
        job = _shared(call, _runs_of_others(key))
        if job is None:
            raise missing("Run", text)
        if write:
            raise read_only("run", text)
    if write and not trashed and job.trashed is not None:
        raise deleted(text)
    return job


def model(call: Call, key: str, *, write: bool = False) -> LoggedModel:
    """Return the logged model with that id: who may read or change its run may do so with the model. Raises
    MlflowError.
    """
    row = LoggedModel.objects.select_related("job__user", "job__project").filter(key=key).first()
    own = row is not None and call.caller.job_id and row.user_id == call.caller.user_id
    if own and not write and row.job.state != State.DELETING and is_registered(row.job, row, ""):
        return row
    try:
        run(call, write=write, text=row.job.run_id.hex if row else "")
    except MlflowError as problem:
        if problem.code != "RESOURCE_DOES_NOT_EXIST":
            raise
        raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"Logged model with ID '{key[:100]}' not found.") from None
    return row


def is_registered(job: Job, model: LoggedModel | None, path: str) -> bool:
    """Return whether a path of a run, or of its logged model, is of a registered model of its owner's: a job reads
    those of all projects.
    """
    return any(says(job.user_id, job, model, path) for says in READABLE)


def refused(call: Call, text: str) -> MlflowError:
    """Return the refusal to write a run that is none of the caller's."""
    shared = _shared(call, _runs_of_others(run_key(text)))
    return missing("Run", text) if shared is None else read_only("run", text)


def _runs_of_others(key: uuid.UUID | None) -> QuerySet:
    return Job.objects.filter(run_id=key).exclude(state=State.DELETING).select_related("user", "project")


def _shared(call: Call, rows: QuerySet) -> Model | None:
    """Return the object of another user that the caller may read; a job's token reads none."""
    if call.caller.job_id:
        return None
    row = rows.exclude(user=call.caller.user_id).filter(trashed=None).first()
    if row is None:
        access.grants(access.Visitor(call.user), rows.model, [])  # the same queries as for what is not shared
        return None
    return row if row.pk in access.readings(access.Visitor(call.user), [row]) else None


def read_only(what: str, name: str) -> MlflowError:
    """Return the refusal to change what another user shares with the caller."""
    return MlflowError("PERMISSION_DENIED", f"the {what} {name} is another user's, shared with you to read")


def deleted(run_id: str) -> MlflowError:
    """Return the refusal to change a run in the trash."""
    return MlflowError(
        "INVALID_PARAMETER_VALUE", f"The run {run_id} must be in the 'active' state. Current state is deleted."
    )


def projects(call: Call) -> QuerySet:
    """Return the projects that a call may read."""
    rows = Project.objects.filter(user=call.caller.user_id)
    if call.caller.job_id:
        rows = rows.filter(jobs=call.caller.job_id)
    return rows


def shared_projects(call: Call, keys: list[int]) -> dict[int, int]:
    """Return the keys of those of the projects that others share with the caller, each with its owner's."""
    if call.caller.job_id:
        return {}
    rows = Project.objects.filter(pk__in=keys, trashed=None).exclude(user=call.caller.user_id)
    candidates = list(rows.select_related("user"))
    granted = access.readings(access.Visitor(call.user), candidates) if candidates else {}
    return {row.pk: row.user_id for row in candidates if row.pk in granted}


def project(call: Call, text: str | None = None, *, write: bool = False) -> Project:
    """Return the project of a call. Raises MlflowError."""
    text = call.fields.text("experiment_id", required=True) if text is None else text
    row = project_of(call, text)
    if row is None:
        key = whole_of(text) or 0
        rows = Project.objects.filter(pk=key if 0 < key < 2**63 else 0).select_related("user")
        row = _shared(call, rows)
        if row is None:
            raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"No Experiment with id={text} exists")
        if write:
            raise read_only("experiment", text)
    return row


def project_of(call: Call, text: str) -> Project | None:
    """Return the project with that id; `0` is the default one, which is made when there is none."""
    number = whole_of(text)
    if number is None:
        raise WrongField(f"Invalid experiment ID '{text[:100]}'. Experiment ID must be a valid integer.")
    if number:
        return projects(call).filter(pk=number).first() if 0 < number < 2**63 else None
    if call.caller.job_id:
        return projects(call).first()
    return default(call)


def default(call: Call) -> Project:
    return Project.objects.default_of(call.user)
