"""Servers that operators run themselves: whether they answer, and if not, which setting named which address."""

from __future__ import annotations

import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import redis
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection

from kernel import broker, bus
from kernel.errors import Fault

CONNECT_S = 3


class Unreachable(RuntimeError):
    """A server that a setting names cannot be used; the message has the setting, the address and the reason."""


def require() -> None:
    """Try each server that is not an embedded one. Raises Unreachable."""
    checks: dict[str, tuple[str, str, Callable[[], object]]] = {
        "database": ("DATABASE_URL", settings.DATABASE_URL, connection.ensure_connection),
        "valkey": ("REDIS_URL", settings.REDIS_URL, lambda: broker.broker().client.ping()),
        "nats": ("NATS_URL", settings.NATS_URL, _message_bus),
    }
    for part, (setting, url, check) in checks.items():
        if settings.EMBEDDED[part]:
            continue
        try:
            check()
        except (DatabaseError, InterfaceError, redis.RedisError, OSError) as problem:
            reason = " ".join(str(problem).split()) or type(problem).__name__
            raise Unreachable(f"{setting}: the server at {_address(url)} cannot be used: {reason}") from problem


def _message_bus() -> None:
    """Raise OSError. The client itself repeats until its time is over, and does not say what was wrong."""
    parts = urlsplit(settings.NATS_URL)
    socket.create_connection((parts.hostname, parts.port or 4222), CONNECT_S).close()
    try:
        bus.check()
    except Fault as problem:
        raise ConnectionError("no answer as NATS with JetStream to these credentials") from problem


def _address(url: str) -> str:
    """Return the address without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
