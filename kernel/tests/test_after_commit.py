"""Actions after the commit: not before it, not after a rollback, once, and harmless when they fail."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction
from dramatiq import Message

from kernel import after_commit
from kernel.broker import broker

pytestmark = pytest.mark.django_db(transaction=True)

GROUPS = {
    "wake": (lambda: after_commit.wake("job", 7), "job.7", {"type": "wake", "kind": "job"}),
    "send_to_group": (
        lambda: after_commit.send_to_group("tail", {"type": "lines", "n": 1}),
        "tail",
        {"type": "lines", "n": 1},
    ),
    "changed, to the owner": (
        lambda: after_commit.changed("alice", "job", "fit"),
        after_commit.pages_of("alice"),
        {"type": "changed", "owner": "alice", "kind": "job", "name": "fit", "moving": False, "progress": None},
    ),
    "changed, to operators": (
        lambda: after_commit.changed("alice", "job", "fit", moving=True),
        after_commit.OPERATORS_PAGES,
        {"type": "changed", "owner": "alice", "kind": "job", "name": "fit", "moving": True, "progress": None},
    ),
}


def listen(group: str) -> Callable[[], list[dict]]:
    """Join the group; return a function that returns what has arrived since its last call."""

    async def receive() -> list[dict]:
        await layer.group_send(group, {"type": "mark"})
        events = []
        while (heard := await layer.receive(channel)) != {"type": "mark"}:
            events.append(heard)
        return events

    layer = get_channel_layer()
    channel = async_to_sync(layer.new_channel)()
    async_to_sync(layer.group_add)(group, channel)
    return async_to_sync(receive)


def queued(queue: str = "default") -> list[Message]:
    """Return the messages of a queue in Valkey, as a worker would read them."""
    return [Message.decode(data) for data in broker().client.hgetall(f"dramatiq:{queue}.msgs").values()]


class TestEnqueue:
    def test_a_task_is_enqueued_at_the_commit_and_not_before(self):
        with transaction.atomic():
            after_commit.enqueue("jobs.launch", 7, "x", queue="files")
            assert queued("files") == []
        (message,) = queued("files")
        assert (message.actor_name, message.args, message.kwargs) == ("jobs.launch", (7, "x"), {})

    def test_an_inner_atomic_block_is_not_a_commit(self):
        with transaction.atomic():
            with transaction.atomic():
                after_commit.enqueue("jobs.launch", 7)
            assert queued() == []
        assert len(queued()) == 1

    def test_after_a_rollback_nothing_is_enqueued(self):
        with transaction.atomic():
            after_commit.enqueue("jobs.launch", 7)
            transaction.set_rollback(True)
        with transaction.atomic():
            after_commit.enqueue("jobs.launch", 8)
        assert [message.args for message in queued()] == [(8,)]

    def test_a_rolled_back_inner_block_enqueues_nothing(self):
        with transaction.atomic():
            with transaction.atomic():
                after_commit.enqueue("jobs.launch", 7)
                transaction.set_rollback(True)
            after_commit.enqueue("jobs.launch", 8)
        assert [message.args for message in queued()] == [(8,)]

    def test_outside_of_a_transaction_a_task_is_enqueued_at_once(self):
        after_commit.enqueue("jobs.launch", 7)
        assert [message.args for message in queued()] == [(7,)]

    def test_a_delayed_task_is_not_run_before_its_time(self):
        after_commit.enqueue("jobs.launch", 7, delay_ms=60_000)
        assert queued() == []
        (message,) = queued("default.DQ")
        assert message.options["eta"] > message.message_timestamp + 59_000


class TestEnqueueOnce:
    def test_one_message_waits_whoever_asks(self):
        for _ in range(3):
            after_commit.enqueue_once("jobs.admit")
        assert [message.actor_name for message in queued()] == ["jobs.admit"]

    def test_what_is_asked_after_it_was_taken_is_another_message(self):
        after_commit.enqueue_once("jobs.admit")
        after_commit.taken("jobs.admit")
        after_commit.enqueue_once("jobs.admit")
        assert len(queued()) == 2

    def test_a_message_that_could_not_be_sent_is_in_the_way_of_none(self, monkeypatch, caplog):
        def away(*_args, **_options):
            raise ConnectionError("nobody there")

        with monkeypatch.context() as patched:
            patched.setattr(broker(), "enqueue", away)
            after_commit.enqueue_once("jobs.admit")
        assert "nobody there" in caplog.text
        after_commit.enqueue_once("jobs.admit")
        assert len(queued()) == 1

    def test_a_message_that_was_lost_is_in_the_way_for_half_a_minute(self):
        after_commit.enqueue_once("jobs.admit")
        (mark,) = broker().client.keys("mlp:waits:*")
        assert 0 < broker().client.ttl(mark) <= 30


def test_an_action_runs_at_the_commit_and_never_after_a_rollback():
    ran = []
    with transaction.atomic():
        after_commit.run("note", lambda: ran.append("undone"))
        transaction.set_rollback(True)
    with transaction.atomic():
        after_commit.run("note", lambda: ran.append("done"))
        assert ran == []
    assert ran == ["done"]


@pytest.mark.parametrize("name", GROUPS)
def test_open_pages_are_notified_at_the_commit_and_not_before(name):
    promise, group, event = GROUPS[name]
    received = listen(group)
    with transaction.atomic():
        promise()
        transaction.set_rollback(True)
    with transaction.atomic():
        promise()
        assert received() == []
    assert received() == [event]


STIRRED = {"type": "changed", "owner": "alice", "kind": "job", "name": "fit", "moving": True, "progress": None}


@pytest.mark.parametrize(
    ("group", "event"),
    [
        ("job.7", {"type": "wake", "kind": "job"}),
        (after_commit.pages_of("alice"), STIRRED),
        (after_commit.OPERATORS_PAGES, STIRRED),
    ],
)
def test_what_changes_often_is_notified_at_once(group, event):
    received = listen(group)
    with transaction.atomic():
        after_commit.stir("job", 7, "alice", "fit")
        assert received() == [event]


def test_a_notification_that_fails_is_logged(monkeypatch, caplog):
    def away(*_):
        raise ConnectionError("nobody there")

    monkeypatch.setattr("kernel.after_commit.get_channel_layer", away)
    after_commit.stir("job", 7, "alice", "fit")
    assert "nobody there" in caplog.text


@pytest.mark.parametrize(
    "promise",
    [lambda: after_commit.enqueue("jobs.launch", 7), *(promise for promise, _, _ in GROUPS.values())],
    ids=["enqueue", *GROUPS],
)
def test_a_failed_enqueue_affects_neither_the_commit_nor_later_actions(promise, monkeypatch, caplog, alice):
    def away(*_):
        raise ConnectionError("nobody there")

    kept = []
    monkeypatch.setattr("kernel.after_commit.broker", away)
    monkeypatch.setattr("kernel.after_commit.get_channel_layer", away)
    with caplog.at_level(logging.ERROR), transaction.atomic():
        alice.password = "changed"
        alice.save(update_fields=["password"])
        promise()
        transaction.on_commit(lambda: kept.append(True))
    alice.refresh_from_db()
    assert (alice.password, kept) == ("changed", [True])
    assert "nobody there" in caplog.text
