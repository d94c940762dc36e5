"""The calls about webhooks on events of the registry."""

from __future__ import annotations

from kernel.effects import DESTROY, READ
from kernel.locking import Missing
from mlflow_protocol.protocol import Call, MlflowError, effect
from mlflow_protocol.reading import Fields, wrong
from models_app.models import RegistryWebhook
from models_app.registry import events, webhooks

from .search import page
from .shown import milliseconds

MAX_RESULTS, RESULTS = 1000, 100
OWN = ("registered_model_tag.", "model_version.updated")  # MLflow's clients know no such events


def _shown(row: RegistryWebhook) -> dict:
    named = [event.upper().partition(".") for event in row.events if not event.startswith(OWN)]
    return {
        "webhook_id": str(row.key),
        "name": row.name,
        "description": row.description,
        "url": row.url,
        "events": [{"entity": entity, "action": action} for entity, _dot, action in named],
        "status": "ACTIVE" if row.active else "DISABLED",
        "creation_timestamp": milliseconds(row.created),
        "last_updated_timestamp": milliseconds(row.updated),
    }


def _found(call: Call, key: str) -> RegistryWebhook:
    try:
        return webhooks.find(call.caller.user_id, key)
    except Missing:
        raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"Webhook with ID {key} not found") from None


def _event(fields: Fields) -> str:
    return f"{fields.text('entity', required=True)}.{fields.text('action', required=True)}".lower()


def _fields(fields: Fields) -> dict:
    """Return those fields of a webhook that a request names."""
    values: dict = {name: fields.text(name) for name in ("name", "description", "url", "secret") if name in fields}
    if fields.given.get("events"):
        values["events"] = [_event(message) for message in fields.messages("events", len(events.EVENTS))]
    if "status" in fields:
        status = fields.text("status")
        if status not in ("ACTIVE", "DISABLED"):
            raise wrong("status", status, "must be ACTIVE or DISABLED")
        values["active"] = status == "ACTIVE"
    return values


def create(call: Call) -> dict:
    """Create a webhook."""
    for name in ("name", "url"):
        call.fields.text(name, required=True)
    return {"webhook": _shown(webhooks.save(call.user, **_fields(call.fields)))}


@effect(READ)
def many(call: Call) -> dict:
    """Return the webhooks, newest first."""
    most = call.fields.whole("max_results", RESULTS, low=1, high=MAX_RESULTS)
    rows = RegistryWebhook.objects.filter(user=call.caller.user_id).order_by("-pk")
    shown, token = page(rows, call.fields.text("page_token"), most)
    answer = {"webhooks": [_shown(row) for row in shown]}
    return {**answer, "next_page_token": token} if token else answer


@effect(READ)
def get(call: Call, key: str) -> dict:
    """Return a webhook, without its secret."""
    return {"webhook": _shown(_found(call, key))}


def update(call: Call, key: str) -> dict:
    """Change the fields that are given."""
    return {"webhook": _shown(webhooks.save(call.user, _found(call, key), **_fields(call.fields)))}


@effect(DESTROY)
def delete(call: Call, key: str) -> dict:
    """Delete a webhook and what was still to be sent to it."""
    webhooks.delete(_found(call, key))
    return {}


def test(call: Call, key: str) -> dict:
    """Send an example of an event at once, and return what the webhook has answered."""
    row, asked = _found(call, key), call.fields.nested("event")
    event = _event(asked) if asked.given else row.events[0]
    if event not in events.EVENTS:
        raise wrong("event", event, "there is no such event")
    result = webhooks.try_out(row, event)
    if result["problem"]:
        return {"result": {"success": False, "error_message": result["problem"]}}
    return {
        "result": {
            "success": result["success"], "response_status": result["status"], "response_body": result["body"],
        }
    }  # fmt: skip
