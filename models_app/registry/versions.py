"""Every change of a version of a registered model goes through here.

A new version gets a Model of its own: the files of its source are copied, with space reserved for them, and checked to
load in an isolated run (models_app.lifecycle and launching). A source whose files are not on this platform makes a
version without a Model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.db import transaction

from accounts import lifecycle as accounts
from accounts.tenancy import members
from jobs.models import Job
from kernel import broker
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message
from models_app import lifecycle
from models_app.models import Model, ModelVersion, RegisteredModel, Stage

from . import checks, events
from .registered import changed, emit_tags, lock, locked_or_missing, note

MAX = 100_000  # versions of one registered model
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MAX_STEM = 40
NAME_TRIES = 50


@dataclass(frozen=True)
class Files:
    """Where the files of a new version are: of a source that is to be copied, of a Model that is there, or nowhere."""

    origin: lifecycle.Origin | None = None
    model: Model | None = None
    job: Job | None = None


def find(registered: RegisteredModel, number: int) -> ModelVersion:
    """Return the version of that number. Raises Missing."""
    version = registered.versions.select_related("model", "registered__user", "job").filter(number=number).first()
    if version is None:
        raise Missing("version")
    return version


def require_room(row: RegisteredModel) -> None:
    """Raise Refused for a model that has as many versions as are allowed."""
    if row.versions.count() >= MAX:
        raise Refused("the model has %(limit)s versions, the most that are allowed", limit=MAX)


def create(
    user, name: str, *, files: Files, source: str, by: str, number: int | None = None, tenant: str | None = None,
    **given,
) -> ModelVersion:  # fmt: skip
    """Create the next version of a registered model. `given` are tags, description, run_id, run_link, logged_model.
    `tenant` gives the space for the files; None: the user's default one.
    One that is imported has its number; where that was used, it gets the next one.

    Raises Missing; Refused where there is not enough space; Fault when the task queue is not available.
    """
    fields = {
        "tags": checks.tags(given.get("tags") or {}),
        "description": checks.description(given.get("description") or ""),
        "source": checks.line(source, "source", 2000),
        "run_id": checks.line(given.get("run_id") or "", "run_id", 64),
        "run_link": checks.line(given.get("run_link") or "", "run_link", 2000),
        "logged_model": checks.line(given.get("logged_model") or "", "model_id", 64),
        "job": files.job,
    }
    if files.origin is not None:
        broker.require()
    with transaction.atomic():
        accounts.hold_active(user)
        row = lock(user, name)
        require_room(row)
        if number is None or row.versions.filter(number=number).exists():
            number = row.last + 1
        row.last = max(row.last, number)
        row.save(update_fields=["last", "updated"])
        model, owned = _model_of(user, row.name, number, files, by, tenant)
        version = ModelVersion.objects.create(registered=row, number=number, model=model, owns_model=owned, **fields)
        note(row, "version", by, target=version.number)
        events.emit(row, "model_version", "created", **events.of_version(version))
    return version


def attach(user, name: str, number: int, *, files: Files, by: str) -> ModelVersion:
    """Give a version without a Model the files that have come here since. Raises Missing, Refused, Fault."""
    if files.origin is not None:
        broker.require()
    with transaction.atomic():
        accounts.hold_active(user)
        row = lock(user, name)
        version = find(row, number)
        if version.model is None:
            version.model, version.owns_model = _model_of(user, row.name, number, files, by)
            version.job = version.job or files.job
            version.save(update_fields=["model", "owns_model", "job", "updated"])
            changed(row)
    return version


def _model_of(
    user, name: str, number: int, files: Files, by: str, tenant: str | None = None
) -> tuple[Model | None, bool]:
    """Return the Model of a version's files, and whether it belongs to a version."""
    if files.origin is not None:
        free = _free_name(user, name, number)
        return lifecycle.add_model(
            user=user, tenant=members.chosen(user, tenant), name=free, origin=files.origin, by=by
        ), True
    owned = files.model is not None and ModelVersion.objects.filter(model=files.model, owns_model=True).exists()
    return files.model, owned


