"""Webhooks on the events of a user's registry, and sending to them.

What is sent is signed as MLflow does it: `X-MLflow-Signature: v1,` and the base64 of HMAC-SHA256 with the webhook's
secret over "{delivery id}.{timestamp}.{body}". The delivery id is the same in each attempt. Where it may go, and how
names are resolved, is decided by accounts.delivery, as for notices.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import threading
import time
import uuid
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from accounts import delivery
from accounts import lifecycle as accounts
from kernel import after_commit, clock, outbound, sanitize, sealing
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message, clip, message_of, storable
from models_app.models import RegistryDelivery, RegistryWebhook
from models_app.models.webhook import PURPOSE

from . import checks, events

MAX = 100  # webhooks of a user
PAUSES_S = (10, 60, 300, 1800, 7200)  # after each failed attempt; after the last the delivery has failed
LIMIT_S = 10.0  # of one attempt
CLAIMED_S = 60  # after which an attempt that a killed process has begun is made again
AT_ONCE = 3  # deliveries that one process sends at the same time
KEPT = timedelta(days=7)
DUE = 200
BODY_BYTES = 1000  # of the answer to a test
KIND = RegistryWebhook._meta.model_name
MAX_SECRET, MAX_PROBLEM = 500, 500  # characters
FAILURES = (Refused, OSError, http.client.HTTPException)
_slots = threading.BoundedSemaphore(AT_ONCE)


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
        _need_target(row.url)
    unknown = [one for one in row.events if one not in events.EVENTS]
    if unknown or not row.events:
        raise Refused("must be one or more of %(choices)s", field="events", choices=", ".join(events.EVENTS))
    row.events = sorted(set(row.events))
    with transaction.atomic():
        accounts.hold_active(user)
        if row.pk is None and RegistryWebhook.objects.filter(user=user).count() >= MAX:
            raise Refused("you have %(limit)s webhooks, the most that are allowed", limit=MAX)
        row.save()
        for waiting in RegistryDelivery.objects.filter(webhook=row, open=True) if resumed else ():
            again(waiting)
    return row


def _need_target(url: str) -> None:
    """Check that deliveries may be sent to the address. Raises Refused, which names the field url."""
    try:
        delivery.target(url)
    except Refused as refused:
        raise Refused(refused.problem, field="url") from None


def delete(row: RegistryWebhook) -> None:
    """Delete a webhook, and what was still to be sent to it."""
    row.delete()


def again(row: RegistryDelivery) -> None:
    """Start a delivery over, with the same delivery id."""
    again = {"open": True, "attempts": 0, "not_before": timezone.now()}
    if RegistryDelivery.objects.filter(pk=row.pk).update(**again):
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
        return {"success": False, "status": None, "body": "", "problem": _said(problem)}
    text = sanitize.text(body.decode("utf-8", "replace"))
    return {"success": 200 <= status < 300, "status": status, "body": text, "problem": ""}


# --- sending ---------------------------------------------------------------------------------------------------------
def deliver(pk: int) -> None:
    """Make an attempt at a delivery that is due, unless this process sends AT_ONCE others: reconcile comes back."""
    if not _slots.acquire(blocking=False):
        return
    try:
        row = _claim(pk)
        if row is not None:
            problem = _attempt(row)
            _settle(row, problem)
    finally:
        _slots.release()


def due() -> list[int]:
    """Return the deliveries that are due, and forget old ones."""
    RegistryDelivery.objects.filter(open=False, created__lt=clock.settled(timezone.now()) - KEPT).delete()
    rows = RegistryDelivery.objects.filter(open=True, not_before__lte=timezone.now()).order_by("not_before", "pk")
    return list(rows.values_list("pk", flat=True)[:DUE])


def _claim(pk: int) -> RegistryDelivery | None:
    """Count the attempt, so that it is made once, and return the delivery; None when it is not due."""
    now = timezone.now()
    with transaction.atomic():
        rows = RegistryDelivery.objects.select_related("webhook__user").select_for_update(
            of=("self",), skip_locked=True
        )
        row = rows.filter(pk=pk, open=True, not_before__lte=now).first()
        if row is None:
            return None
        row.attempts += 1
        row.not_before = now + timedelta(seconds=CLAIMED_S)
        row.save(update_fields=["attempts", "not_before"])
    return row


def _attempt(row: RegistryDelivery) -> str:
    """Send a delivery; return what went wrong, empty when it has arrived."""
    if not row.webhook.active:
        return Message("the webhook is paused")
    try:
        status, _body = send(row.webhook, row.event, row.data, row.key, 0)
    except FAILURES as problem:
        return _said(problem)
    return "" if 200 <= status < 300 else Message("the webhook answered %(status)s", status=status)


def _said(problem: Exception) -> str:
    """Return what went wrong, as a page and a column can have it."""
    return clip(storable(message_of(problem) or type(problem).__name__), MAX_PROBLEM)


def _settle(row: RegistryDelivery, problem: str) -> None:
    over = not problem or row.attempts > len(PAUSES_S)
    pause = 0 if over else PAUSES_S[row.attempts - 1]
    RegistryDelivery.objects.filter(pk=row.pk).update(
        open=not over, problem=problem, not_before=timezone.now() + timedelta(seconds=pause)
    )
    after_commit.changed(row.webhook.user.username, KIND, row.webhook.name)


def send(hook: RegistryWebhook, event: str, data: dict, key: uuid.UUID, most: int) -> tuple[int, bytes]:
    """Send an event; return the status and at most `most` bytes of the answer. Raises Refused, or as `exchange`."""
    scheme, host, port, path, address = delivery.target(hook.url)
    entity, _dot, action = event.partition(".")
    about = {"entity": entity, "action": action, "timestamp": timezone.now().isoformat(), "data": data}
    body = json.dumps(about).encode()
    host_header = f"[{host}]" if ":" in host else host
    headers = {
        "Host": host_header if port in (80, 443) else f"{host_header}:{port}",
        "Content-Type": "application/json",
        "User-Agent": "ml-platform",
        "X-MLflow-Delivery-Id": str(key),
        "X-MLflow-Timestamp": str(int(time.time())),
    }
    secret = sealing.unseal(hook.secret, PURPOSE)
    if secret:
        headers["X-MLflow-Signature"] = signature(secret, str(key), headers["X-MLflow-Timestamp"], body)
    return outbound.exchange(
        (address, port), "POST", path, body, headers, limit_s=LIMIT_S, most=most,
        tls_name=host if scheme == "https" else "",
    )  # fmt: skip


def signature(secret: str, key: str, at: str, body: bytes) -> str:
    """Return the signature of a delivery."""
    digest = hmac.new(secret.encode(), f"{key}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
