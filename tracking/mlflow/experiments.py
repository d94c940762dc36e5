"""Experiments are projects. An experiment's description, the tag mlflow.note.content, is the project's readme."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Case, Q, TextField, Value, When
from django.db.models.functions import Cast

from jobs.models import Project
from jobs.summaries import labels
from kernel import after_commit
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.errors import Refused
from kernel.locking import lock_row
from mlflow_protocol import limits
from mlflow_protocol.protocol import Call, MlflowError, Routes, effect, for_jobs
from mlflow_protocol.reading import WrongField
from tracking.runs import projects

from . import lookup
from .shown import milliseconds
from .writing import NOTE

ACTIVE, DELETED = "active", "deleted"


# The default project is made as `default`, which MLflow's clients know as `Default`.
UNNAMED = Q(default=True, name="default")
NAME = Case(When(UNNAMED, then=Value(lookup.DEFAULT_NAME)), default=Cast("name", TextField()), output_field=TextField())


def tags_of(project: Project) -> list[dict]:
    """Return the tags of a project as MLflow has them."""
    note = {NOTE: project.readme} if project.readme else {}
    return [{"key": key, "value": value} for key, value in {**project.tags, **project.system_tags, **note}.items()]


def shown(project: Project) -> dict:
    """Return a project as an experiment."""
    return {
        "experiment_id": str(project.pk),
        "name": lookup.DEFAULT_NAME if project.default and project.name == "default" else project.name,
        "artifact_location": f"mlflow-artifacts:/{project.pk}",
        "lifecycle_stage": ACTIVE if project.trashed is None else DELETED,
        "creation_time": milliseconds(project.created),
        "last_update_time": milliseconds(project.updated),
        "tags": tags_of(project),
    }


@effect(READ)
@for_jobs
def get(call: Call) -> dict:
    return {"experiment": shown(lookup.project(call))}


@effect(READ)
@for_jobs
def get_by_name(call: Call) -> dict:
    """Return the experiment of that name. For a job's token each name is that of the job's own project, so that a
    script which calls set_experiment runs unchanged, and fills the job's run.
    """
    name = call.fields.text("experiment_name", required=True)
    if call.caller.job_id:
        project = lookup.projects(call).first()
    else:
        rows = lookup.projects(call).filter(name=name)
        project = rows.filter(trashed=None).first() or rows.order_by("-trashed").first()
        if project is None and name == lookup.DEFAULT_NAME:
            project = lookup.default(call)
    if project is None:
        raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"Could not find experiment with name '{name}'")
    return {"experiment": shown(project)}


@effect(SUBMIT)
@for_jobs
def create(call: Call) -> dict:
    """Create a project. The place of its artifacts is the platform's: one that is asked for is ignored."""
    call.fields.text("artifact_location")
    name = call.fields.text("name", required=True, most=limits.MAX_NAME)
    if call.caller.job_id:
        return {"experiment_id": str(lookup.project(call, lookup.DEFAULT_ID).pk)}
    fields = with_tags(Project(), call.fields.pairs("tags", limits.BATCH_TAGS))
    labels.project_name(name, "name")
    # as with MLflow's own server, a deleted experiment keeps its name until it is gone for good
    taken = name == lookup.DEFAULT_NAME or Project.objects.filter(user=call.user, name=name).exists()
    try:
        project = None if taken else projects.create(call.user, name=name, **fields)
    except Refused as refused:
        if refused.field != "name":
            raise
        project = None
    if project is None:
        raise MlflowError("RESOURCE_ALREADY_EXISTS", f"Experiment(name={name}) already exists.")
    return {"experiment_id": str(project.pk)}


@effect(SUBMIT)
def update(call: Call) -> dict:
    """Rename a project."""
    project = _active(call)
    name = call.fields.text("new_name", required=True, most=limits.MAX_NAME)
    try:
        projects.edit(call.user, project.pk, name=labels.project_name(name, "new_name"))
    except Refused as refused:
        if refused.field != "name":
            raise
        raise MlflowError("RESOURCE_ALREADY_EXISTS", f"Experiment(name={name}) already exists.") from None
    return {}


@effect(DESTROY)
def delete(call: Call) -> dict:
    projects.delete(call.user, _active(call).pk, call.caller.by)
    return {}


def restore(call: Call) -> dict:
    project = lookup.project(call, write=True)
    if project.trashed is None:
        raise WrongField(f"The experiment {project.pk} must be in the 'deleted' state. Current state is active.")
    projects.restore(call.user, project.pk, call.caller.by)
    return {}


@effect(SUBMIT)
def set_tag(call: Call) -> dict:
    pair = (call.fields.text("key", required=True), call.fields.text("value", most=limits.MAX_EXPERIMENT_TAG))
    project = _active(call)
    with transaction.atomic():
        row = lock_row(Project, pk=project.pk) or project
        for field, value in with_tags(row, [pair]).items():
            setattr(row, field, value)
        row.save(update_fields=["tags", "system_tags", "readme", "updated"])
        after_commit.changed(call.caller.username, "project", "")
    return {}


@effect(DESTROY)
def delete_tag(call: Call) -> dict:
    key, project = call.fields.text("key", required=True), _active(call)
    with transaction.atomic():
        row = lock_row(Project, pk=project.pk) or project
        if key == NOTE and row.readme:
            row.readme = ""
        elif row.tags.pop(key, None) is None and row.system_tags.pop(key, None) is None:
            raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"No tag with name: {key} in experiment {project.pk}")
        row.save(update_fields=["tags", "system_tags", "readme", "updated"])
        after_commit.changed(call.caller.username, "project", "")
    return {}


def _active(call: Call) -> Project:
    project = lookup.project(call, write=True)
    if project.trashed is not None:
        raise WrongField(f"The experiment {project.pk} must be in the 'active' state. Current state is deleted.")
    return project


def with_tags(project: Project, pairs: list[tuple[str, str]]) -> dict:
    """Return the fields of a project with more tags. Raises WrongField or Refused."""
    tags, system, readme = dict(project.tags), dict(project.system_tags), project.readme
    for name, value in pairs:
        key = limits.tag_key(name)
        if key == NOTE:
            readme = labels.notes(value, NOTE)
        elif key.startswith(limits.SYSTEM):
            system[key] = value
        else:
            tags[key] = value[: limits.MAX_TAG]
    if len(system) > limits.SYSTEM_TAGS:
        raise WrongField(f"an experiment has at most {limits.SYSTEM_TAGS} tags that begin with {limits.SYSTEM}")
    return {"tags": labels.tags(tags), "system_tags": system, "readme": readme}


ROUTES: Routes = {
    "experiments/create": {"POST": create},
    "experiments/get": {"GET": get},
    "experiments/get-by-name": {"GET": get_by_name},
    "experiments/update": {"POST": update},
    "experiments/delete": {"POST": delete},
    "experiments/restore": {"POST": restore},
    "experiments/set-experiment-tag": {"POST": set_tag},
    "experiments/delete-experiment-tag": {"POST": delete_tag},
}
