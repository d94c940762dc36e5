"""The task queue: Dramatiq over Valkey, the same broker object for those who enqueue and for the workers."""

from __future__ import annotations

from functools import cache

import dramatiq
from django.conf import settings
from django.db import close_old_connections
from dramatiq.brokers.redis import RedisBroker

from .errors import Fault

IDLE_LOOK_MS = 100


class DatabaseConnections(dramatiq.Middleware):
    """Closes broken or aged database connections around each message, as Django does around each request."""

    def before_process_message(self, broker, message):
        close_old_connections()

    def after_process_message(self, broker, message, *, result=None, exception=None):
        close_old_connections()

    after_skip_message = before_process_message


class Broker(RedisBroker):
    """Polls an idle queue often: Dramatiq's own pause grows to a second, which every job would wait."""

    def consume(self, queue_name, prefetch=1, timeout=5000):
        return super().consume(queue_name, prefetch, min(timeout, IDLE_LOOK_MS))


@cache
def broker() -> RedisBroker:
    """Return the broker, and set it as Dramatiq's default.

    The short heartbeat time-out and the frequent maintenance give a killed worker's messages to another one within
    seconds; Dramatiq's defaults may leave them for minutes on an idle queue.
    """
    made = Broker(url=settings.REDIS_URL, heartbeat_timeout=10_000, maintenance_chance=1_000_000)
    made.add_middleware(DatabaseConnections())
    dramatiq.set_broker(made)
    return made


def require() -> None:
    """Raise Fault when the broker does not answer. Called before anything is stored that needs it."""
    try:
        broker().client.ping()
    except Exception as problem:  # redis-py raises many kinds of errors, which mean the same to the caller
        raise Fault("the task queue is not available; try again later") from problem
