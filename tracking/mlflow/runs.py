"""Runs: they are created, change, go to the trash and come back; single parameters, tags and inputs.

A job's token is for the job's own run. A script that creates a run gets this one, so that a program which knows
nothing of the platform fills it; further runs that it creates are nested in it. The state of a job's run is that of its
process, whatever status its script reports.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime

from django.db import transaction
from django.utils import timezone

from jobs import trash
from jobs.models import Job, Project, RunInput
from jobs.models.nesting import PARENT
from kernel import after_commit
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.locking import lock_row, locked
from mlflow_protocol import limits
from mlflow_protocol.protocol import Call, MlflowError, Routes, effect, for_jobs
from mlflow_protocol.reading import Fields, WrongField, wrong
from tracking import client_runs

from . import lookup, shown, writing
from .writing import NAME, NOTE, Tags

STATES = {
    "RUNNING": client_runs.RUNNING,
    "SCHEDULED": client_runs.SCHEDULED,
    "FINISHED": client_runs.FINISHED,
    "FAILED": client_runs.ERROR,
    "KILLED": client_runs.KILLED,
}
NUMBERED = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}  # as MLflow's messages number them
USED = "platform.attempt"  # of a job: the attempt whose run its script has begun to fill
ADJECTIVES = "able bold brave bright calm clean clever eager fair fast fine glad grand keen kind light neat quick"
ANIMALS = "ant bat bear bee cat crab crow deer dove duck elk finch fish fox frog gnat goat gull hare hawk hen jay koi "
DATASET = {
    "name": 500,
    "digest": 36,
    "source_type": 500,
    "source": 65_535,
    "schema": 1_048_575,
    "profile": 16_777_215,
}


def moment(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


@effect(SUBMIT)
@for_jobs
def create(call: Call) -> dict:
    fields = call.fields
    tags = writing.sorted_tags(fields.pairs("tags"))
    title = fields.text("run_name") or tags.title or ""
    if fields.text("run_name") and tags.title and tags.title != title:
        raise WrongField(f"Both 'run_name' argument and '{NAME}' tag are specified, but with different values")
    if len(title) > limits.MAX_NAME:
        raise WrongField(f"run_name exceeds the maximum length of {limits.MAX_NAME} characters")
    if fields.text("user_id"):
        tags.system.setdefault("mlflow.user", fields.text("user_id", most=limits.MAX_KEY))
    if len(tags.own) > 100 or len(tags.system) > limits.SYSTEM_TAGS:
        raise WrongField("too many tags")
    tags = tags._replace(title=title)
    if call.caller.job_id:
        own = Job.objects.select_related("user", "project").get(pk=call.caller.job_id)
        if PARENT not in tags.system and _take(own, tags):
            return {"run": shown.run_of(_fresh(own))}
        tags.system.setdefault(PARENT, own.run_id.hex)
        return _created(call, own.project, tags, entry=own.entry, parent=own)
    project = lookup.project(call, fields.text("experiment_id", lookup.DEFAULT_ID) or lookup.DEFAULT_ID, write=True)
    if project.trashed is not None:
        raise WrongField(f"The experiment {project.pk} must be in the 'active' state. Current state is deleted.")
    parent = lookup.run_key(tags.system.get(PARENT, ""))
    return _created(call, project, tags, parent=parent and lookup.runs(call).filter(run_id=parent).first())


def _created(call: Call, project: Project, tags: Tags, parent: Job | None, entry: str = "") -> dict:
    job = client_runs.create(
        call.user,
        project,
        title=tags.title or any_name(),
        started=moment(call.fields.time("start_time")) or timezone.now(),
        by=call.caller.by,
        tags=tags.own,
        system_tags=tags.system,
        notes=tags.notes or "",
        parent=parent,
        entry=entry,
        tenant=call.workspace,
        within=parent.tenant if parent is not None and call.caller.job_id else None,
    )
    return {"run": shown.run_of(job)}


def any_name() -> str:
    """Return a name for a run or model without one, as MLflow's server chooses them."""
    words = random.choice(ADJECTIVES.split()), random.choice(ANIMALS.split())
    return f"{'-'.join(words)}-{random.randrange(1000)}"


def _take(own: Job, tags: Tags) -> bool:
    """Let a job's script begin with the job's own run; return False when this attempt has done so already."""
    with locked(Job, pk=own.pk) as job:
        if job.system_tags.get(USED) == str(job.attempt):
            return False
        job.system_tags = {**job.system_tags, **tags.system, USED: str(job.attempt)}
        job.tags = {**job.tags, **tags.own}
        job.title, job.notes = tags.title or job.title, tags.notes or job.notes
        job.heard = timezone.now()
        job.save(update_fields=["system_tags", "tags", "title", "notes", "heard"])
        after_commit.changed(job.user.username, "job", job.name)
    return True


