"""What a submission stores beside its resources, what belongs to it in one transaction, and what a report changes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import User
from jobs import lifecycle, trash
from jobs.models import COLOURS, Job, Project
from kernel import disk, storage
from kernel.errors import Refused
from kernel.locking import WrongState
from kernel.tests.pages import Recorder
from models_app.models import RegisteredModel

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks", "home")]

TEN_YEARS = timedelta(days=3650)


def create(user: User, name: str = "fit", **fields) -> Job:
    (storage.home_dir(user.username) / "train.py").write_text("pass")
    return lifecycle.create_job(user=user, name=name, entry="train.py", by="test", **fields)


def fresh(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def change(job: Job, **fields) -> Job:
    Job.objects.filter(pk=job.pk).update(**fields)
    return fresh(job)


def report(job: Job, progress: int, **fields) -> Job:
    lifecycle.heartbeat(user=job.user, name=job.name, state="running", progress=progress, by="test", **fields)
    return fresh(job)


def seconds_to(moment) -> float:
    return (moment - timezone.now()).total_seconds()


class TestCreate:
    def test_what_describes_a_run_is_stored(self, alice):
        before = fresh(create(alice))
        RegisteredModel.objects.create(user=alice, name="churn")
        fields = {
            "title": "First try", "timeout": 60, "priority": 7, "network": "none", "tags": {"team": "red"},
            "notes": "why", "group": "night", "registry": "versions", "registry_models": ["churn"],
        }  # fmt: skip
        job = fresh(create(alice, "second", project="churn", **fields))
        assert {name: getattr(job, name) for name in fields} == fields
        assert (job.project.name, job.project.user) == ("churn", alice)
        assert fresh(create(alice, "third", registry="none")).registry == "none"
        assert job.colour == (before.shown_colour + 1) % COLOURS
        assert before.project == Project.objects.default_of(alice)

    def test_the_output_of_another_job_is_an_input_by_its_name(self, alice):
        folder = storage.job_dir("alice", "prepare")
        folder.mkdir(parents=True)
        (folder / "a.csv").write_text("1")
        Job.objects.create(user=alice, tenant=alice.tenant, name="prepare", entry="p.py", state="finished")
        assert fresh(create(alice, inputs={"DATA": "prepare"})).job_inputs == {"DATA": "prepare"}

    def test_an_input_that_is_not_there_and_a_dataset_that_is_not_there_are_refused_by_name(self, alice):
        with pytest.raises(Refused, match=r"^inputs.DATA: you have no finished job named nothing$"):
            create(alice, inputs={"DATA": "nothing"})
        with pytest.raises(Refused, match=r"^datasets: .*none"):
            create(alice, datasets=["none"])
        assert not Job.objects.exists()

    def test_on_a_full_disk_nothing_is_stored(self, alice, monkeypatch):
        monkeypatch.setattr(disk, "room", lambda *_: -1)
        with pytest.raises(disk.DiskFull):
            create(alice)
        assert not Job.objects.exists()

    def test_a_rerun_has_the_code_of_its_snapshot_whatever_the_folder_has_now(self, alice):
        first = fresh(create(alice))
        assert first.snapshot is not None
        (storage.home_dir("alice") / "train.py").unlink()
        again = lifecycle.create_job(user=alice, name="again", entry="train.py", snapshot=first.snapshot, by="test")
        assert fresh(again).snapshot == first.snapshot

    def test_what_is_to_be_stored_with_it_is_stored_in_its_transaction(self, alice):
        seen = []
        job = create(alice, within=seen.append)
        assert seen == [job]

        def refuse(_job):
            raise Refused("not today")

        with pytest.raises(Refused, match="not today"):
            create(alice, "second", within=refuse)
        assert not Job.objects.filter(name="second").exists()

    def test_a_name_in_the_trash_is_told_from_one_in_use(self, alice):
        trash.trash_one(change(create(alice), state="finished"), by="test")
        with pytest.raises(Refused, match=r"fit; it is in the trash$"):
            create(alice)
        with pytest.raises(WrongState, match="is not in the trash"):
            lifecycle.delete_job(user=alice, name="fit", by="test", trashed=timezone.now())


class TestReports:
    @pytest.fixture
    def running(self, alice):
        job = create(alice)
        lifecycle.order_run(job.pk)
        lifecycle.note_start(job.pk, f"job-{job.pk}-1")
        return fresh(job)

    def test_the_expected_end_is_ten_years_away_at_most(self, running):
        job = report(running, 1, remaining=90)
        assert 60 < seconds_to(job.expected_end) <= 90
        job = report(running, 1, remaining=1e12)
        assert abs(seconds_to(job.expected_end) - TEN_YEARS.total_seconds()) < 600

    def test_progress_without_an_estimate_ends_the_one_before(self, running):
        report(running, 10, remaining=90)
        assert report(running, 10).expected_end is not None, "nothing has changed"
        job = report(running, 11)
        assert (job.expected_end, job.progress, job.progress_source) == (None, 11, "script")
        assert report(running, 5).progress == 11

    def test_a_sign_of_life_without_progress_says_nothing_of_where_progress_comes_from(self, running):
        assert report(change(running, progress_source=""), 0).progress_source == ""

    def test_a_bar_in_the_log_is_shown_on_open_pages_until_the_script_reports_itself(self, running, monkeypatch):
        pages = Recorder(monkeypatch)
        running = change(running, progress_source="")
        lifecycle.note_bar(running.pk, running.run_name, 30, 60.0)
        job = fresh(running)
        assert (job.progress, job.progress_source) == (30, "log")
        assert pages.sent
        lifecycle.note_bar(running.pk, "another", 40, None)
        report(running, 35)
        lifecycle.note_bar(running.pk, running.run_name, 90, None)
        assert fresh(running).progress == 35

    def test_what_a_trainer_has_said_counts_more(self, running):
        job = report(running, 10, remaining=90, source="trainer")
        assert job.progress_source == "trainer"
        job = report(running, 20)
        assert (job.progress, job.progress_source) == (20, "trainer")
        assert job.expected_end is not None


def test_what_a_start_waits_for_is_the_reason_until_it_has_started(alice):
    job = create(alice)
    lifecycle.order_run(job.pk)
    run_name = fresh(job).run_name
    for waits_for, reason in [
        ("an image", "waiting to start: an image"),
        ("", ""),
        ("a node", "waiting to start: a node"),
    ]:
        lifecycle.note_run(job.pk, run_name, waits_for)
        assert (fresh(job).state, fresh(job).reason) == ("creating", reason)
    lifecycle.note_run(job.pk, "another", None)
    assert fresh(job).state == "creating"
    lifecycle.note_run(job.pk, run_name, None)
    assert (fresh(job).state, fresh(job).reason) == ("running", "")


def test_a_job_of_an_older_platform_gets_its_owners_default_project(alice, bob):
    jobs = [create(alice), create(bob)]
    Job.objects.update(project=None)
    lifecycle.adopt()
    assert [fresh(job).project for job in jobs] == [Project.objects.default_of(user) for user in (alice, bob)]
