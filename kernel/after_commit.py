"""What happens once the transaction is committed: tasks are enqueued, live pages are notified of changes.

The only user of `transaction.on_commit`. When the broker or the channel layer is not available the error is logged
and the commit stands, since the row is the truth and the reconcile loop (or the next wake) makes up for it. Actors are
named, not imported, so lifecycles never import actors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import redis
from asgiref.sync import async_to_sync
from channels.layers import BaseChannelLayer, get_channel_layer
from django.db import transaction
from dramatiq import Message

from .broker import broker
from .telemetry import tracing

log = logging.getLogger(__name__)

DEFAULT = "default"  # the queue
_WAITS = "mlp:waits:{actor}"  # set while a message waits that no second one need follow
WAITS_S = 30  # until another one is sent, should the first be lost


def enqueue(actor: str, *args, queue: str = DEFAULT, delay_ms: int | None = None) -> None:
    """Send a message to the actor of that name once the transaction is committed (at once outside of one)."""
    message = Message(queue_name=queue, actor_name=actor, args=args, kwargs={}, options={})

    def send() -> None:
        with tracing.sending(message):
            broker().enqueue(message, delay=delay_ms)

    run(f"enqueue {actor}{args}", send)


def enqueue_once(actor: str) -> None:
    """Send a message without arguments to an actor that reads the database, unless one waits that will find the same.

    The actor calls `taken` before it reads. So a thousand requests are one round of work, and delay nothing else.
    """
    message = Message(queue_name=DEFAULT, actor_name=actor, args=(), kwargs={}, options={})

    def send() -> None:
        key = _WAITS.format(actor=actor)
        if not broker().client.set(key, 1, nx=True, ex=WAITS_S):
            return
        try:
            with tracing.sending(message):
                broker().enqueue(message)
        except BaseException:
            broker().client.delete(key)
            raise

    run(f"enqueue {actor}", send)


def taken(actor: str) -> None:
    """Let the next `enqueue_once` send again. Called by the actor before it reads what it works on."""
    with suppress(redis.RedisError):  # it may have gone away since; then messages wait for WAITS_S
        broker().client.delete(_WAITS.format(actor=actor))


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


def changed(owner: str, kind: str, name: str, *, moving: bool = False, progress: int | None = None) -> None:
    """Notify the open pages of the owner and of all operators that this object looks different now.

    Every change of state does this by itself (see kernel.models); call it for what changes without one, with
    `moving` for what changes often, such as progress: pages then refresh less eagerly, and show the `progress` that is
    given here. Read by mlp.visitors.live.
    """
    event = {"type": "changed", "owner": owner, "kind": kind, "name": name, "moving": moving, "progress": progress}
    run(f"notify of {kind} {owner}/{name}", lambda: _send(event, pages_of(owner), OPERATORS_PAGES))


def stir(kind: str, pk: int, owner: str, name: str) -> None:
    """Notify the open pages of an object and those of its owner, at once: for what changes often, outside of any
    transaction, in whatever thread.
    """
    event = {"type": "changed", "owner": owner, "kind": kind, "name": name, "moving": True, "progress": None}
    try:
        _send({"type": "wake", "kind": kind}, group(kind, pk))
        _send(event, pages_of(owner), OPERATORS_PAGES)
    except Exception:  # as in `run`
        log.exception("could not notify of %s %s/%s; the reconcile loop will make up for it", kind, owner, name)


def send_to_group(name: str, event: dict) -> None:
    """Send an event to a group of the channel layer. Losing one is harmless to its receivers."""
    run(f"notify {name}", lambda: _send(event, name))


def _send(event: dict, *groups: str) -> None:
    """Send an event to those of the groups that have members; most have none, and looking costs a tenth of sending."""
    layer = get_channel_layer()
    if joined := layer.with_members(*groups):
        async_to_sync(_send_to_all)(layer, joined, event)


async def _send_to_all(layer: BaseChannelLayer, groups: list[str], event: dict) -> None:
    await asyncio.gather(*(layer.group_send(group, event) for group in groups))


OPERATORS_PAGES = "pages.operators"


def pages_of(username: str) -> str:
    """Return the channel layer's group of all open pages of a user."""
    return f"pages.user.{username}"


def group(kind: str, pk: int) -> str:
    return f"{kind}.{pk}"
