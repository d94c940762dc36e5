"""Which rounds of `manage.py reconcile` are whole: while nothing is under way, one in a minute. What is due at a time
is found in each.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from django.utils import timezone

import runners
from accounts.models import Delivery, Notice
from aiops.models import Feedback, TrainingRun
from apps.models import Application
from automation.models import Schedule
from datasets.models import Dataset
from jobs.models import Job
from kernel.singleton import Held, only_one
from mlp.management.commands.reconcile import QUIET_ROUNDS, Look, Rounds
from mlp.operators.tests.admin_world import put, put_schedule
from models_app.models import Model
from resources import tcc
from resources.models import ResourceRequest
from workspaces.models import Workspace

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("default_tenant")]


@pytest.fixture
def lock() -> Iterator[Held]:
    with only_one("reconcile-rounds") as held:
        yield held


@pytest.fixture
def played(lock):
    look = Look(lock)

    def play(rounds: Rounds, count: int, changed: bool = False) -> list[bool]:
        whole = []
        for _ in range(count):
            under_way, _due = look()
            whole.append(rounds.is_whole(changed, under_way))
        return whole

    return play


QUIET = [False] * (QUIET_ROUNDS - 1)


def test_an_idle_platform_has_few_whole_rounds(played):
    assert played(Rounds(), 1 + 2 * QUIET_ROUNDS) == [True, *QUIET, True, *QUIET, True]


def test_every_round_is_whole_while_a_job_is_under_way(played, alice):
    job = put(Job, alice, "fit", "creating")
    rounds = Rounds()
    assert played(rounds, 5) == [True] * 5
    Job.objects.filter(pk=job.pk).update(state="finished")
    assert played(rounds, QUIET_ROUNDS) == [*QUIET, True]


@pytest.mark.parametrize("state", ["creating", "deleting"])
def test_what_begins_ends_the_quiet(played, alice, state):
    rounds = Rounds()
    assert played(rounds, 2) == [True, False]
    job = put(Job, alice, "fit", state)
    assert played(rounds, 2) == [True, True]
    Job.objects.filter(pk=job.pk).update(state="finished")
    assert played(rounds, 2) == [False, False]


@pytest.mark.parametrize(
    ("model", "states"),
    [
        (Dataset, ["creating", "deleting"]),
        (Model, ["creating", "deleting"]),
        (Application, ["creating", "ready", "deleting"]),
        (Workspace, ["creating", "ready", "stopping", "deleting"]),
        (TrainingRun, ["training"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_objects_that_have_not_settled_are_under_way(lock, alice, model, states):
    TrainingRun.objects.create() if model is TrainingRun else put(model, alice, "one", "ready")
    look, rows = Look(lock), model.objects.all()
    rows.update(run_name="") if hasattr(model, "run_name") else None
    for state in states:
        rows.update(state=state)
        assert look() == (True, False), state
    TrainingRun.objects.update(announced=True, job_end_sent=True)
    rows.update(state="completed" if model is TrainingRun else "error")
    assert look() == (False, False)


def test_a_change_of_a_run_makes_the_next_round_whole(played):
    rounds = Rounds()
    assert played(rounds, 2) == [True, False]
    assert played(rounds, 1, changed=True) == [True]


def test_a_run_that_starts_ends_the_quiet(played, monkeypatch):
    rounds = Rounds()
    assert played(rounds, 2) == [True, False]
    monkeypatch.setattr(runners.get(), "names", lambda: ["job-1-1"])
    assert played(rounds, 2) == [True, True]


@pytest.mark.parametrize("left", [{"run_name": "job-1-1"}, {"reserved": True}])
def test_what_an_ended_job_still_holds_is_under_way(lock, alice, left):
    look, job = Look(lock), put(Job, alice, "fit", "finished")
    rows = Job.objects.filter(pk=job.pk)
    rows.update(run_name="", reserved=False)
    assert look() == (False, False)
    rows.update(**left)
    assert look() == (True, False)


def test_feedback_that_is_not_applied_yet_is_under_way(lock, alice):
    look = Look(lock)
    row = Feedback.objects.create(masked="disk <*> is full", level="Normal", sample="disk 1 is full", by=alice)
    assert look() == (True, False)
    Feedback.objects.filter(pk=row.pk).update(settled=True)
    assert look() == (False, False)


# --- what is due ------------------------------------------------------------------------------------------------------
def test_a_schedule_is_due_at_its_time_and_while_it_waits_for_an_event(lock, alice):
    look = Look(lock)
    schedule = put_schedule(alice)  # its time is now
    assert look() == (False, True)
    rows = Schedule.objects.filter(pk=schedule.pk)
    rows.update(next_at=timezone.now() + timedelta(hours=1))
    assert look() == (False, False)
    rows.update(event={"on": "dataset_ready"})
    assert look() == (False, True)
    rows.update(state="paused")
    assert look() == (False, False)


def test_a_firing_that_waits_is_due(lock, alice):
    schedule = put_schedule(alice)
    Schedule.objects.filter(pk=schedule.pk).update(next_at=None)
    look = Look(lock)
    assert look() == (False, False)
    schedule.firings.filter(key="two").update(state="waiting")
    assert look() == (False, True)


def test_a_delivery_is_due_when_its_message_may_be_lost(lock, alice):
    look, now = Look(lock), timezone.now()
    notice = Notice.objects.create(user=alice, kind="job", name="train", event="error", reason="exit code 1")
    row = Delivery.objects.create(notice=notice, channel="mail", not_before=now + timedelta(minutes=1))
    assert look() == (False, False)
    Delivery.objects.filter(pk=row.pk).update(not_before=now - timedelta(minutes=1))
    assert look() == (False, True)
    Delivery.objects.filter(pk=row.pk).update(open=False)
    assert look() == (False, False)


def test_a_try_over_rest_is_due_when_its_time_is_over(lock, settings):
    look = Look(lock)
    tcc.try_(id="ext-1", applier="mm", request_type="request", cpu=1)
    assert look() == (False, False)
    late = timezone.now() - timedelta(seconds=settings.TRY_TIMEOUT_S + 60)
    ResourceRequest.objects.filter(id="ext-1").update(created=late)
    assert look() == (False, True)


def test_a_lost_connection_is_a_lost_lock(lock):
    look = Look(lock)
    lock.link.close()
    with pytest.raises(psycopg.Error):
        look()
