"""Preemptible jobs step back for a job that waits, go back to the queue, and continue. The tenant has eight CPUs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

import runners
from conftest import move
from jobs import launching, lifecycle, preemption, reconcile
from jobs.models import Job
from jobs.queue import turns
from kernel import storage
from kernel.models import StateChange
from kernel.tests.nats_tools import until as wait_for
from mlp.tests.page_world import visible_text
from resources import limits
from resources.models import ResourceRequest, Tenant

from .checkpoints import CONTINUES

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]

LATER = timezone.now() + timedelta(hours=1)


@pytest.fixture(autouse=True)
def short(settings):
    settings.PREEMPT_WAIT_S, settings.PREEMPT_GRACE_S = 0, 30


@pytest.fixture
def create(home):
    """`create(user, name, cpu=…)` submits a job."""

    def make(user, name: str, **fields) -> Job:
        (storage.home_dir(user.username) / "train.py").write_text("pass")
        return lifecycle.create_job(user=user, name=name, entry="train.py", by="test", **fields)

    return make


@pytest.fixture
def running(create):
    """`running(user, name, …)` is a preemptible job whose run has begun, in the order of the calls."""

    def make(user, name: str, **fields) -> Job:
        job = create(user, name, **{"preemptible": True, **fields})
        lifecycle.order_run(job.pk)
        lifecycle.note_start(job.pk, f"job-{job.pk}-1")
        job.refresh_from_db()
        assert job.state == "running"
        return job

    return make


def asked(now=LATER) -> list[str]:
    return [Job.objects.get(pk=victim).name for victim, _waiting in preemption.choose(now)]


def step_back(job: Job, ended: float | None = None) -> Job:
    """Let the job's run have ended after it was asked to."""
    job.refresh_from_db()
    assert preemption.requeue(job.pk, job.run_name, ended)
    job.refresh_from_db()
    return job


def test_a_job_saves_its_checkpoint_steps_back_and_continues(submit, script, until, as_alice):
    long = until(submit(CONTINUES, name="long", cpu=8, preemptible=True), "running")
    folder = storage.job_dir("alice", "long")
    wait_for((folder / "at-two").exists)
    short = submit("print('short')", name="short", cpu=1)
    until(short, "finished")
    until(long, "finished")
    assert (long.attempt, long.preemptions, long.retries) == (2, 1, 0)
    assert short.ended < Job.objects.get(pk=long.pk).ended
    log = (folder / "log" / "job.log").read_text()
    assert "run 1 preempted 0 from 0" in log
    assert "run 2 preempted 1 from 2" in log
    assert log.rstrip().endswith("done 5")
    moves = StateChange.objects.filter(kind="job", object_id=long.pk).order_by("id")
    assert [(row.transition, row.reason) for row in moves] == [
        ("create", ""), ("start", ""), ("preempt", "preempted for the job short"), ("start", ""), ("finish", ""),
    ]  # fmt: skip
    assert Tenant.objects.get(name="default").cpu_inuse == 0
    job = as_alice.call("get", "users/alice/jobs/long").json()
    assert (job["preemptible"], job["preemptions"]) == (True, 1)


def test_nothing_happens_before_the_time(settings, running, create, alice):
    settings.PREEMPT_WAIT_S = 60
    running(alice, "long", cpu=8)
    waiting = create(alice, "short", cpu=1)
    assert asked(waiting.created + timedelta(seconds=59)) == []
    assert asked(waiting.created + timedelta(seconds=60)) == ["long"]


def test_the_youngest_of_equals(running, create, alice):
    for name in ("one", "two", "three", "four"):
        running(alice, name, cpu=2)
    create(alice, "short", cpu=1)
    assert asked() == ["four"]


def test_the_fewest(running, create, alice):
    running(alice, "large", cpu=5)
    running(alice, "small", cpu=1)
    running(alice, "tiny", cpu=0.5)
    create(alice, "short", cpu=4)
    assert asked() == ["large"]


def test_several_where_one_is_not_enough_and_no_more(running, create, alice):
    for name in ("one", "two", "three", "four"):
        running(alice, name, cpu=2)
    create(alice, "short", cpu=4)
    assert sorted(asked()) == ["four", "three"]


def test_none_where_all_are_not_enough(running, create, alice):
    running(alice, "mine", cpu=5, preemptible=False)
    running(alice, "long", cpu=2)
    create(alice, "short", cpu=4)
    assert asked() == []


def test_only_jobs_that_said_they_may(running, create, alice):
    running(alice, "long", cpu=8, preemptible=False)
    create(alice, "short", cpu=1)
    assert asked() == []


def test_a_preemptible_job_preempts_nobody_and_comes_last(running, create, alice, bob):
    running(alice, "long", cpu=8)
    create(bob, "another", cpu=1, preemptible=True)
    assert asked() == []
    create(alice, "short", cpu=1)
    assert asked() == ["long"], "although bob has less and has waited longer"


