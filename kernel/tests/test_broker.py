"""The task queue: a message is delivered when it arrives, also when its notification is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from dramatiq import Message, Worker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.errors import ConnectionClosed

from kernel import broker as kernel_broker
from mlp.tests.patience import LIMIT_S

QUEUE = "default"


@pytest.fixture
def broker():
    return kernel_broker.broker()


@pytest.fixture
def consumer(broker):
    consumer = broker.consume(QUEUE)
    yield consumer
    consumer.close()


def look_every(seconds: float, monkeypatch) -> None:
    monkeypatch.setattr(kernel_broker, "IDLE_LOOK_S", seconds)
    monkeypatch.setattr(kernel_broker, "FIRST_LOOK_S", seconds)


def message(text: str) -> Message:
    return Message(queue_name=QUEUE, actor_name="kernel.beat.default", args=(text,), kwargs={}, options={})


def waiting(consumer) -> tuple[threading.Thread, list]:
    """Wait for one message in a thread."""
    messages = []

    def wait() -> None:
        messages.append(next(received for received in consumer if received is not None))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread, messages


def test_an_idle_consumer_is_notified_of_a_message(broker, consumer, monkeypatch):
    look_every(10 * LIMIT_S, monkeypatch)
    assert next(consumer) is None  # the confirmation of the subscription
    thread, messages = waiting(consumer)
    broker.enqueue(message("one"))
    thread.join(LIMIT_S)
    assert [message.args for message in messages] == [("one",)]


def test_a_message_whose_notification_is_lost_is_found(broker, consumer, monkeypatch):
    look_every(0.05, monkeypatch)
    thread, messages = waiting(consumer)
    RedisBroker.enqueue(broker, message("one"))
    thread.join(LIMIT_S)
    assert [message.args for message in messages] == [("one",)]


def test_one_look_finds_all_messages(broker, consumer, monkeypatch):
    look_every(10 * LIMIT_S, monkeypatch)
    assert next(consumer) is None
    for number in range(3):
        broker.enqueue(message(str(number)))
    assert [taken(consumer) for _ in range(3)] == [("0",), ("1",), ("2",)]
    assert next(consumer) is None
    assert not consumer.notices.get_message()


def taken(consumer: Iterator) -> tuple:
    received = next(received for received in consumer if received is not None)
    consumer.ack(received)
    return received.args


def test_launches_pass_what_else_is_queued(broker, monkeypatch):
    """A worker with one thread has at most its few prefetched messages before a launch."""
    order: list[str] = []
    done = threading.Event()

    def launch(*_args) -> None:
        order.append("launch")
        done.set()

    monkeypatch.setattr(broker.actors["kernel.beat.default"], "fn", lambda text: order.append(text))
    monkeypatch.setattr(broker.actors["jobs.launch"], "fn", launch)
    for number in range(200):
        broker.enqueue(message(str(number)))
    launched = Message(queue_name="launches", actor_name="jobs.launch", args=(1,), kwargs={}, options={})
    broker.enqueue(launched)
    worker = Worker(broker, queues={"launches", QUEUE}, worker_threads=1)
    worker.start()
    try:
        assert done.wait(LIMIT_S)
    finally:
        worker.stop()
        broker.ending.clear()
    assert order.index("launch") < 20


def test_a_consumer_with_unfinished_messages_waits_for_no_notification(broker, consumer, monkeypatch):
    """They may end at any time, and leave room for the next one."""
    look_every(10 * LIMIT_S, monkeypatch)
    for number in range(2):
        broker.enqueue(message(str(number)))
    first = next(received for received in consumer if received is not None)
    assert [next(consumer) for _ in range(3)] == [None] * 3  # it holds one unfinished message and may hold no more
    thread, messages = waiting(consumer)
    consumer.ack(first)
    thread.join(LIMIT_S)
    assert [message.args for message in messages] == [("1",)]


def test_the_end_of_the_worker_does_not_wait_for_its_consumers(broker, consumer, monkeypatch):
    look_every(10 * LIMIT_S, monkeypatch)
    assert next(consumer) is None
    monkeypatch.setattr(broker, "ending", threading.Event())
    broker.emit_before("worker_shutdown", None)
    thread = threading.Thread(target=lambda: next(consumer), daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_the_end_of_the_worker_wakes_consumers_that_wait(broker, consumer, monkeypatch):
    look_every(10 * LIMIT_S, monkeypatch)
    monkeypatch.setattr(broker, "ending", threading.Event())
    assert next(consumer) is None
    waits, wait = threading.Event(), consumer.notices.get_message

    def waited(**options):
        waits.set()
        return wait(**options)

    monkeypatch.setattr(consumer.notices, "get_message", waited)
    thread = threading.Thread(target=lambda: next(consumer), daemon=True)
    thread.start()
    assert waits.wait(LIMIT_S)
    broker.emit_before("worker_shutdown", None)
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_a_delayed_message_is_delivered_at_its_time_without_a_notification(broker, monkeypatch):
    look_every(10 * LIMIT_S, monkeypatch)
    done = threading.Event()
    monkeypatch.setattr(broker.actors["kernel.beat.default"], "fn", lambda _text: done.set())
    worker = Worker(broker, queues={QUEUE}, worker_threads=1)
    worker.start()
    try:
        broker.enqueue(message("later"), delay=300)
        assert done.wait(LIMIT_S)
    finally:
        worker.stop()
        broker.ending.clear()


def test_a_lost_connection_ends_the_consumer(consumer, monkeypatch):
    """Dramatiq then makes another one."""

    def lost(timeout: float) -> None:
        raise kernel_broker.redis.ConnectionError("it is gone")

    monkeypatch.setattr(consumer.notices, "get_message", lost)
    with pytest.raises(ConnectionClosed):
        next(consumer)
