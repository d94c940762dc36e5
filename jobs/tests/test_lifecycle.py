"""What the verbs of jobs record and refuse, without runs, beyond the table of mlp/tests/verb_effects.py."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import IntegrityError
from django.utils import timezone

import runners
from accounts.models import User
from conftest import move
from datasets.models import Dataset
from jobs import lifecycle
from jobs.models import Job
from kernel import storage
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, locked
from kernel.models import history_of
from resources import limits
from resources.models import ResourceRequest, Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]

BACKOFF_S = [2, 10, 30, 60, 120, 300, 300]  # seconds


@pytest.fixture
def create(home):
    """`create(user, name)` submits a job that asks for one CPU."""

    def submit(user: User, name: str = "fit", **fields) -> Job:
        (storage.home_dir(user.username) / "train.py").write_text("pass")
        return lifecycle.create_job(user=user, name=name, entry="train.py", by="test", **fields)

    return submit


def fresh(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


def change(job: Job, **fields) -> Job:
    Job.objects.filter(pk=job.pk).update(**fields)
    return fresh(job)


def started(job: Job) -> Job:
    lifecycle.order_run(job.pk)
    lifecycle.note_start(job.pk, f"job-{job.pk}-1")
    return fresh(job)


class TestCreate:
    def test_all_fields_are_stored(self, create, alice):
        Dataset.objects.create(user=alice, tenant=alice.tenant, name="digits", size=0, state="ready")
        fields = {"runtime": "torch", "gpu": 1, "cpu": 2.5, "ram": 300, "retries": 3, "workers": 2}
        lists = {"datasets": ["digits"], "args": ["-x"], "env": {"A": "b"}}
        job = fresh(create(alice, **fields, **lists))
        assert {name: getattr(job, name) for name in fields | lists} == fields | lists
        assert (job.user, job.tenant, job.name, job.entry) == (alice, alice.tenant, "fit", "train.py")
        assert [(row.transition, row.by) for row in history_of(job)] == [("create", "test")]

    def test_the_defaults(self, create, alice):
        job = fresh(create(alice))
        assert (job.runtime, job.gpu, job.cpu, job.ram, job.retries, job.workers) == ("python", 0, 1, 512, 0, 1)
        assert (job.datasets, job.args, job.env) == ([], [], {})

    def test_the_tenant_of_the_user_is_charged(self, create, alice):
        other = Tenant.objects.create(name="other", cpu=8, ram=9000, gpu=2)
        move(alice, other)
        job = create(alice, gpu=1, cpu=2, ram=300, tenant="other")
        request = ResourceRequest.objects.get()
        assert (request.tenant, request.owner, request.applier) == (other, "alice", "jm")
        assert (request.gpu, request.cpu, request.ram, fresh(job).tenant) == (1, 2, 300, other)

    def test_a_missing_script_is_named(self, alice, home):
        with pytest.raises(Refused, match=r"^entry: the script none\.py does not exist; upload it to \.home first$"):
            lifecycle.create_job(user=alice, name="fit", entry="none.py", by="test")

    def test_a_dataset_must_be_the_users_own_and_ready(self, create, alice, bob):
        for owner, name, state in ((bob, "digits", "ready"), (alice, "letters", "creating")):
            Dataset.objects.create(user=owner, tenant=owner.tenant, name=name, size=0, state=state)
        for name in ("digits", "letters"):
            with pytest.raises(Refused, match=f"^datasets: you have no ready dataset named {name}$"):
                create(alice, datasets=[name])
        assert not Job.objects.exists()

    def test_a_name_that_is_taken_is_refused_by_name(self, create, alice, bob):
        create(alice)
        with pytest.raises(Refused, match=r"^name: you already have a job named fit$"):
            create(alice)
        assert create(bob).name == "fit"

    def test_any_other_integrity_error_is_raised_as_it_is(self, create, alice):
        with pytest.raises(IntegrityError, match="retries"):
            create(alice, retries=-1)

    def test_a_runner_without_many_workers_refuses_two(self, create, alice, monkeypatch):
        monkeypatch.setattr(type(runners.get()), "many_workers", False)
        with pytest.raises(Refused, match=r"^workers: must be 1: this platform does not run jobs with more than one"):
            create(alice, workers=2)
        assert create(alice).workers == 1

    @pytest.mark.parametrize("asked", [{"gpu": 1}, {"cpu": 3}, {"ram": 6000}])
    def test_all_workers_together_must_fit_the_tenant(self, create, alice, monkeypatch, asked):
        monkeypatch.setattr(type(runners.get()), "many_workers", True)
        create(alice, workers=2, **asked)
        (kind,) = asked
        with pytest.raises(Refused, match=f"^{kind}: requested .* this tenant has"):
            create(alice, "big", workers=3, **asked)
        assert Job.objects.count() == 1


class TestAdmission:
    """Which of the queued jobs get resources. The tenant has eight CPUs."""

    def queue(self, create, *wanted: tuple[User, str, float]) -> None:
        """Fill the tenant, queue the jobs, and let the tenant be empty again."""
        Tenant.objects.filter(name="default").update(cpu=100)
        for user, name, cpu in wanted:
            job = create(user, name, cpu=cpu)
            with locked(Job, pk=job.pk) as row:
                lifecycle.give_back(row)
            ResourceRequest.objects.all().delete()
        Tenant.objects.filter(name="default").update(cpu=8)

    def admitted(self) -> list[str]:
        names = dict(Job.objects.values_list("pk", "name"))
        return [names[pk] for pk in lifecycle.reserve_next()]

    def test_a_job_is_admitted_at_once_when_none_waits(self, create, alice, tasks):
        create(alice, "ended")
        lifecycle.cancel(user=alice, name="ended", by="test")
        create(alice, "first")
        tasks.queue.clear()
        job = create(alice, "second")
        assert job.reserved
        assert [(task.actor_name, task.args) for task in tasks.queue] == [("jobs.launch", (job.pk,))]

    def test_a_job_queues_behind_a_waiting_job(self, create, alice, tasks):
        self.queue(create, (alice, "big", 8))
        tasks.queue.clear()
        assert not create(alice, "small").reserved
        assert [(task.actor_name, task.args) for task in tasks.queue] == [("jobs.admit", ())]

    def test_many_who_wait_are_one_round_that_admits_all(self, create, alice, bob, tasks):
        self.queue(create, (alice, "big", 8))
        tasks.queue.clear()
        for name in ("one", "two", "three", "four", "five"):
            create(bob, name)
        assert [task.actor_name for task in tasks.queue] == ["jobs.admit"]
        lifecycle.cancel(user=alice, name="big", by="test")
        tasks.run_once()
        assert Job.objects.filter(user=bob, reserved=True).count() == 5

    def test_the_user_with_the_fewest_admitted_jobs_is_first(self, create, alice, bob):
        self.queue(create, (bob, "ba", 1), (bob, "bb", 1), (bob, "bc", 1), (alice, "aa", 1))
        (storage.home_dir("alice") / "train.py").write_text("pass")
        held = Job.objects.create(user=alice, tenant=alice.tenant, name="held", entry="train.py", reserved=True)
        assert self.admitted() == ["ba", "bb", "aa", "bc"]
        assert fresh(held).reserved

    def test_then_the_user_whose_last_start_is_longest_ago_is_first(self, create, alice, bob, make_user):
        carol, dave = make_user("carol"), make_user("dave")
        self.queue(create, *[(user, f"{user.username}-job", 1) for user in (alice, bob, carol, dave)])
        now = timezone.now()
        for user, minutes in ((alice, 1), (alice, 90), (bob, 60), (carol, None)):
            moment = minutes and now - timedelta(minutes=minutes)
            name = f"ended{minutes or ''}"
            Job.objects.create(user=user, tenant=user.tenant, name=name, entry="x", state="finished", started=moment)
        assert self.admitted() == ["carol-job", "dave-job", "bob-job", "alice-job"]

    def test_a_large_job_is_not_overtaken_in_its_tenant(self, create, alice, bob, make_user):
        carol = make_user("carol")
        move(carol, Tenant.objects.create(name="other", cpu=1, ram=9000))
        self.queue(create, (alice, "large", 8), (bob, "small", 1), (alice, "tiny", 1))
        Tenant.objects.filter(name="default").update(cpu_inuse=1)
        own = create(carol, "own", cpu=1)
        change(own, reserved=False)
        ResourceRequest.objects.all().delete()
        Tenant.objects.filter(name="other").update(cpu_inuse=0, ram_inuse=0)
        assert self.admitted() == ["own"]
        Tenant.objects.filter(name="default").update(cpu_inuse=0)
        assert self.admitted() == ["large"]

    def test_a_users_limit_stops_only_that_users_jobs(self, create, alice, bob):
        self.queue(create, (alice, "aa", 3), (alice, "ab", 1), (bob, "ba", 3))
        limits.set_limit(tenant="default", user="alice", by="test", cpu=2)
        assert self.admitted() == ["ba"]

    @pytest.mark.parametrize("gone", ["deleted", "cancelled", "admitted"])
    def test_a_job_that_has_changed_meanwhile_is_skipped(self, create, alice, monkeypatch, gone, tasks):
        self.queue(create, (alice, "first", 1), (alice, "second", 1))
        first, real = Job.objects.get(name="first"), lifecycle.lock_row

        def lock_row(model, pk: int):
            if pk == first.pk and gone == "deleted":
                Job.objects.filter(pk=pk).delete()
            elif pk == first.pk:
                change(first, **({"state": "error"} if gone == "cancelled" else {"reserved": True}))
            return real(model, pk=pk)

        monkeypatch.setattr(lifecycle, "lock_row", lock_row)
        tasks.queue.clear()
        assert self.admitted() == ["second"]
        assert [task.args for task in tasks.queue] == [(Job.objects.get(name="second").pk,)]


class TestRuns:
    def test_a_run_is_named_once_and_starts_when_its_time_has_come(self, create, alice):
        job = create(alice)
        ordered = lifecycle.order_run(job.pk)
        assert (ordered.run_name, ordered.attempt) == (f"job-{job.pk}-1", 1)
        assert timezone.now() - fresh(job).not_before < timedelta(minutes=1)
        again = lifecycle.order_run(job.pk)
        assert (again.run_name, again.not_before) == (ordered.run_name, ordered.not_before)
        change(job, not_before=timezone.now() + timedelta(minutes=1))
        assert lifecycle.order_run(job.pk) is None
        change(job, not_before=timezone.now() + timedelta(hours=1))
        assert lifecycle.order_run(job.pk) == job, "the clock was set back: no pause is that long"

    def test_the_run_is_named_after_the_attempt(self, create, alice):
        job = change(create(alice), attempt=3)
        assert lifecycle.order_run(job.pk).run_name == f"job-{job.pk}-3"

    @pytest.mark.parametrize(
        "fields",
        [{"reserved": False}, {"state": "running", "run_started": True}, {"state": "error"}, {"state": "deleting"}],
    )
    def test_no_other_job_gets_a_run(self, create, alice, fields):
        job = change(create(alice), **fields)
        assert lifecycle.order_run(job.pk) is None
        assert fresh(job).run_name == ""

    def test_a_missing_job_gets_no_run(self, create, alice):
        job = create(alice)
        with pytest.raises(Missing, match="no such job"):
            lifecycle.order_run(job.pk + 1)
        lifecycle.note_start(job.pk + 1, "")
        lifecycle.fail(job.pk + 1, "x", by="test")

    def test_the_start_confirms_the_resources(self, create, alice):
        job = started(create(alice))
        assert (job.state, job.run_started) == ("running", True)
        assert timezone.now() - job.started < timedelta(minutes=1)
        assert ResourceRequest.objects.get().state == "confirmed"

    def test_a_cleaned_up_run_releases_its_resources_and_admits_the_next_job(self, create, alice, tasks):
        job = started(create(alice))
        tasks.queue.clear()
        with locked(Job, pk=job.pk) as row:
            row.run_name = ""
            lifecycle.release_run(row)
        gone = fresh(job)
        assert (gone.run_name, gone.run_started, gone.reserved) == ("", False, False)
        assert ResourceRequest.objects.get().state == "released"
        assert [(task.actor_name, task.args) for task in tasks.queue] == [("jobs.admit", ())]
        with locked(Job, pk=job.pk) as row:
            lifecycle.give_back(row)  # a second time releases nothing

    def test_a_failed_attempt_is_followed_by_the_next_after_a_pause(self, create, alice, monkeypatch):
        delays = []
        keep = SimpleNamespace(enqueue=lambda message, delay=None: delays.append((message.actor_name, delay)))
        job = started(create(alice, retries=len(BACKOFF_S)))
        change(job, metrics_until=timezone.now())
        monkeypatch.setattr("kernel.after_commit.broker", lambda: keep)
        for number, pause in enumerate(BACKOFF_S, start=1):
            before = timezone.now()
            change(job, run_started=True)
            lifecycle.end_attempt(job.pk, f"job-{job.pk}-{number}", "exit code 1", by="runner")
            now = fresh(job)
            assert (now.state, now.reason) == ("running", f"attempt {number}: exit code 1")
            assert (now.attempt, now.run_name) == (number + 1, f"job-{job.pk}-{number + 1}")
            assert (now.run_started, now.metrics_until) == (False, None)
            assert before <= now.not_before - timedelta(seconds=pause) <= timezone.now()
        assert delays == [("jobs.launch", pause * 1000) for pause in BACKOFF_S]
        lifecycle.end_attempt(job.pk, job.run_name, "late", by="runner")
        assert fresh(job).attempt == len(BACKOFF_S) + 1
        lifecycle.end_attempt(job.pk, f"job-{job.pk}-{len(BACKOFF_S) + 1}", "the last", by="runner")
        assert (fresh(job).state, fresh(job).reason) == ("error", "the last")


class TestEnd:
    def test_a_heartbeat_changes_only_the_users_job_of_that_name(self, create, alice, bob):
        others = [started(create(bob)), started(create(alice, "before"))]
        job = started(create(alice))
        others.append(started(create(alice, "behind")))

        def report(state: str, progress: int) -> None:
            lifecycle.heartbeat(user=alice, name="fit", state=state, progress=progress, by="test")

        report("running", 40)
        report("running", 30)
        assert fresh(job).progress == 40
        report("finished", 50)
        assert (fresh(job).state, fresh(job).progress) == ("finished", 100)
        with pytest.raises(WrongState, match=r"^state: the job is finished; it accepts heartbeats only while it runs$"):
            report("running", 60)
        assert {(fresh(other).state, fresh(other).progress) for other in others} == {("running", 0)}

    def test_cancel_and_delete_change_only_the_users_job_of_that_name(self, create, alice, bob):
        others = [create(bob), create(alice, "before")]
        job = create(alice)
        others.append(create(alice, "behind"))
        assert lifecycle.cancel(user=alice, name="fit", by="test") == job
        assert (fresh(job).state, fresh(job).reason) == ("error", "cancelled")
        assert lifecycle.delete_job(user=alice, name="fit", by="test") == job
        assert fresh(job).state == "deleting"
        assert {fresh(other).state for other in others} == {"creating"}

    def test_deactivation_cancels_queued_and_running_jobs(self, create, alice, bob):
        ended, queued, other = create(alice, "ended"), create(alice, "queued"), create(bob)
        lifecycle.cancel(user=alice, name="ended", by="test")
        running = started(create(alice, "running"))
        with locked(User, pk=alice.pk):
            lifecycle.cancel_all_of(alice, by="test")
        reasons = [fresh(job).reason for job in (ended, queued, running, other)]
        deactivated = "cancelled: the account was deactivated"
        assert reasons == ["cancelled", deactivated, deactivated, ""]

    def test_without_a_run_the_resources_are_released_at_once(self, create, alice):
        job = create(alice)
        lifecycle.fail(job.pk, "x", by="test")
        assert (fresh(job).reserved, ResourceRequest.objects.get().state) == (False, "cancelled")
        assert timezone.now() - fresh(job).ended < timedelta(minutes=1)

    def test_with_a_run_the_resources_are_kept_until_it_is_cleaned_up(self, create, alice):
        job = started(create(alice))
        lifecycle.fail(job.pk, "x", by="test")
        assert (fresh(job).reserved, ResourceRequest.objects.get().state) == (True, "confirmed")