def test_a_preemptible_job_of_high_priority_keeps_no_job_of_its_owner_waiting(create, alice, bob):
    create(alice, "first", cpu=8)
    lifecycle.reserve_next()
    create(bob, "long", cpu=8, preemptible=True, priority=10)
    create(bob, "short", cpu=8)
    create(alice, "another", cpu=8)
    Job.objects.filter(name="first").update(reserved=False, state="finished")
    order = turns.turns()
    names = dict(Job.objects.values_list("pk", "name"))
    assert [names[entry.pk] for entry in iter(order.take, None)] == ["short", "another", "long"]


def test_a_users_own_priorities_are_kept(running, create, alice, bob):
    running(alice, "long", cpu=8, priority=5)
    create(alice, "short", cpu=1)
    assert asked() == []
    create(bob, "his", cpu=1)
    assert asked() == ["long"], "priorities order the jobs of one user only"


def test_jobs_of_another_tenant_are_left_alone(running, create, alice, bob):
    move(bob, Tenant.objects.create(name="other", cpu=4, ram=8000))
    running(bob, "theirs", cpu=4)
    create(alice, "large", cpu=8, preemptible=False)
    create(alice, "short", cpu=8)
    assert asked() == []


def test_the_users_own_limit_is_made_room_for_by_own_jobs_only(running, create, alice, bob):
    limits.set_limit(tenant="default", user="alice", by="test", cpu=3)
    running(bob, "his", cpu=3)
    running(alice, "mine", cpu=3)
    create(alice, "short", cpu=1)
    assert asked() == ["mine"]


def test_what_is_given_back_already_is_counted(running, create, alice):
    running(alice, "one", cpu=4)
    running(alice, "two", cpu=4)
    create(alice, "first", cpu=1)
    create(alice, "second", cpu=1)
    assert len(preemption.run(LATER)) == 1
    assert preemption.run(LATER) == [], "both fit into what the one gives back"
    create(alice, "third", cpu=4)
    assert len(preemption.run(LATER)) == 1


def test_the_one_it_is_for_comes_first(running, create, alice):
    long = running(alice, "long", cpu=8)
    short = create(alice, "short", cpu=8)
    assert preemption.run(LATER) == [long.pk]
    early = create(alice, "urgent", cpu=8, priority=100)
    step_back(long)
    lifecycle.reserve_next()
    assert [Job.objects.get(pk=job.pk).reserved for job in (short, early, long)] == [True, False, False]
    assert Tenant.objects.get(name="default").cpu_inuse == 8


def test_back_in_the_queue(running, create, alice, as_alice, client):
    long = running(alice, "long", cpu=8, retries=2, timeout=100)
    create(alice, "short", cpu=8)
    preemption.run(LATER)
    client.force_login(alice)
    assert "The job is being preempted" in visible_text(client.get("/jobs/long"))
    waits = as_alice.call("get", "users/alice/jobs/short/queue").json()
    assert waits["reason"] == "Preemptible jobs are being stopped for it."
    Job.objects.filter(pk=long.pk).update(started=timezone.now() - timedelta(seconds=90))
    step_back(long)
    assert (long.state, long.reserved, long.run_name, long.attempt, long.preemptions) == ("creating", False, "", 2, 1)
    assert not ResourceRequest.objects.filter(pk=f"job:{long.pk}").exists()
    lifecycle.reserve_next()
    turns.reordered()
    said = as_alice.call("get", "users/alice/jobs/long/queue").json()
    assert said["position"] == 1
    now = timezone.now()
    Job.objects.filter(pk=long.pk).update(requeued=now - timedelta(seconds=50), started=now - timedelta(seconds=140))
    long.refresh_from_db()
    assert long.ran_for == pytest.approx(90), "not while it is queued"
    lifecycle.cancel(user=alice, name="short", by="alice")
    lifecycle.reserve_next()
    lifecycle.order_run(long.pk)
    lifecycle.note_start(long.pk, f"job-{long.pk}-2")
    long.refresh_from_db()
    assert (long.state, long.requeued, round(long.ran_for)) == ("running", None, 90)
    assert not long.is_overdue
    assert ResourceRequest.objects.get(pk=f"job:{long.pk}").state == "confirmed"
    assert "preempted once" in visible_text(client.get("/jobs/long"))


def test_it_does_not_cost_a_retry(running, create, alice):
    long = running(alice, "long", cpu=8, retries=1)
    Job.objects.filter(pk=long.pk).update(attempt=3, preemptions=2)
    lifecycle.end_attempt(long.pk, long.run_name, "x", by="test")
    long.refresh_from_db()
    assert long.state == "running", "the first failure of three runs"
    lifecycle.end_attempt(long.pk, long.run_name, "x", by="test")
    long.refresh_from_db()
    assert long.state == "error"


