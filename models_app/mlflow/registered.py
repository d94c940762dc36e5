"""The calls about registered models and their aliases."""

from __future__ import annotations

from kernel.effects import ALIAS, DESTROY, READ, REGISTER
from kernel.errors import Refused
from mlflow_protocol.protocol import Call, MlflowError, effect, for_jobs
from mlflow_protocol.reading import Fields, WrongField
from models_app.models import RegisteredModel
from models_app.registry import checks, reading, registered

from . import rights, search, shown

MAX_RESULTS, RESULTS = 1000, 100
PROMPTS = {"mlflow.prompt.is_prompt": "true"}


def named(call: Call, field: str = "name") -> RegisteredModel:
    """Return the caller's registered model that a field names. Raises MlflowError."""
    name = name_of(call.fields, field)
    row = reading.registered().filter(user=call.caller.user_id, name=name).first()
    if row is None:
        raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"Registered Model with name={name} not found")
    return row


def name_of(fields: Fields, field: str = "name") -> str:
    """Return the name of a registered model. Raises WrongField."""
    name = fields.text(field, required=True)
    if not name.strip():
        raise WrongField(f"Missing value for required parameter '{field}'.")
    return name


def tags_of(fields: Fields) -> dict[str, str]:
    """Return a list of tags as an object; of a key that is there twice the last counts."""
    return dict(fields.pairs("tags", checks.MAX_TAGS))


def _answer(row: RegisteredModel) -> dict:
    return {"registered_model": shown.all_registered([row])[0]}


def _again(call: Call, name: str) -> dict:
    return _answer(reading.registered().get(user=call.caller.user_id, name=name))


@effect(REGISTER)
@for_jobs
def create(call: Call) -> dict:
    """Register a model."""
    fields = call.fields
    name = name_of(fields)
    rights.require(call, REGISTER, name)
    try:
        registered.create(
            call.user, name=name, description=fields.text("description"), tags=tags_of(fields), by=call.caller.by
        )
    except registered.NameTaken:
        raise MlflowError("RESOURCE_ALREADY_EXISTS", f"Registered Model (name={name}) already exists.") from None
    return _again(call, name)


@effect(READ)
@for_jobs
def get(call: Call) -> dict:
    """Return a registered model."""
    return _answer(named(call))


@effect(READ)
@for_jobs
def find(call: Call) -> dict:
    """Return the registered models that match. Without a condition about prompts, prompts are left out."""
    fields = call.fields
    most = fields.whole("max_results", RESULTS, low=1, high=MAX_RESULTS)
    condition, about_prompts = search.condition(fields.text("filter"), search.REGISTERED)
    rows = reading.registered().filter(condition, user=call.caller.user_id)
    if not about_prompts:
        rows = rows.exclude(tags__contains=PROMPTS)
    rows = search.ordered(rows, fields.texts("order_by"), search.REGISTERED, ["name"])
    rows_shown, token = search.page(rows, fields.text("page_token"), most)
    answer = {"registered_models": shown.all_registered(rows_shown)}
    return {**answer, "next_page_token": token} if token else answer


def update(call: Call) -> dict:
    """Change the description."""
    row = named(call)
    if "description" in call.fields:
        registered.edit(call.user, row.name, description=call.fields.text("description"), by=call.caller.by)
    return _again(call, row.name)


def rename(call: Call) -> dict:
    """Rename a registered model."""
    row, new = named(call), name_of(call.fields, "new_name")
    try:
        registered.edit(call.user, row.name, new_name=new, by=call.caller.by)
    except registered.NameTaken:
        raise MlflowError("RESOURCE_ALREADY_EXISTS", f"Registered Model (name={new}) already exists.") from None
    return _again(call, new)


@effect(DESTROY)
def delete(call: Call) -> dict:
    """Delete a registered model with its versions."""
    registered.delete(call.user, named(call).name, call.caller.by)
    return {}


def set_tag(call: Call) -> dict:
    """Set a tag."""
    key, value = call.fields.text("key", required=True), call.fields.text("value")
    registered.set_tag(call.user, named(call).name, key, value, call.caller.by)
    return {}


@effect(DESTROY)
def delete_tag(call: Call) -> dict:
    """Delete a tag."""
    key = call.fields.text("key", required=True)
    registered.delete_tag(call.user, named(call).name, key, call.caller.by)
    return {}


@effect(READ)
@for_jobs
def latest(call: Call) -> dict:
    """Return the newest version of each stage, or of the stages that are named."""
    row = named(call)
    stages = {checks.stage(stage) for stage in call.fields.texts("stages")}
    versions = reading.latest_of([row])[row.pk]
    return {"model_versions": [shown.version(version) for version in versions if not stages or version.stage in stages]}


# --- aliases ---------------------------------------------------------------------------------------------------------
@effect(ALIAS)
@for_jobs
def set_alias(call: Call) -> dict:
    """Set an alias, or move it to another version."""
    row, alias = named(call), call.fields.text("alias", required=True)
    rights.require(call, ALIAS, row.name)
    number = call.fields.whole("version", low=1, high=2**31 - 1, required=True)
    if not row.versions.filter(number=number).exists():
        raise missing_version(row.name, number)
    registered.set_alias(call.user, row.name, alias, number, call.caller.by)
    return {}


@effect(DESTROY)
def delete_alias(call: Call) -> dict:
    """Delete an alias."""
    registered.delete_alias(call.user, named(call).name, call.fields.text("alias", required=True), call.caller.by)
    return {}


@effect(READ)
@for_jobs
def by_alias(call: Call) -> dict:
    """Return the version that an alias names."""
    row, alias = named(call), call.fields.text("alias", required=True)
    try:
        version = registered.version_of_alias(row, alias)
    except Refused as refused:
        if refused.problem.template == "no such %(kind)s":
            raise MlflowError("INVALID_PARAMETER_VALUE", f"Registered model alias {alias} not found.") from None
        raise
    return {"model_version": shown.version(reading.versions().get(pk=version.pk))}


def missing_version(name: str, number: int) -> MlflowError:
    """Return the refusal of a version that does not exist."""
    return MlflowError("RESOURCE_DOES_NOT_EXIST", f"Model Version (name={name}, version={number}) not found")
