"""Metrics from Kafka, for scripts written for it: one topic's messages are forwarded to JetStream.

A message is one JobMetrics object that names its `user` and `name`. Its position in the topic is its id, so a message
read twice counts once; the offset is committed only after JetStream has the message. Run by `manage.py kafka`, which is
a part of the platform when KAFKA_URL is set.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from django.conf import settings
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from kernel import bus, disk, heartbeats, names, sanitize
from kernel.errors import Fault, Refused

from . import recording

log = logging.getLogger(__name__)

GROUP = "mlp-platform"
POLL_MS = 500
BATCH = 500
RETRY_S = 2
PARTITIONS_EVERY_S = 60


def run(stop: threading.Event, check: Callable[[], None] = lambda: None) -> None:
    """Work until `stop` is set. `check` raises when this process must not go on.

    While Kafka or NATS is unavailable it waits; no message is skipped.
    """
    while not stop.is_set():
        consumer = None
        try:
            consumer = KafkaConsumer(**_options())
            looked = 0.0
            while not stop.is_set():
                check()
                heartbeats.beat("kafka")
                if time.monotonic() - looked > PARTITIONS_EVERY_S or not consumer.assignment():
                    looked = time.monotonic()
                    if not _take_all(consumer):
                        stop.wait(POLL_MS / 1000)
                        continue
                disk.require()
                batch = consumer.poll(timeout_ms=POLL_MS, max_records=BATCH)
                messages = [message for records in batch.values() for message in map(_translate, records) if message]
                if messages:
                    bus.publish(messages)
                if batch:
                    consumer.commit()
        except (KafkaError, Fault, OSError) as problem:
            log.warning("kafka: %s; trying again", problem or type(problem).__name__)
            heartbeats.beat("kafka")  # the part works; the broker is unavailable, and the log says so
            stop.wait(RETRY_S)
        finally:
            if consumer is not None:
                consumer.close(autocommit=False)


def _take_all(consumer: KafkaConsumer) -> bool:
    """Assign every partition of the topic; return False while the topic does not exist.

    Without a consumer group: only one process runs, so joining a group would only cost time.
    """
    numbers = consumer.partitions_for_topic(settings.KAFKA_TOPIC) or set()
    wanted = {TopicPartition(settings.KAFKA_TOPIC, number) for number in numbers}
    if wanted - consumer.assignment():
        consumer.assign(sorted(wanted))
    return bool(wanted)


def _options() -> dict:
    """Return the client's options for KAFKA_URL, `kafka://[user:password@]host:port[,host:port…]`
    or `kafka+ssl://…`.
    """
    parts = urlsplit(settings.KAFKA_URL)
    login, _, hosts = parts.netloc.rpartition("@")
    secure = parts.scheme == "kafka+ssl"
    options = {
        "bootstrap_servers": hosts.split(","),
        "group_id": GROUP,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "client_id": "mlp-platform",
        "security_protocol": ("SASL_" if login else "") + ("SSL" if secure else "PLAINTEXT"),
    }
    if login:
        user, _, password = login.partition(":")
        options |= {
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": unquote(user),
            "sasl_plain_password": unquote(password),
        }
    return options


def _translate(record) -> tuple[str, bytes, str] | None:
    """Return a record as (subject, body, message id); None, with a log line, for one without user and job."""
    where = f"kafka:{record.topic}:{record.partition}:{record.offset}"
    try:
        if record.value is None or len(record.value) > recording.MESSAGE_BYTES:
            raise ValueError("empty or too large")
        body = sanitize.read_strict(record.value)
        user, job = names.name(body["user"], "user"), names.name(body["name"])
    except (Refused, ValueError, TypeError, KeyError) as problem:
        log.warning("ignored %s: no JobMetrics with a user and a name (%s)", where, problem)
        return None
    return recording.subject(user, job), record.value, where
