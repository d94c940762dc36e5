"""The events of the registry, stored for the webhooks that want them, in the transaction of the change itself.

The names and the data are MLflow's; `registered_model_tag.*` and `model_version.updated` (a stage) are our own.
"""

from __future__ import annotations

from kernel import after_commit
from models_app.models import ModelVersion, RegisteredModel, RegistryDelivery, RegistryWebhook

PROMPT = "mlflow.prompt.is_prompt"  # MLflow stores prompts as registered models with this tag
PROMPT_TEXT = "mlflow.prompt.text"
KINDS = {  # what an event of a prompt is called
    "registered_model": "prompt",
    "registered_model_tag": "prompt_tag",
    "model_version": "prompt_version",
    "model_version_tag": "prompt_version_tag",
    "model_version_alias": "prompt_alias",
}
ACTIONS = {
    "registered_model": ("created",),
    "registered_model_tag": ("set", "deleted"),
    "model_version": ("created", "updated"),
    "model_version_tag": ("set", "deleted"),
    "model_version_alias": ("created", "deleted"),
}
EVENTS = [
    f"{entity}.{action}"
    for kinds in (lambda name: name, KINDS.get)
    for kind, actions in ACTIONS.items()
    for entity, action in ((kinds(kind), action) for action in actions)
    if f"{entity}.{action}" != "prompt_version.updated"  # prompts have no stage
]
EXAMPLES = {  # of the data that events have, as in MLflow's own test deliveries
    "name": "example_model", "version": "1", "alias": "example_alias", "key": "example_key", "value": "example_value",
    "source": "models:/123", "run_id": "abcd1234abcd5678", "tags": {"example_key": "example_value"},
    "description": "An example", "stage": "Production", "before": "None", "template": "Hello {{name}}!",
}  # fmt: skip
FIELDS = {  # of an event's data
    "registered_model.created": ("name", "tags", "description"),
    "registered_model_tag.set": ("name", "key", "value"),
    "registered_model_tag.deleted": ("name", "key"),
    "model_version.created": ("name", "version", "source", "run_id", "tags", "description"),
    "model_version.updated": ("name", "version", "stage", "before"),
    "model_version_tag.set": ("name", "version", "key", "value"),
    "model_version_tag.deleted": ("name", "version", "key"),
    "model_version_alias.created": ("name", "alias", "version"),
    "model_version_alias.deleted": ("name", "alias"),
}
FIELDS |= {f"{KINDS[name.partition('.')[0]]}.{name.partition('.')[2]}": fields for name, fields in FIELDS.items()}
FIELDS["prompt_version.created"] = ("name", "version", "template", "tags", "description")


def example(event: str) -> dict:
    """Return data such as the event has."""
    return {field: EXAMPLES[field] for field in FIELDS[event]}


def is_prompt(registered: RegisteredModel) -> bool:
    """Return whether it is a prompt and not a model."""
    return registered.tags.get(PROMPT) == "true"


def emit(registered: RegisteredModel, entity: str, action: str, **data) -> None:
    """Store the event for each webhook that wants it, and enqueue the deliveries."""
    name = f"{KINDS[entity] if is_prompt(registered) else entity}.{action}"
    hooks = RegistryWebhook.objects.filter(user=registered.user_id, active=True, events__contains=[name])
    for hook in hooks:
        row = RegistryDelivery.objects.create(webhook=hook, event=name, data={"name": registered.name, **data})
        after_commit.enqueue("models.webhook", row.pk)


def of_version(version: ModelVersion) -> dict:
    """Return the data of the event that a version was made."""
    data = {
        "version": str(version.number),
        "source": version.source,
        "run_id": version.run_id or None,
        "tags": version.tags,
        "description": version.description or None,
    }
    if is_prompt(version.registered):
        data = {key: data[key] for key in ("version", "tags", "description")}
        data["template"] = version.tags.get(PROMPT_TEXT, "")
    return data
