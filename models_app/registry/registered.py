"""Every change of a registered model and of its aliases goes through here."""

from __future__ import annotations

from django.db import IntegrityError, transaction
from django.db.models import Q

from accounts import lifecycle as accounts
from kernel import after_commit
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import Missing, lock_row, locked
from kernel.messages import Message
from kernel.models import record_change
from models_app import lifecycle
from models_app.models import Alias, ModelVersion, RegisteredModel

from . import checks, events

MAX = 10_000
KIND = RegisteredModel._meta.model_name


def find(user, name: str) -> RegisteredModel:
    """Return the user's registered model of that name. Raises Missing."""
    row = RegisteredModel.objects.filter(user=user, name=name).first() if "\x00" not in name else None
    if row is None:
        raise Missing("registered model")
    return row


def lock(user, name: str) -> RegisteredModel:
    """Lock the user's registered model in the caller's transaction and return it. Raises Missing."""
    row = lock_row(RegisteredModel, user=user, name=name) if "\x00" not in name else None
    if row is None:
        raise Missing("registered model")
    return row


class NameTaken(Refused):
    """There is a registered model of that name already."""

    def __init__(self, name: str):
        super().__init__(Message("you already have a registered model named %(name)s", name=name), field="name")


def require_room(user) -> None:
    """Raise Refused for a user who has as many registered models as are allowed."""
    if RegisteredModel.objects.filter(user=user).count() >= MAX:
        raise Refused("you have %(limit)s registered models, the most that are allowed", limit=MAX)


def create(
    user, *, name: str, title: str = "", description: str = "", tags: dict | None = None, by: str
) -> RegisteredModel:
    """Create a registered model without versions. Raises NameTaken or Refused."""
    checks.name(name)
    fields = {"description": checks.description(description), "tags": checks.tags(tags or {})}
    try:
        with transaction.atomic():
            accounts.hold_active(user)
            require_room(user)
            row = RegisteredModel.objects.create(user=user, name=name, title=title, **fields)
            note(row, "create", by)
            events.emit(row, "registered_model", "created", tags=row.tags, description=row.description or None)
    except IntegrityError as problem:
        if violated(problem) == "registered_model_name_once_per_user":
            raise NameTaken(name) from None
        raise
    return row


def edit(
    user, name: str, *, by: str, new_name: str | None = None, title: str | None = None, description: str | None = None
) -> RegisteredModel:
    """Rename a registered model, or change its title or description. Raises Missing, NameTaken or Refused."""
    try:
        with transaction.atomic():
            row = lock(user, name)
            if title is not None:
                row.title = title
            if description is not None:
                row.description = checks.description(description)
            if new_name is not None and new_name != name:
                row.name = checks.name(new_name, "new_name")
                note(row, "rename", by, Message("renamed from %(name)s", name=name))
            row.save()
            changed(row)
    except IntegrityError as problem:
        if violated(problem) == "registered_model_name_once_per_user":
            raise NameTaken(str(new_name)) from None
        raise
    return row


def require_unserved(row: RegisteredModel) -> None:
    """Raise WrongState while an application serves what would be deleted with the registered model."""
    served = Q(model__served_by__isnull=False) | Q(model__rollouts__isnull=False)
    for version in row.versions.filter(served, owns_model=True).select_related("model").distinct():
        if not ModelVersion.objects.filter(model=version.model_id).exclude(registered=row).exists():
            lifecycle.require_unserved(version.model)


def delete(user, name: str, by: str) -> None:
    """Delete a registered model with its versions, aliases and the files that were copied for it.

    Raises Missing; WrongState while an application serves one of its versions.
    """
    with locked_or_missing(user, name) as row:
        owned = row.versions.filter(owns_model=True).values_list("model_id", flat=True)
        models = sorted({pk for pk in owned if pk is not None})
        row.versions.update(model=None)
        for pk in models:
            if not ModelVersion.objects.filter(model=pk).exists():  # copied to another registered model
                lifecycle.delete_with_version(pk, by)
        note(row, "delete", by)
        row.delete()


def set_tag(user, name: str, key: str, value: str, by: str) -> RegisteredModel:
    """Set one tag of a registered model."""
    checks.tag(key, value, "key")
    with locked_or_missing(user, name) as row:
        checks.tags({**row.tags, key: value})
        row.tags[key] = value
        row.save(update_fields=["tags", "updated"])
        events.emit(row, "registered_model_tag", "set", key=key, value=value)
        changed(row)
    return row


