"""At most one message for each training is in the task queue, however many reconcile rounds pass."""

from __future__ import annotations

import os
import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

import runners
from aiops import lifecycle, reconcile
from aiops.models import TrainingRun
from aiops.training import launching
from aiops.wire import folders
from kernel.tests.nats_tools import until
from runners import RunSpec

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_run_left")]

ROUNDS = 5


@pytest.fixture
def run(tasks) -> TrainingRun:
    order = {"source": "drain", "model": "nulog-train", "payload": {"parameters": {"uuid": str(uuid.uuid4())}}}
    row, _ = lifecycle.create_run(order=order, by="test")
    return row


def started(run: TrainingRun) -> None:
    """Start a real run that does not end when it is asked to."""
    lifecycle.order_run(run.pk, 1)
    name = f"aiops-{run.pk}-1"
    folder = folders.training(run.uuid)
    folder.mkdir(parents=True, exist_ok=True)
    command = ["/bin/sh", "-c", "trap '' TERM; echo ready > ready; while :; do sleep 1; done"]
    runners.get().start(
        RunSpec(
            name=name, command=command, cwd=folder, log=folder / "train.log", environment={"PATH": os.environ["PATH"]}
        )
    )
    lifecycle.note_start(run.pk, name, 1)
    until(lambda: (folder / "ready").exists())


def test_a_run_that_ends_slowly_has_one_message_in_the_queue(run, tasks, settings):
    settings.JOB_CANCEL_GRACE_S = 600
    started(run)
    tasks.queue.clear()
    lifecycle.fail(run.pk, "for a test", by="test")
    for _ in range(ROUNDS):
        tasks.run_once()
        reconcile.run()
        assert [message.actor_name for message in tasks.queue] == ["aiops.settle"]
    runners.get().stop_all(grace=0)
    tasks.run()
    run.refresh_from_db()
    assert run.run_name == ""
    assert run.announced


def test_reconcile_alone_completes_a_training(run, tasks, settings):
    settings.JOB_CANCEL_GRACE_S = 0
    started(run)
    lifecycle.fail(run.pk, "for a test", by="test")
    tasks.queue.clear()  # every message was lost

    def gone() -> bool:
        reconcile.run()
        return TrainingRun.objects.get(pk=run.pk).run_name == ""

    until(gone)
    assert tasks.queue == []


def test_a_training_that_no_worker_starts_is_enqueued_again_at_intervals(run, tasks):
    tasks.queue.clear()
    for turn in (1, 2):
        late = timezone.now() - timedelta(seconds=launching.AGAIN_AFTER_S + 1)
        TrainingRun.objects.filter(pk=run.pk).update(heartbeat=late)
        for _ in range(ROUNDS):
            reconcile.run()
        assert [message.actor_name for message in tasks.queue] == ["aiops.train"] * turn


def test_a_training_that_an_orderly_end_of_the_platform_has_stopped_begins_again(run, tasks):
    """However long the platform was down, and however often it is started again."""
    started(run)
    TrainingRun.objects.filter(pk=run.pk).update(attempt=launching.ATTEMPTS)
    tasks.queue.clear()
    runners.get().stop_all(grace=0)
    TrainingRun.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(hours=1))
    reconcile.run()
    run.refresh_from_db()
    assert (run.state, run.attempt, run.run_started) == ("training", launching.ATTEMPTS + 1, False)
    assert run.lease_until > timezone.now()
    assert [message.actor_name for message in tasks.queue] == ["aiops.train"]