def edit(user, name: str, number: int, *, description: str, by: str) -> ModelVersion:
    """Change the description of a version."""
    checks.description(description)
    with locked_or_missing(user, name) as row:
        version = find(row, number)
        version.description = description
        version.save(update_fields=["description", "updated"])
        changed(row)
    return version


def set_stage(user, name: str, number: int, stage: str, *, archive: bool, by: str) -> ModelVersion:
    """Move a version to a stage; `archive` moves the others that are in it to Archived."""
    stage = checks.stage(stage)
    if archive and stage not in (Stage.STAGING, Stage.PRODUCTION):
        raise Refused(
            "only versions in Staging and Production are archived by a transition", field="archive_existing_versions"
        )
    with locked_or_missing(user, name) as row:
        version = find(row, number)
        others = row.versions.filter(stage=stage).exclude(pk=version.pk) if archive else []
        for other in others:
            _move(row, other, Stage.ARCHIVED, by)
        _move(row, version, stage, by)
        row.save(update_fields=["updated"])
    return version


def set_tag(user, name: str, number: int, key: str, value: str, by: str) -> ModelVersion:
    """Set one tag of a version."""
    checks.tag(key, value, "key")
    with locked_or_missing(user, name) as row:
        version = find(row, number)
        checks.tags({**version.tags, key: value})
        version.tags[key] = value
        version.save(update_fields=["tags", "updated"])
        events.emit(row, "model_version_tag", "set", version=str(number), key=key, value=value)
        changed(row)
    return version


def delete_tag(user, name: str, number: int, key: str, by: str) -> ModelVersion:
    """Delete one tag of a version; one that it does not have is no error."""
    with locked_or_missing(user, name) as row:
        version = find(row, number)
        if version.tags.pop(key, None) is not None:
            version.save(update_fields=["tags", "updated"])
            events.emit(row, "model_version_tag", "deleted", version=str(number), key=key)
            changed(row)
    return version


def set_tags(user, name: str, number: int, tags: dict, by: str) -> ModelVersion:
    """Replace all tags of a version."""
    checks.tags(tags)
    with locked_or_missing(user, name) as row:
        version = find(row, number)
        before, version.tags = version.tags, tags
        version.save(update_fields=["tags", "updated"])
        emit_tags(row, "model_version_tag", before, tags, version=str(number))
        changed(row)
    return version


def delete(user, name: str, number: int, by: str) -> None:
    """Delete a version with its aliases, and its Model where that was made for it.

    Raises Missing; WrongState while an application serves it.
    """
    with locked_or_missing(user, name) as row:
        version = find(row, number)
        model, owned = version.model_id, version.owns_model
        version.delete()
        if owned and not ModelVersion.objects.filter(model=model).exists():
            lifecycle.delete_with_version(model, by)
        row.save(update_fields=["updated"])
        note(row, "delete version", by, source=number)


def require_unserved(version: ModelVersion) -> None:
    """Raise WrongState while an application serves the files that would be deleted with the version."""
    if version.owns_model and version.model is not None and len(version.model.versions.all()) == 1:
        lifecycle.require_unserved(version.model)


def _move(row: RegisteredModel, version: ModelVersion, stage: str, by: str) -> None:
    before = version.stage
    if before == stage:
        return
    version.stage = stage
    version.save(update_fields=["stage", "updated"])
    reason = Message("version %(number)s", number=version.number)
    note(row, "stage", by, reason, before, stage)
    events.emit(
        row, "model_version", "updated", version=str(version.number), stage=Stage(stage).value, before=str(before)
    )


def _free_name(user, name: str, number: int) -> str:
    """Return a free name for the Model of a version: letters of its name, v, the number in letters."""
    stem = re.sub("[^a-z]", "", name.lower())[:MAX_STEM] or "model"
    for suffix in ("", *(f"x{in_letters(more)}" for more in range(1, NAME_TRIES))):
        free = f"{stem}v{in_letters(number)}{suffix}"
        if not Model.objects.filter(user=user, name=free).exists():
            return free
    raise Refused("no free name was found for the model of this version", field="name")


def in_letters(number: int) -> str:
    """Return a number from 1 as letters: a to z, then aa, ab, …"""
    word = ""
    while number:
        number, digit = divmod(number - 1, len(LETTERS))
        word = LETTERS[digit] + word
    return word