def test_no_ping_pong(settings, running, create, alice):
    settings.PREEMPT_EXEMPT_S, settings.PREEMPT_MAX = 300, 3
    long = running(alice, "long", cpu=8)
    create(alice, "short", cpu=8)
    now = timezone.now()
    Job.objects.filter(pk=long.pk).update(preemptions=1, not_before=now)
    assert asked(now + timedelta(seconds=299)) == []
    assert asked(now + timedelta(seconds=301)) == ["long"]
    Job.objects.filter(pk=long.pk).update(preemptions=3)
    assert asked() == []


def test_a_run_that_had_ended_before_it_was_asked_has_ended(running, create, alice):
    long = running(alice, "long", cpu=8)
    create(alice, "short", cpu=8)
    preemption.run(LATER)
    long.refresh_from_db()
    assert not preemption.requeue(long.pk, long.run_name, long.stepping_back.timestamp() - 10)
    assert not preemption.requeue(long.pk, "another", None)
    lifecycle.finish(long.pk, long.run_name, by="runner")
    long.refresh_from_db()
    assert long.state == "finished"


def test_an_error_that_it_reports_while_it_is_stopped_is_none(running, create, alice):
    long = running(alice, "long", cpu=8)
    create(alice, "short", cpu=8)
    preemption.run(LATER)
    lifecycle.heartbeat(user=alice, name="long", state="error", progress=40, by="job")
    assert (step_back(long).state, long.progress) == ("creating", 40)


def test_reports_sent_before_it_stepped_back_are_kept(running, create, alice):
    long = running(alice, "long", cpu=8)
    sent = timezone.now()
    create(alice, "short", cpu=8)
    preemption.run(LATER)
    step_back(long)
    assert long.ran_at(sent)
    assert long.attempt_at(sent) == 1
    assert not long.ran_at(timezone.now())


def test_a_name_of_another_user_is_not_told(running, create, alice, bob):
    long = running(alice, "long", cpu=8)
    create(bob, "secret", cpu=8)
    preemption.run(LATER)
    step_back(long)
    assert StateChange.objects.latest("id").reason == "preempted for a job of another user"


@pytest.mark.long
def test_a_platform_that_is_killed_in_between_goes_on(submit, script, until, tasks):
    """Nobody gets the message that the job has to step back: reconcile stops its run and puts it into the queue."""
    long = until(submit(CONTINUES, name="long", cpu=8, preemptible=True), "running")
    wait_for((storage.job_dir("alice", "long") / "at-two").exists)
    short = submit("print('short')", name="short", cpu=8)
    assert preemption.run(LATER) == [long.pk]
    tasks.queue.clear()
    for _ in range(3):
        for job in Job.objects.filter(reconcile._live(), pk=long.pk):  # none once it is in the queue again
            reconcile._look(job)
    wait_for(lambda: runners.get().poll(f"job-{long.pk}-1").state != "running")
    launching.step_back(long.pk, follow=False)
    launching.step_back(long.pk, follow=False)
    tasks.queue.clear()
    assert Job.objects.get(pk=long.pk).preemptions == 1
    until(short, "finished")
    until(long, "finished")
    assert runners.get().names() == []
    assert Tenant.objects.get(name="default").cpu_inuse == 0


def test_a_cancelled_job_does_not_come_back(running, create, alice):
    long = running(alice, "long", cpu=8)
    create(alice, "short", cpu=8)
    preemption.run(LATER)
    lifecycle.cancel(user=alice, name="long", by="alice")
    long.refresh_from_db()
    assert not preemption.requeue(long.pk, long.run_name, None)
    assert long.state == "error"


def test_for_a_job_that_was_cancelled_nobody_steps_back(running, create, alice):
    long = running(alice, "long", cpu=8)
    short = create(alice, "short", cpu=8)
    lifecycle.cancel(user=alice, name="short", by="alice")
    assert not preemption.ask(long.pk, short.pk)


def test_the_form_takes_it(client, alice, home):
    (home / "x.py").write_text("pass")
    client.force_login(alice)
    form = {"name": "long", "entry": "x.py", "cpu": 1, "ram": 100}
    assert client.post("/jobs", {**form, "preemptible": "true"}).status_code == 302
    assert client.post("/jobs", {**form, "name": "firm"}).status_code == 302
    assert [job.preemptible for job in Job.objects.order_by("pk")] == [True, False]
    assert "checked" in client.get("/jobs?from=long").text.partition('id="preemptible"')[2][:300]
    assert "checked" not in client.get("/jobs?from=firm").text.partition('id="preemptible"')[2][:300]


def test_a_word_is_no_flag(as_alice, script):
    body = {"name": "long", "entry": script("pass"), "preemptible": "yes"}
    assert as_alice.refused("post", "users/alice/jobs", body).startswith("preemptible: ")
