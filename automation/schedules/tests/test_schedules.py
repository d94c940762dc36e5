"""Schedules: times, events, overlaps, missed times; each acted on once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.models import Notice
from aiops.models import Alert, AlertRule
from automation import reconcile
from automation.models import Firing, PipelineRun, Schedule, Sweep
from automation.schedules import events, firing, lifecycle, times
from automation.sweeps.tests.conftest import begin, body, finish
from datasets.models import Dataset
from jobs import lifecycle as jobs
from jobs.models import Job, Snapshot
from mlp.operators.tests.admin_world import put
from mlp.tests.tiers import few, later
from models_app.models import ModelVersion, RegisteredModel

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks", "home")]

JOB = {"entry": "train.py", "cpu": 0.1, "ram": 100}
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def make(as_alice):
    def create(**fields) -> Schedule:
        usual = {"name": "nightly", "job": JOB, "cron": "0 * * * *"}
        given = {name: value for name, value in {**usual, **fields}.items() if value is not None}
        response = as_alice.call("post", "users/alice/schedules", given)
        assert response.status_code == 201, response.content
        return Schedule.objects.get(name=response.json()["name"])

    return create


def states(schedule: Schedule) -> list[str]:
    return list(Firing.objects.filter(schedule=schedule).order_by("pk").values_list("state", flat=True))


class TestTimes:
    def test_a_job_is_submitted_at_its_time_and_once(self, make, as_alice):
        schedule = make()
        due = schedule.next_at
        firing.run(due - MINUTE)
        assert not Job.objects.exists()
        for _ in range(3):
            firing.run(due + timedelta(seconds=5))
        job = Job.objects.get()
        assert (job.name, job.group) == ("nightlyaaa", "nightly")
        schedule.refresh_from_db()
        assert schedule.next_at == due + HOUR
        (row,) = as_alice.call("get", "users/alice/schedules/nightly/firings").json()
        assert (row["state"], row["made"]) == ("submitted", "nightlyaaa")

    def test_what_was_submitted_before_a_kill_is_not_submitted_again(self, make):
        schedule = make()
        due = schedule.next_at
        firing.run(due)
        Schedule.objects.update(next_at=due)  # as if the process had died before it moved on
        firing.run(due + timedelta(seconds=1))
        assert Job.objects.count() == 1

    def test_the_round_of_reconcile_fires(self, make):
        schedule = make()
        Schedule.objects.update(next_at=timezone.now() - timedelta(seconds=2))
        reconcile.run()
        assert states(schedule) == ["submitted"]

    def test_a_kill_amid_the_submission_leaves_nothing_behind(self, make, monkeypatch):
        schedule = make()
        with monkeypatch.context() as patched:
            patched.setattr(lifecycle.after_commit, "changed", killed)
            firing.run(schedule.next_at)
        assert not Job.objects.exists()
        assert not Firing.objects.exists()
        firing.run(schedule.next_at)
        assert (Job.objects.count(), states(schedule)) == (1, ["submitted"])

    @pytest.mark.long
    def test_many_that_are_due_in_the_same_second(self, as_alice, make, alice):
        schedule = make()
        rows = [Schedule(**fields_of(schedule, name=f"many{'x' * number}")) for number in range(1, 8)]
        Schedule.objects.bulk_create(rows)
        Schedule.objects.filter(name="manyx").update(spec={"entry": "gone.py"})
        firing.run(schedule.next_at)
        assert Job.objects.count() == 7
        failed = Firing.objects.get(state="failed")
        assert (failed.schedule.name, failed.reason[:6]) == ("manyx", "entry:")

    @pytest.mark.parametrize(
        ("cron", "zone", "day", "expected"),
        [
            ("30 2 * * *", "Europe/Berlin", datetime(2026, 3, 28, 12, tzinfo=UTC), ["29T01:00", "30T00:30"]),
            ("30 2 * * *", "Europe/Berlin", datetime(2026, 10, 24, 12, tzinfo=UTC), ["25T00:30", "26T01:30"]),
            ("0 9 * * 1-5", "America/New_York", datetime(2026, 3, 6, 20, tzinfo=UTC), ["09T13:00", "10T13:00"]),
            ("*/30 * * * *", "Europe/Berlin", datetime(2026, 10, 25, 0, tzinfo=UTC), ["25T00:30", "25T01:00"]),
            ("@daily", "Asia/Shanghai", datetime(2026, 1, 1, 0, tzinfo=UTC), ["01T16:00", "02T16:00"]),
        ],
    )
    def test_the_users_clock_counts_also_where_it_changes(self, cron, zone, day, expected):
        assert [f"{moment:%dT%H:%M}" for moment in times.next_times(cron, zone, day, 2)] == expected

    def test_the_next_five_times_are_shown_before_it_is_made(self, as_alice):
        given = {"cron": "0 0 * * *", "time_zone": "Asia/Tokyo"}
        shown = as_alice.call("post", "users/alice/schedules:preview", given).json()["times"]
        assert len(shown) == 5
        assert all(moment.endswith("T15:00:00Z") for moment in shown)


def killed(*_what):
    raise RuntimeError("killed")


def fields_of(schedule: Schedule, **others) -> dict:
    names = ("user", "kind", "spec", "cron", "next_at", "since", "event")
    return {**{name: getattr(schedule, name) for name in names}, **others}


class TestMissed:
    @pytest.mark.parametrize(("policy", "submitted", "missed"), [("none", 0, 1), later("latest", 1, 1), ("all", 3, 0)])
    def test_times_while_the_platform_was_off_are_told_and_made_up_for(self, make, policy, submitted, missed):
        schedule = make(catch_up=policy, overlap="allow")
        firing.run(schedule.next_at + 2 * HOUR + 10 * MINUTE)
        assert states(schedule).count("submitted") == submitted == Job.objects.count()
        assert states(schedule).count("missed") == missed == Notice.objects.filter(kind="schedule").count()
        schedule.refresh_from_db()
        assert schedule.next_at > timezone.now() + 2 * HOUR

    @pytest.mark.long
    def test_a_long_time_off_is_no_flood(self, make):
        schedule = make(cron="* * * * *", catch_up="all", overlap="allow", job={**JOB, "cpu": 0.1})
        firing.run(schedule.next_at + timedelta(days=30))
        assert Job.objects.count() <= firing.MAX_MADE_UP + 1
        assert states(schedule).count("missed") == 1


class TestOverlap:
    def test_skip_says_so(self, make):
        schedule = make()
        firing.run(schedule.next_at)
        firing.run(schedule.next_at + HOUR)
        assert states(schedule) == ["submitted", "skipped"]
        assert Firing.objects.get(state="skipped").reason == "nightlyaaa was still running"

    def test_queue_waits_for_the_end(self, make):
        schedule = make(overlap="queue")
        for hours in range(3):
            firing.run(schedule.next_at + hours * HOUR)
        assert states(schedule) == ["submitted", "waiting", "skipped"]
        job = Job.objects.get()
        begin(job)
        finish(job)
        firing.run(schedule.next_at + 3 * HOUR - MINUTE)
        assert states(schedule) == ["submitted", "submitted", "skipped"]
        assert Job.objects.count() == 2

    def test_cancel_ends_the_earlier_one(self, make):
        schedule = make(overlap="cancel")
        firing.run(schedule.next_at)
        firing.run(schedule.next_at + HOUR)
        assert states(schedule) == ["submitted", "submitted"]
        assert Job.objects.get(name="nightlyaaa").shown_state == "cancelled"

    def test_allow_runs_both(self, make):
        schedule = make(overlap="allow")
        firing.run(schedule.next_at)
        firing.run(schedule.next_at + HOUR)
        assert set(Job.objects.values_list("state", flat=True)) <= {"creating", "running"}
        assert Job.objects.count() == 2


class TestEvents:
    def submitted(self) -> int:
        firing.run()
        firing.run()
        return Firing.objects.filter(state="submitted").count()

    def test_a_dataset_became_ready(self, make, alice):
        put_dataset(alice, "earlier")
        make(cron=None, event={"on": "dataset_ready", "name": "digits"}, overlap="allow")
        put_dataset(alice, "other")
        assert self.submitted() == 0
        put_dataset(alice, "digits")
        assert self.submitted() == 1

    def test_a_model_version_was_registered(self, make, alice):
        make(cron=None, event={"on": "model_registered"})
        registered = RegisteredModel.objects.create(user=alice, name="churn", last=1)
        ModelVersion.objects.create(registered=registered, number=1, source="models/net")
        assert self.submitted() == 1

    def test_an_alert_fired(self, make, alice):
        make(cron=None, event={"on": "alert_fired"})
        now = timezone.now()
        rule = AlertRule.objects.create(name="rate", kind="rate", owner=alice, created=now, checked=now)
        Alert.objects.create(rule=rule, at=now, words="many", workload="web", count=12)
        assert self.submitted() == 1

    def test_a_job_finished(self, make, alice):
        make(cron=None, event={"on": "job_finished", "name": "first"})
        job = jobs.create_job(user=alice, name="first", by="test", **JOB)
        begin(job)
        finish(job)
        assert self.submitted() == 1

    def test_a_row_that_is_committed_late_counts(self, make, alice):
        schedule = make(cron=None, event={"on": "dataset_ready"}, overlap="allow")
        put_dataset(alice, "one")
        assert self.submitted() == 1
        Schedule.objects.filter(pk=schedule.pk).update(seen=events.newest("dataset_ready") + 100)
        put_dataset(alice, "two")
        assert self.submitted() == 2

    def test_a_long_look_back_counts_nothing_twice(self, make, alice, monkeypatch):
        monkeypatch.setattr(lifecycle, "KEPT", 2)
        schedule = make(cron=None, event={"on": "dataset_ready"}, overlap="allow")
        for number in range(1, 5):
            put_dataset(alice, "x" * number)
        mark = events.newest("dataset_ready")
        assert self.submitted() == 4
        assert self.submitted() == 4
        schedule.refresh_from_db()
        assert schedule.seen == mark

    def test_more_at_once_than_one_look_reads(self, make, alice, monkeypatch):
        monkeypatch.setattr(events, "AT_ONCE", 2)
        make(cron=None, event={"on": "dataset_ready"}, overlap="allow")
        for number in range(1, 6):
            put_dataset(alice, "x" * number)
        firing.run()
        assert Job.objects.count() == 2
        assert self.submitted() == 5

    def test_what_is_none_of_its_own_is_not_read_again(self, make, bob, monkeypatch):
        monkeypatch.setattr(firing, "STRIDE", 1)
        schedule = make(cron=None, event={"on": "dataset_ready"})
        put_dataset(bob, "digits")
        assert self.submitted() == 0
        schedule.refresh_from_db()
        assert schedule.seen == events.newest("dataset_ready")

    def test_those_of_others_do_not(self, make, bob):
        make(cron=None, event={"on": "dataset_ready"})
        put_dataset(bob, "digits")
        assert self.submitted() == 0


def put_dataset(user, name: str) -> None:
    put(Dataset, user, name, "ready")


class TestWhatIsSubmitted:
    def test_a_sweep(self, make):
        sweep = {name: value for name, value in body().items() if name != "name"}
        schedule = make(job=None, sweep=sweep)
        firing.run(schedule.next_at)
        submitted = Sweep.objects.get()
        assert (submitted.name, list(submitted.space)) == ("nightlyaaa", ["lr", "depth"])
        firing.run(schedule.next_at + HOUR)
        assert states(schedule) == ["submitted", "skipped"]

    def test_a_run_of_a_pipeline(self, make, as_alice):
        steps = {"name": "flow", "params": {"x": 1}, "steps": {"a": JOB}}
        assert as_alice.call("post", "users/alice/pipelines", steps).status_code == 201
        schedule = make(job=None, pipeline={"name": "flow", "params": {"x": 2}}, overlap="cancel")
        for hours in range(2):
            firing.run(schedule.next_at + hours * HOUR)
        assert list(PipelineRun.objects.values_list("state", "params__x")) == [("error", 2), ("running", 2)]
        assert states(schedule) == ["submitted", "submitted"]
        assert Firing.objects.last().made in ("flow/1", "flow/2")

    def test_a_pipeline_that_is_not_there_is_refused(self, as_alice):
        body = {"name": "nightly", "cron": "@daily", "pipeline": {"name": "flow"}}
        assert as_alice.refused("post", "users/alice/schedules", body).startswith("pipeline.name: no such pipeline")

    @pytest.mark.parametrize(("code", "kept"), [("kept", True), ("latest", False)])
    def test_the_code_of_then_or_of_now(self, make, home, code, kept):
        schedule = make(code=code)
        (home / "train.py").write_text("print('changed since')")
        firing.run(schedule.next_at)
        assert (Job.objects.get().snapshot == schedule.snapshot) == kept
        assert Snapshot.objects.count() == 1

    def test_by_hand(self, make, as_alice):
        make()
        for name in ("nightlyaaa", "nightlyaab"):
            response = as_alice.call("put", "users/alice/schedules/nightly:run")
            assert (response.status_code, response.json().get("made")) == (200, name), response.content


class TestByHand:
    def test_a_pause_misses_without_a_word(self, make, as_alice):
        schedule = make()
        assert as_alice.call("put", "users/alice/schedules/nightly:pause").json()["next_times"] == []
        firing.run(schedule.next_at)
        resumed = as_alice.call("put", "users/alice/schedules/nightly:resume").json()
        assert (resumed["state"], len(resumed["next_times"])) == ("active", 5)
        assert not Firing.objects.exists()

    def test_its_times_are_changed(self, make, as_alice):
        make()
        address = "users/alice/schedules/nightly"
        changed = as_alice.call("put", address, {"cron": "15 3 * * *", "overlap": "allow"}).json()
        assert (changed["cron"], changed["overlap"]) == ("15 3 * * *", "allow")
        assert changed["next_times"][0].endswith("T03:15:00Z")
        changed = as_alice.call("put", address, {"event": {"on": "dataset_ready"}}).json()
        assert (changed["cron"], changed["event"]) == ("", {"on": "dataset_ready"})

    def test_it_is_deleted_and_its_jobs_go_on(self, make, as_alice):
        schedule = make(code="kept")
        firing.run(schedule.next_at)
        assert as_alice.call("delete", "users/alice/schedules/nightly").json()["state"] == "deleting"
        assert not Schedule.objects.exists()
        assert Job.objects.get().state in ("creating", "running")
        as_alice.refused("get", "users/alice/schedules/nightly")

    def test_after_failures_it_pauses_itself_and_says_so(self, make, home):
        schedule = make()
        (home / "train.py").unlink()
        for hours in range(6):
            firing.run(schedule.next_at + hours * HOUR)
        schedule.refresh_from_db()
        assert (schedule.state, states(schedule)) == ("paused", ["failed"] * 5)
        assert schedule.reason.startswith("paused after 5 failures, the last of them: entry:")
        assert Notice.objects.filter(kind="schedule", event="error").count() == 2

    def test_those_of_a_deregistered_user_pause(self, make):
        schedule = make()
        accounts.deregister(username="alice", by="test")
        firing.run(schedule.next_at)
        schedule.refresh_from_db()
        assert (schedule.state, Job.objects.count()) == ("paused", 0)


@pytest.mark.parametrize(
    ("fields", "problem"),
    few(
        [
            ({"cron": "61 * * * *"}, "cron: 61 is not valid for the minute: write *, a number from 0 to 59"),
            ({"cron": "0 22-6 * * *"}, "cron: 22-6 is not valid for the hour"),
            ({"cron": "0 0 ? * MON"}, "cron: ? is not valid for the day of the month"),
            ({"cron": "0 0 * * MON#2/2"}, "cron: MON#2/2 is not valid for the weekday"),
            ({"cron": "*/90 * * * *"}, "cron: the step of the minute must be 1 to 59"),
            ({"cron": "0 */25 * * *"}, "cron: the step of the hour must be 1 to 23"),
            ({"cron": "@every 5m"}, "cron: there is no @every 5m: write five fields, or one of @hourly, @daily"),
            ({"cron": "* * * *"}, "cron: must be five fields"),
            ({"cron": "0 0 31 2 *"}, "cron: never matches a date"),
            ({"time_zone": "Mars/Base"}, "time_zone: Mars/Base is not a time zone"),
            ({"cron": None}, "cron: give either cron or event"),
            ({"event": {"on": "dataset_ready"}}, "cron: give either cron or event"),
            ({"cron": None, "event": {"on": "rain"}}, "event: on:"),
            ({"cron": None, "event": {"on": "job_finished"}}, "event.name: requires the name of a job"),
            ({"job": None}, "job: give either job, sweep or pipeline"),
            ({"job": {"entry": "none.py"}}, "job.entry:"),
            ({"job": {**JOB, "cpu": 10}}, "job.cpu:"),
            ({"overlap": "maybe"}, "overlap:"),
            ({"sweep": {"job": JOB}, "job": None}, "sweep:"),
        ],
        7,
    ),
)
def test_what_is_wrong_is_named(as_alice, fields, problem):
    usual = {"name": "nightly", "job": JOB, "cron": "0 * * * *"}
    given = {name: value for name, value in {**usual, **fields}.items() if value is not None}
    refusal = as_alice.refused("post", "users/alice/schedules", given)
    assert refusal.startswith(problem), refusal
    assert not Schedule.objects.exists()


def test_names_are_unique_and_others_see_nothing(make, as_alice, as_bob):
    make()
    given = {"name": "nightly", "job": JOB, "cron": "@daily"}
    assert as_alice.refused("post", "users/alice/schedules", given).startswith("name: you already have a schedule")
    for path in ("schedules", "schedules/nightly", "schedules/nightly/firings"):
        as_bob.refused("get", f"users/alice/{path}")
    as_bob.refused("put", "users/alice/schedules/nightly:run")
