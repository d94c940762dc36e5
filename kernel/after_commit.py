"""What happens once the transaction is committed: tasks are enqueued, live pages are notified of changes.

The only user of `transaction.on_commit`. When the broker or the channel layer is not available the error is logged
and the commit stands, since the row is the truth and the reconcile loop (or the next wake) makes up for it. Actors are
named, not imported, so lifecycles never import actors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction
from dramatiq import Message

from .broker import broker

log = logging.getLogger(__name__)


def enqueue(actor: str, *args, queue: str = "default", delay_ms: int | None = None) -> None:
    """Send a message to the actor of that name once the transaction is committed (at once outside of one)."""
    message = Message(queue_name=queue, actor_name=actor, args=args, kwargs={}, options={})
    run(f"enqueue {actor}{args}", lambda: broker().enqueue(message, delay=delay_ms))


def run(what: str, action: Callable[[], object]) -> None:
    """Call `action` once the transaction is committed (at once outside of one). A failure is logged as `what`."""

    def tolerate() -> None:
        try:
            action()
        except Exception:  # any failure here means the same: the reconcile loop does it later
            log.exception("could not %s; the reconcile loop will make up for it", what)

    transaction.on_commit(tolerate)


def wake(kind: str, pk: int) -> None:
    """Have the open pages of an object read the database again. Carries no payload: losing one is harmless."""
    send_to_group(group(kind, pk), {"type": "wake", "kind": kind})


def changed(owner: str, kind: str, name: str, *, moving: bool = False) -> None:
    """Notify the open pages of the owner and of all operators that this object looks different now.

    Every change of state does this by itself (see kernel.models); call it for what changes without one, with
    `moving` for what changes often, such as progress: pages then refresh less eagerly. Read by mlp.visitors.live.
    """
    event = {"type": "changed", "owner": owner, "kind": kind, "name": name, "moving": moving}
    run(f"notify of {kind} {owner}/{name}", lambda: async_to_sync(_send_to_pages)(pages_of(owner), event))


def send_to_group(name: str, event: dict) -> None:
    """Send an event to a group of the channel layer. Losing one is harmless to its receivers."""
    run(f"notify {name}", lambda: async_to_sync(get_channel_layer().group_send)(name, event))


async def _send_to_pages(owner_group: str, event: dict) -> None:
    layer = get_channel_layer()
    await asyncio.gather(layer.group_send(owner_group, event), layer.group_send(OPERATORS_PAGES, event))


OPERATORS_PAGES = "pages.operators"


def pages_of(username: str) -> str:
    """Return the channel layer's group of all open pages of a user."""
    return f"pages.user.{username}"


def group(kind: str, pk: int) -> str:
    return f"{kind}.{pk}"
