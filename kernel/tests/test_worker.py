"""A worker's threads wait for tasks, and end when they are asked to, without looking up meanwhile."""

from __future__ import annotations

import queue
import threading

import pytest
from dramatiq import Message

from kernel import broker as kernel_broker
from kernel.worker import Tasks, Worker
from mlp.tests.patience import LIMIT_S

ACTOR, QUEUE = "kernel.beat.default", "default"


@pytest.fixture
def broker():
    broker = kernel_broker.broker()
    yield broker
    broker.ending.clear()


def enqueue(broker, *numbers: int) -> None:
    for number in numbers:
        broker.enqueue(Message(queue_name=QUEUE, actor_name=ACTOR, args=(number,), kwargs={}, options={}))


def test_tasks_run_and_an_idle_worker_ends_at_once(broker, monkeypatch):
    done: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr(broker.actors[ACTOR], "fn", done.put)
    worker = Worker(broker, {QUEUE}, 2)
    worker.start()
    enqueue(broker, 1, 2, 3)
    assert sorted(done.get(timeout=LIMIT_S) for _ in range(3)) == [1, 2, 3]
    worker.stop(1000 * LIMIT_S)
    assert not any(thread.is_alive() for thread in worker.workers)


def test_the_end_waits_for_tasks_under_way_and_gives_back_the_others(broker, monkeypatch):
    begun: queue.Queue[int] = queue.Queue()
    go_on = threading.Event()

    def work(number: int) -> None:
        begun.put(number)
        assert go_on.wait(LIMIT_S)

    monkeypatch.setattr(broker.actors[ACTOR], "fn", work)
    worker = Worker(broker, {QUEUE}, 1)
    worker.start()
    enqueue(broker, 1, 2)
    assert begun.get(timeout=LIMIT_S) == 1
    end = threading.Thread(target=worker.stop, args=(1000 * LIMIT_S,))
    end.start()
    assert broker.ending.wait(LIMIT_S)
    go_on.set()
    end.join(LIMIT_S)
    assert not end.is_alive()
    assert begun.empty()
    worker = Worker(broker, {QUEUE}, 1)
    worker.start()
    assert begun.get(timeout=LIMIT_S) == 2  # once, and not the first
    worker.stop(1000 * LIMIT_S)
    assert begun.empty()


def test_a_message_that_cannot_be_read_takes_no_others_with_it(broker, monkeypatch):
    done: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr(broker.actors[ACTOR], "fn", done.put)
    for number, text in enumerate((b"\xff", b"{", b"[]", b'{"queue_name": "default"}')):
        broker.do_enqueue(QUEUE, f"unreadable-{number}", text)
        enqueue(broker, number)
    worker = Worker(broker, {QUEUE}, 8)
    worker.start()
    assert sorted(done.get(timeout=LIMIT_S) for _ in range(4)) == [0, 1, 2, 3]
    worker.stop(1000 * LIMIT_S)


def test_what_is_left_at_the_end_can_be_taken_without_waiting():
    tasks = Tasks()
    tasks.put(7)
    tasks.end()
    with pytest.raises(queue.Empty):
        tasks.get(timeout=LIMIT_S)
    assert tasks.get_nowait() == 7
