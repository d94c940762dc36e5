"""Whether each part works, heartbeats, the task queues in Valkey, and JetStream."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Iterator

from django.db import DatabaseError, connection
from prometheus_client import Metric
from redis.exceptions import RedisError

from kernel import broker, bus, consuming, heartbeats
from kernel.errors import Fault
from supervision import health
from tracking.metrics import recording

from .families import gauge

log = logging.getLogger(__name__)
QUEUES = ("default", "files", "gpu")
ASK_S = 2.0


def collect() -> Iterator[Metric]:
    """Yield the metrics. Of a server that is down there is only that; the others are asked.

    What /healthz asks each server for by itself is known here from the answers to the questions below.
    """
    checks = health.checks()
    fronts = {name: checks[name] for name in checks if name not in (*health.BEATING, "database", "valkey", "nats")}
    state = {name: how == "ok" for name, how in health.ask(fronts).items()}
    state["database"] = _works("database", _ask_database)
    metrics: list[Metric] = []
    state["valkey"] = _works("valkey", lambda: metrics.extend([*_heartbeats(state), *_queues()]))
    state["nats"] = _works("nats", lambda: metrics.extend(_streams()))
    rows = [((part,), works) for part, works in state.items()]
    yield gauge("mlp_part_up", "Whether this part of the platform works.", ("part",), rows)
    yield from metrics


def _works(name: str, question: Callable[[], object]) -> bool:
    try:
        question()
    except (RedisError, DatabaseError, Fault) as problem:
        log.info("metrics: %s: %s", name, problem)
        return False
    return True


def _ask_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _heartbeats(state: dict[str, bool]) -> Iterator[Metric]:
    """Yield the ages of the heartbeats, and note which parts have none."""
    values = broker.broker().client.mget([heartbeats.KEY.format(part=part) for part in health.BEATING])
    now = time.time()
    ages = {part: max(0.0, now - float(at)) for part, at in zip(health.BEATING, values, strict=True) if at}
    state |= {part: ages.get(part, math.inf) < health.BEAT_LIMIT_S for part in health.BEATING}
    rows = [((part,), age_s) for part, age_s in ages.items()]
    yield gauge("mlp_heartbeat_age_seconds", "Time since the part's last heartbeat.", ("part",), rows)


def _queues() -> Iterator[Metric]:
    """Yield lengths and ages of the queues of tasks: those that are due, that wait for their time, and that failed."""
    queue = broker.broker()
    with queue.client.pipeline(transaction=False) as asked:
        for name in QUEUES:
            key = f"{queue.namespace}:{name}"
            asked.llen(key).llen(f"{key}.DQ").zcard(f"{key}.XQ").lindex(key, 0)
        asked.info("memory")
        *answers, memory = asked.execute()
    lengths, ages = [], []
    for at, name in enumerate(QUEUES):
        due, delayed, dead, first = answers[4 * at : 4 * at + 4]
        lengths += [((name, "due"), due), ((name, "delayed"), delayed), ((name, "dead"), dead)]
        ages.append(((name,), _age_s(f"{queue.namespace}:{name}.msgs", first)))
    yield gauge("mlp_tasks_queued", "Background tasks that wait.", ("queue", "state"), lengths)
    yield gauge("mlp_task_queue_age_seconds", "Age of the first task that is due.", ("queue",), ages)
    yield gauge("mlp_valkey_memory_bytes", "Memory that Valkey uses.", (), [((), memory.get("used_memory", 0))])


def _age_s(messages: str, first: bytes | None) -> float:
    raw = broker.broker().client.hget(messages, first) if first else None
    if not raw:  # none waits, or a worker has just taken it
        return 0.0
    return max(0.0, time.time() - json.loads(raw)["message_timestamp"] / 1000)


def _streams() -> Iterator[Metric]:
    """Yield what of the reports waits for `ingest`, and since when. Raises Fault when the server does not answer."""
    stream = recording.STREAM.name
    try:
        backlog = consuming.backlog(stream, recording.DURABLE, ASK_S)
    except Fault:  # perhaps only because `ingest` has not created its consumer yet
        return bus.check()
    yield gauge(
        "mlp_stream_pending_messages", "Messages that are not stored yet.", ("stream",), [((stream,), backlog.messages)]
    )
    yield gauge("mlp_stream_age_seconds", "Age of the oldest of them.", ("stream",), [((stream,), backlog.age_s)])
    yield gauge("mlp_stream_size_bytes", "Size of the stream.", ("stream",), [((stream,), backlog.size)])