def _fresh(job: Job) -> Job:
    return Job.objects.select_related("user", "project").get(pk=job.pk)


@effect(READ)
@for_jobs
def get(call: Call) -> dict:
    return {"run": shown.run_of(lookup.run(call))}


@effect(SUBMIT)
@for_jobs
def update(call: Call) -> dict:
    job = lookup.run(call, write=True)
    given = call.fields.given.get("status")
    status = NUMBERED.get(given, given)
    if status is not None and (not isinstance(status, str) or status not in STATES):
        raise wrong("status", status, f"must be one of {', '.join(STATES)}")
    title = call.fields.text("run_name", None, most=limits.MAX_NAME)
    if job.pk == call.caller.job_id:
        _take(job, Tags({}, {}, title or None, None))
    ended = moment(call.fields.time("end_time"))
    client_runs.report(job.pk, state=STATES.get(status, ""), ended=ended, title=title or None, by=call.caller.by)
    return {"run_info": shown.info_of(_fresh(job))}


@effect(DESTROY)
def delete(call: Call) -> dict:
    """Move a run to the trash; a client's also while it runs. A job is to be cancelled first."""
    job = lookup.run(call, write=True, trashed=True)
    if job.trashed is None:
        trash.trash_one(job, call.caller.by)
    return {}


def restore(call: Call) -> dict:
    job = lookup.run(call, write=True, trashed=True)
    if job.trashed is not None:
        trash.restore_one(job.user, job.name, call.caller.by)
    return {}


# --- parameters, tags, inputs -----------------------------------------------------------------------------------------
@effect(SUBMIT)
@for_jobs
def log_parameter(call: Call) -> dict:
    run, name = lookup.given_run(call), limits.key(call.fields.text("key", required=True))
    writing.write(call, run, params=[(name, call.fields.text("value")[: limits.MAX_PARAM])])
    return {}


@effect(SUBMIT)
@for_jobs
def set_tag(call: Call) -> dict:
    run, pair = lookup.given_run(call), (call.fields.text("key", required=True), call.fields.text("value"))
    writing.write(call, run, tags=writing.sorted_tags([pair]))
    return {}


@effect(DESTROY)
@for_jobs
def delete_tag(call: Call) -> dict:
    key, row = call.fields.text("key", required=True), lookup.run(call, write=True)
    with transaction.atomic():
        job = lock_row(Job, pk=row.pk) or row
        if key == NOTE and job.notes:
            job.notes = ""
        elif key == NAME and job.title:
            job.title = ""
        elif key.startswith(limits.SYSTEM) and key in job.system_tags:
            del job.system_tags[key]
        elif key in job.tags:
            del job.tags[key]
        else:
            raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"No tag with name: {key} in run with id {row.run_id.hex}")
        job.save(update_fields=["notes", "title", "system_tags", "tags"])
        after_commit.changed(job.user.username, "job", job.name)
    return {}


def log_datasets(call: Call, run: Job) -> None:
    """Record the datasets that a run reads."""
    rows = [_input(run, message) for message in call.fields.messages("datasets", limits.BATCH_DATASETS)]
    if rows:
        with transaction.atomic():
            job = lock_row(Job, pk=run.pk)
            if job is not None:
                RunInput.objects.bulk_create(rows, ignore_conflicts=True)
                after_commit.changed(call.caller.username, "job", run.name)


def _input(job: Job, given: Fields) -> RunInput:
    dataset = given.nested("dataset")
    for name in ("name", "digest", "source_type", "source"):
        dataset.text(name, required=True)
    tags = dict(given.pairs("tags"))
    if any(len(key) > 255 or len(value) > 500 for key, value in tags.items()):
        raise WrongField("a tag of an input has at most 255 characters, its value at most 500")
    fields = {name: dataset.text(name, most=most) for name, most in DATASET.items()}
    return RunInput(job=job, **fields, context=tags.pop(shown.CONTEXT, ""), tags=tags)


ROUTES: Routes = {
    "runs/create": {"POST": create},
    "runs/get": {"GET": get},
    "runs/update": {"POST": update},
    "runs/delete": {"POST": delete},
    "runs/restore": {"POST": restore},
    "runs/log-parameter": {"POST": log_parameter},
    "runs/set-tag": {"POST": set_tag},
    "runs/delete-tag": {"POST": delete_tag},
}