def delete_tag(user, name: str, key: str, by: str) -> RegisteredModel:
    """Delete one tag of a registered model; one that it does not have is no error."""
    with locked_or_missing(user, name) as row:
        if row.tags.pop(key, None) is not None:
            row.save(update_fields=["tags", "updated"])
            events.emit(row, "registered_model_tag", "deleted", key=key)
            changed(row)
    return row


def set_tags(user, name: str, tags: dict, by: str) -> RegisteredModel:
    """Replace all tags of a registered model."""
    checks.tags(tags)
    with locked_or_missing(user, name) as row:
        before, row.tags = row.tags, tags
        row.save(update_fields=["tags", "updated"])
        emit_tags(row, "registered_model_tag", before, tags)
        changed(row)
    return row


def emit_tags(registered: RegisteredModel, entity: str, before: dict, after: dict, **data) -> None:
    """Store the events of tags that were replaced."""
    for key, value in after.items():
        if before.get(key) != value:
            events.emit(registered, entity, "set", **data, key=key, value=value)
    for key in before.keys() - after.keys():
        events.emit(registered, entity, "deleted", **data, key=key)


# --- aliases ---------------------------------------------------------------------------------------------------------
def set_alias(user, name: str, alias: str, number: int, by: str) -> Alias:
    """Let an alias name a version, as a new alias or from another version. Raises Missing or Refused."""
    checks.alias(alias)
    with locked_or_missing(user, name) as row:
        version = row.versions.filter(number=number).first()
        if version is None:
            raise Missing("version")
        existing = Alias.objects.filter(registered=row, name=alias).select_related("version").first()
        before = existing.version.number if existing else None
        if before == number:
            return existing
        if existing is None:
            existing = Alias.objects.create(registered=row, name=alias, version=version)
        else:
            existing.version = version
            existing.save(update_fields=["version", "updated"])
        row.save(update_fields=["updated"])
        note(row, "alias", by, Message("%(alias)s", alias=f"@{alias}"), before, number)
        after_commit.enqueue("apps.follow", row.pk)
        events.emit(row, "model_version_alias", "created", alias=alias, version=str(number))
    return existing


def delete_alias(user, name: str, alias: str, by: str) -> None:
    """Delete an alias; one that is not there is no error."""
    checks.alias_asked(alias)
    with locked_or_missing(user, name) as row:
        existing = Alias.objects.filter(registered=row, name=alias).select_related("version").first()
        if existing is None:
            return
        existing.delete()
        row.save(update_fields=["updated"])
        note(row, "alias", by, Message("%(alias)s", alias=f"@{alias}"), existing.version.number, None)
        events.emit(row, "model_version_alias", "deleted", alias=alias)


def version_of_alias(row: RegisteredModel, alias: str) -> ModelVersion:
    """Return the version that an alias names; `latest` is the newest one. Raises Missing or Refused."""
    checks.alias_asked(alias)
    versions = row.versions.select_related("model", "registered")
    if alias.lower() == checks.LATEST:
        version = versions.order_by("-number").first()
    else:
        version = versions.filter(aliases__name=alias).first()
    if version is None:
        raise Missing("alias")
    return version


# --- shared with versions --------------------------------------------------------------------------------------------
class locked_or_missing:
    """Opens a transaction with the locked registered model; it may find that an application stands in the way."""

    def __init__(self, user, name: str):
        self.user, self.name = user, name

    def __enter__(self) -> RegisteredModel:
        pk = find(self.user, self.name).pk
        self.lock = locked(RegisteredModel, pk=pk)
        return self.lock.__enter__()

    def __exit__(self, *given):
        return self.lock.__exit__(*given)


def note(row: RegisteredModel, verb: str, by: str, reason: str = "", source="", target="") -> None:
    """Write a row of the history of a registered model: `source` and `target` are versions or stages."""
    words = {"source": str(source or "")[:16], "target": str(target or "")[:16]}
    record_change(row, transition=verb, by=by, reason=reason, **words)


def changed(row: RegisteredModel) -> None:
    """Notify the open pages."""
    after_commit.changed(row.history_owner, KIND, row.name)
