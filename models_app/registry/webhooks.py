"""Webhooks on the events of a user's registry, and sending to them.

What is sent is signed as MLflow does it: `X-MLflow-Signature: v1,` and the base64 of HMAC-SHA256 with the webhook's
secret over "{delivery id}.{timestamp}.{body}". The delivery id is the same in each attempt.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import time
import uuid
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from accounts import lifecycle as accounts
from kernel import after_commit, clock, retries, sanitize, sealing, webhook
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message, clip, message_of, storable
from models_app.models import RegistryDelivery, RegistryWebhook
from models_app.models.webhook import PURPOSE

from . import checks, events

MAX = 100  # webhooks of a user
KEPT = timedelta(days=7)
DUE = 200
BODY_BYTES = 1000  # of the answer to a test
KIND = RegistryWebhook._meta.model_name
MAX_SECRET, MAX_PROBLEM = 500, 500  # characters
FAILURES = (Refused, OSError, http.client.HTTPException)


def find(user, key: str) -> RegistryWebhook:
    """Return the user's webhook. Raises Missing."""
    try:
        row = RegistryWebhook.objects.filter(user=user, key=uuid.UUID(key)).first()
    except ValueError:
        row = None
    if row is None:
        raise Missing("webhook")
    return row


def find_delivery(hook: RegistryWebhook, key: str) -> RegistryDelivery | None:
    """Return a delivery of the webhook; None when there is none of that id."""
    try:
        return RegistryDelivery.objects.filter(webhook=hook, key=uuid.UUID(key)).first()
    except ValueError:
        return None


def require_room(user) -> None:
    """Raise Refused for a user who has as many webhooks as are allowed."""
    if RegistryWebhook.objects.filter(user=user).count() >= MAX:
        raise Refused("you have %(limit)s webhooks, the most that are allowed", limit=MAX)


def save(user, row: RegistryWebhook | None = None, **fields) -> RegistryWebhook:
    """Create a webhook, or change the fields that are given. Raises Refused.

    `secret` is stored encrypted; an empty one ends the signing of deliveries. `active` pauses and resumes it: what was
    still to be sent when it was paused is then sent at once.
    """
    row = row or RegistryWebhook(user=user)
    resumed = row.pk is not None and not row.active and fields.get("active", False)
    if "secret" in fields:
        fields["secret"] = sealing.seal(checks.line(fields["secret"], "secret", MAX_SECRET), PURPOSE)
    for field, value in fields.items():
        setattr(row, field, value)
    row.name = checks.line(row.name, "name", 256).strip()
    if not row.name:
        raise Refused("must not be empty", field="name")
    row.description = checks.description(row.description)
    row.url = checks.line(row.url, "url", 500)
    if "url" in fields:
        webhook.target(row.url, "url")
    unknown = [event for event in row.events if event not in events.EVENTS]
    if unknown or not row.events:
        raise Refused("must be one or more of %(choices)s", field="events", choices=", ".join(events.EVENTS))
    row.events = sorted(set(row.events))
    with transaction.atomic():
        accounts.hold_active(user)
        if row.pk is None:
            require_room(user)
        row.save()
        for waiting in RegistryDelivery.objects.filter(webhook=row, open=True) if resumed else ():
            again(waiting)
    return row


def delete(row: RegistryWebhook) -> None:
    """Delete a webhook, and what was still to be sent to it."""
    row.delete()


def again(row: RegistryDelivery) -> None:
    """Start a delivery over, with the same delivery id."""
    if retries.start_over(row):
        after_commit.enqueue("models.webhook", row.pk)


def try_out(row: RegistryWebhook, event: str = "") -> dict:
    """Send an example of an event at once, by default of the webhook's first one; return what happened.

    `success`, and either `status` and `body` of the answer, or `problem`. Raises Refused for an unknown event.
    """
    event = event or row.events[0]
    if event not in events.EVENTS:
        raise Refused("must be one of %(choices)s", field="event", choices=", ".join(events.EVENTS))
    try:
        status, body = send(row, event, events.example(event), uuid.uuid4(), BODY_BYTES)
    except FAILURES as problem:
        return {"success": False, "status": None, "body": "", "problem": _text(problem)}
    text = sanitize.text(body.decode("utf-8", "replace"))
    return {"success": 200 <= status < 300, "status": status, "body": text, "problem": ""}


# --- sending ---------------------------------------------------------------------------------------------------------
def due() -> list[int]:
    """Return the deliveries that are due, and forget old ones."""
    RegistryDelivery.objects.filter(open=False, created__lt=clock.settled(timezone.now()) - KEPT).delete()
    return list(SENDER.due().values_list("pk", flat=True)[:DUE])


def _attempt(row: RegistryDelivery) -> None:
    """Make an attempt at a delivery, unless another process has."""
    if not retries.claim(row):
        return
    problem = _problem(row)
    retries.settle(row, failed=bool(problem), problem=problem)
    after_commit.changed(row.webhook.user.username, KIND, row.webhook.name)


def _problem(row: RegistryDelivery) -> str:
    """Send a delivery; return what went wrong, empty when it has arrived."""
    if not row.webhook.active:
        return Message("the webhook is paused")
    try:
        status, _body = send(row.webhook, row.event, row.data, row.key, 0)
    except FAILURES as problem:
        return _text(problem)
    return "" if 200 <= status < 300 else Message("the webhook answered %(status)s", status=status)


def _text(problem: Exception) -> str:
    """Return what went wrong, as a page and a column can have it."""
    return clip(storable(message_of(problem) or type(problem).__name__), MAX_PROBLEM)


SENDER = retries.Sender(RegistryDelivery, "webhook__user", _attempt)
deliver = SENDER.deliver


def send(hook: RegistryWebhook, event: str, data: dict, key: uuid.UUID, most: int) -> tuple[int, bytes]:
    """Send an event; return the status and at most `most` bytes of the answer. Raises as webhook.post."""
    entity, _dot, action = event.partition(".")
    about = {"entity": entity, "action": action, "timestamp": timezone.now().isoformat(), "data": data}
    body = json.dumps(about).encode()
    headers = {"X-MLflow-Delivery-Id": str(key), "X-MLflow-Timestamp": str(int(time.time()))}
    secret = sealing.unseal(hook.secret, PURPOSE)
    if secret:
        headers["X-MLflow-Signature"] = signature(secret, str(key), headers["X-MLflow-Timestamp"], body)
    return webhook.post(hook.url, body, headers, most=most)


def signature(secret: str, key: str, at: str, body: bytes) -> str:
    """Return the signature of a delivery."""
    digest = hmac.new(secret.encode(), f"{key}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
