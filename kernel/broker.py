"""The task queue: Dramatiq over Valkey, the same broker object for those who enqueue and for the workers."""

from __future__ import annotations

from functools import cache

import dramatiq
from django.conf import settings
from django.db import close_old_connections
from dramatiq.brokers.redis import RedisBroker

from .errors import Fault

QUEUES = ("default", "files", "gpu")
IDLE_LOOK_MS = 100


class DatabaseConnections(dramatiq.Middleware):
    """Broken or aged database connections are closed around each message, as Django does around each request."""

    def before_process_message(self, broker, message):
        close_old_connections()

    def after_process_message(self, broker, message, *, result=None, exception=None):
        close_old_connections()

    after_skip_message = before_process_message


class Broker(RedisBroker):
    """Looks often into a queue that is idle: Dramatiq's own pause grows to a second, which each job would wait."""

    def consume(self, queue_name, prefetch=1, timeout=5000):
        return super().consume(queue_name, prefetch, min(timeout, IDLE_LOOK_MS))


@cache
def broker() -> RedisBroker:
    """The broker, also set as Dramatiq's own default.

    The short heart-beat time-out and the certain maintenance give a killed worker's messages to another one within
    seconds; Dramatiq's defaults may leave them for minutes on an idle queue.
    """
    made = Broker(url=settings.REDIS_URL, heartbeat_timeout=10_000, maintenance_chance=1_000_000)
    made.add_middleware(DatabaseConnections())
    dramatiq.set_broker(made)
    return made


def require() -> None:
    """Raises Fault when the broker does not answer: asked before anything is stored that needs it."""
    try:
        broker().client.ping()
    except Exception as problem:  # redis-py raises many kinds; each means the same to the caller
        raise Fault("the task queue is not available, try again later") from problem
