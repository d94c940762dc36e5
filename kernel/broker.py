"""The task queue: Dramatiq over Valkey, the same broker object for those who enqueue and for the workers."""

from __future__ import annotations

import heapq
import logging
import os
import threading
import time
from contextlib import suppress
from functools import cache

import dramatiq
import redis
from django.db import close_old_connections
from dramatiq.brokers.redis import RedisBroker
from dramatiq.errors import ConnectionClosed, DecodeError
from dramatiq.middleware import TimeLimit, default_middleware

from . import probes, valkey
from .errors import Fault
from .telemetry import meters, tracing

log = logging.getLogger(__name__)

IDLE_LOOK_S = 5.0  # how long a message waits whose notification was lost
# The same for a consumer that has just begun: perhaps its predecessor was killed, and has left messages.
FIRST_LOOK_S, FIRST_S = 1.0, 20.0
BUSY_LOOK_MS = 100  # at most, while messages are being processed
HEARTBEAT_TIMEOUT_MS = 10_000  # of a worker; its looks are its heartbeats
LIMITS_LOOK_MS = 10_000  # how late a task is ended that takes longer than its time limit, which is minutes at least


class DatabaseConnections(dramatiq.Middleware):
    """Closes broken or aged database connections around each message, as Django does around each request."""

    def before_process_message(self, broker, message):
        close_old_connections()

    def after_process_message(self, broker, message, *, result=None, exception=None):
        close_old_connections()

    after_skip_message = before_process_message


class Measures(dramatiq.Middleware):
    """Counts tasks by their outcome, how long they take, and how long they have waited since they were due."""

    def __init__(self):
        self.begun: dict[str, float] = {}  # by message

    def before_process_message(self, broker, message):
        self.begun[message.message_id] = time.perf_counter()
        due_ms = message.options.get("eta") or message.message_timestamp
        meters.TASK_WAIT_SECONDS.labels(_queue(message)).observe(max(0.0, time.time() - due_ms / 1000))

    def after_process_message(self, broker, message, *, result=None, exception=None):
        outcome = "failed" if exception is not None else "done"
        meters.TASKS.labels(_queue(message), message.actor_name, outcome).inc()
        begun = self.begun.pop(message.message_id, None)
        if begun is not None:
            meters.TASK_SECONDS.labels(message.actor_name).observe(time.perf_counter() - begun)

    def after_skip_message(self, broker, message):
        self.begun.pop(message.message_id, None)
        meters.TASKS.labels(_queue(message), message.actor_name, "skipped").inc()


def _queue(message: dramatiq.Message) -> str:
    """Return the queue's name; messages that wait for their time are in one of their own."""
    return message.queue_name.removesuffix(".DQ")


class Consumer(dramatiq.Consumer):
    """Looks into an idle queue when it is notified of a message, and into a queue of delayed ones also when the next of
    them is due. Dramatiq's own looks again and again, in pauses that every job would wait, and that cost an idle
    platform a twentieth of a core.
    """

    def __init__(self, broker: Broker, looks: dramatiq.Consumer, channel: str, delays: bool):
        self.broker, self.looks, self.delays = broker, looks, delays
        self.due_ms: list[float] = []  # a heap of the times of the delayed messages
        self.begun = time.monotonic()
        self.ack, self.nack, self.requeue = looks.ack, looks.nack, looks.requeue
        self.notices = broker.client.pubsub(ignore_subscribe_messages=True)
        self.notices.subscribe(channel)

    def __next__(self):
        self.broker.show()
        unfinished = self.looks.outstanding_message_count and not self.delays
        busy = unfinished or self.broker.ending.is_set()
        self.looks.timeout = BUSY_LOOK_MS if busy else 0
        try:
            message = next(self.looks)
        except (DecodeError, TypeError) as problem:  # those that were received with it must not be lost with the thread
            log.error("a message of the queue %s cannot be read and is left out: %s", self.looks.queue_name, problem)
            return None
        if message is None and not busy:
            try:
                self._wait(self._pause_s())
            except redis.ConnectionError as problem:
                raise ConnectionClosed(problem) from None
        elif message is not None and self.delays:
            heapq.heappush(self.due_ms, message.options.get("eta") or 0)
        return message

    def _pause_s(self) -> float:
        """Return how long nothing is to be done unless a notification comes."""
        now_ms, pause_s = 1000 * time.time(), IDLE_LOOK_S
        if time.monotonic() - self.begun < FIRST_S:
            pause_s = min(pause_s, FIRST_LOOK_S)
        if self.due_ms:
            pause_s = min(pause_s, max(0.0, self.due_ms[0] - now_ms) / 1000)
        while self.due_ms and self.due_ms[0] <= now_ms:
            heapq.heappop(self.due_ms)
        return pause_s

    def _wait(self, pause_s: float) -> None:
        if self.notices.get_message(timeout=pause_s):
            while self.notices.get_message():  # one look at the queue finds all messages notified so far
                pass

    def close(self) -> None:
        self.notices.close()
        self.looks.close()


class Broker(RedisBroker):
    """Notifies the consumers of a queue of each message."""

    def __init__(self, **options):
        self.ending = threading.Event()  # from then on consumers do not keep their worker waiting
        super().__init__(**options)

    def consume(self, queue_name, prefetch=1, timeout=5000):
        self.show()  # while Valkey is away, too: another process would not reach it either
        looks = super().consume(queue_name, prefetch, timeout)
        return Consumer(self, looks, self._channel(queue_name), queue_name in self.delay_queues)

    def show(self) -> None:
        """Show to a probe that this worker looks for messages, however busy it is."""
        probes.alive(os.environ.get("MLP_PART", ""))

    def enqueue(self, message, *, delay=None):
        enqueued = super().enqueue(message, delay=delay)
        with suppress(redis.RedisError):  # a lost notification costs IDLE_LOOK_S
            self.client.publish(self._channel(enqueued.queue_name), b"")
        return enqueued

    def wake(self) -> None:
        """Have all consumers look."""
        with suppress(redis.RedisError):
            for queue_name in (*self.queues, *self.delay_queues):
                self.client.publish(self._channel(queue_name), b"")

    def _channel(self, queue_name: str) -> str:
        return f"{self.namespace}:notices:{queue_name}"


class Ending(dramatiq.Middleware):
    """Tells the consumers that their worker ends, which first waits for its threads."""

    def before_worker_shutdown(self, broker, worker):
        broker.ending.set()
        broker.wake()


@cache
def broker() -> RedisBroker:
    """Return the broker, and set it as Dramatiq's default.

    The short heartbeat time-out and the frequent maintenance give a killed worker's messages to another one within
    seconds; Dramatiq's defaults may leave them for minutes on an idle queue.
    """
    usual = [TimeLimit(interval=LIMITS_LOOK_MS) if each is TimeLimit else each() for each in default_middleware]
    redis_broker = Broker(
        client=valkey.client(),
        middleware=usual,
        heartbeat_timeout=HEARTBEAT_TIMEOUT_MS,
        maintenance_chance=1_000_000,
    )
    redis_broker.add_middleware(DatabaseConnections())
    redis_broker.add_middleware(Measures())
    if tracing.enabled():
        redis_broker.add_middleware(tracing.TraceTasks())
    redis_broker.add_middleware(Ending())
    dramatiq.set_broker(redis_broker)
    return redis_broker


def require() -> None:
    """Raise Fault when the broker does not answer. Called before anything is stored that needs it."""
    try:
        broker().client.ping()
    except Exception as problem:  # redis-py raises many kinds of errors, which mean the same to the caller
        raise Fault("the task queue is not available; try again later") from problem
