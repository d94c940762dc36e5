"""Preemptible jobs on resources that another tenant lends. `default` has eight CPUs and lends, `north` has two."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from apps import lifecycle as apps
from conftest import move
from jobs import lifecycle, preemption
from jobs.models import Job
from jobs.queue import turns
from kernel import storage
from kernel.errors import Refused
from kernel.models import StateChange
from kernel.tests.nats_tools import until as wait_for
from mlp.tests.tiers import few
from models_app.models import Model
from resources import tcc
from resources.models import Loan, Tenant

from .checkpoints import CONTINUES

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]

SOON = timezone.now() + timedelta(seconds=1)


@pytest.fixture(autouse=True)
def slow(settings):
    settings.PREEMPT_WAIT_S, settings.PREEMPT_GRACE_S = 3600, 30


@pytest.fixture(autouse=True)
def north(alice) -> Tenant:
    """The tenant of alice, which may borrow."""
    Tenant.objects.filter(name="default").update(lends=True)
    tenant = Tenant.objects.create(name="north", cpu=2, ram=4000, cpu_borrow_limit=8, ram_borrow_limit=9000)
    move(alice, tenant)
    return tenant


@pytest.fixture
def create(home):
    """`create(user, name, cpu=…)` submits a job."""

    def make(user, name: str, **fields) -> Job:
        (storage.home_dir(user.username) / "train.py").write_text("pass")
        return lifecycle.create_job(user=user, name=name, entry="train.py", by="test", **fields)

    return make


@pytest.fixture
def running(create):
    """`running(user, name, …)` is a preemptible job whose run has begun."""

    def make(user, name: str, **fields) -> Job:
        job = create(user, name, **{"preemptible": True, **fields})
        lifecycle.reserve_next()
        lifecycle.order_run(job.pk)
        lifecycle.note_start(job.pk, f"job-{job.pk}-1")
        job.refresh_from_db()
        assert job.state == "running"
        return job

    return make


def asked(now=SOON) -> list[str]:
    return [Job.objects.get(pk=victim).name for victim, _waiting in preemption.choose(now)]


def step_back(job: Job) -> Job:
    job.refresh_from_db()
    assert preemption.requeue(job.pk, job.run_name, None)
    job.refresh_from_db()
    return job


def lent():
    return Tenant.objects.get(name="default").cpu_lent


def test_only_preemptible_jobs_borrow(create, alice):
    with pytest.raises(Refused, match="requested 3, but this tenant has 2"):
        create(alice, "firm", cpu=3)
    with pytest.raises(Refused, match=r"requested 10\.5, but this tenant has 10"):
        create(alice, "larger", cpu=10.5, preemptible=True)
    create(alice, "own", cpu=2)
    create(alice, "waits", cpu=1)
    create(alice, "large", cpu=8, preemptible=True)
    assert lifecycle.reserve_next() == [], "a job before it waits"
    lifecycle.cancel(user=alice, name="waits", by="alice")
    assert lifecycle.reserve_next() == [Job.objects.get(name="large").pk]
    assert lent() == 8


def test_a_job_of_the_lender_gets_it_back_at_once(running, create, alice, bob):
    long = running(alice, "long", cpu=6)
    assert lent() == 4
    create(bob, "small", cpu=4)
    assert asked() == [], "it fits"
    short = create(bob, "short", cpu=3)
    assert preemption.run(SOON) == [long.pk]
    long = step_back(long)
    assert StateChange.objects.latest("id").reason == "preempted to return borrowed resources"
    assert (lent(), Loan.objects.count()) == (0, 0)
    assert lifecycle.reserve_next() == [short.pk]
    assert asked() == []
    lifecycle.cancel(user=bob, name="small", by="bob")
    lifecycle.cancel(user=bob, name="short", by="bob")
    assert lifecycle.reserve_next() == [long.pk], "idle again"
    assert lent() == 4


def test_however_often(settings, running, create, alice, bob):
    settings.PREEMPT_MAX = 1
    long = running(alice, "long", cpu=6)
    Job.objects.filter(pk=long.pk).update(preemptions=5, not_before=timezone.now())
    create(bob, "short", cpu=8)
    assert asked() == ["long"]


def test_for_a_preemptible_job_of_the_lender_too(running, create, alice, bob):
    running(alice, "long", cpu=6)
    create(bob, "his", cpu=8, preemptible=True)
    assert asked() == ["long"]


def test_the_fewest_jobs_and_those_on_borrowed_resources_first(running, create, settings, alice, bob):
    settings.PREEMPT_WAIT_S = 0
    running(bob, "his", cpu=4)
    for name in ("one", "two", "three"):
        running(alice, name, cpu=2)
    assert lent() == 4
    create(bob, "short", cpu=2)
    assert asked() == ["three"]
    create(bob, "second", cpu=2)
    assert asked() == ["three", "two"]


def test_nobody_borrows_while_a_job_of_the_lender_waits(running, create, alice, bob):
    running(bob, "his", cpu=6, preemptible=False)
    create(bob, "waits", cpu=8)
    create(alice, "long", cpu=3, preemptible=True)
    assert lifecycle.reserve_next() == []


def test_own_jobs_step_back_also_where_their_tenant_borrows(settings, running, create, alice):
    """What the first gives back is returned to the lender; only the second frees own capacity."""
    settings.PREEMPT_WAIT_S = 0
    running(alice, "one", cpu=2)
    running(alice, "two", cpu=2)
    create(alice, "firm", cpu=2)
    assert sorted(asked(SOON + timedelta(hours=1))) == ["one", "two"]


@pytest.mark.parametrize("change", few([{"lends": False}, {}], 1))
def test_an_administrator_ends_the_lending(running, alice, north, change):
    running(alice, "one", cpu=2)
    running(alice, "two", cpu=2)
    running(alice, "three", cpu=2)
    tcc.set_capacity(name="default" if change else "north", by="test", **(change or {"cpu_borrow_limit": 2}))
    assert asked() == (["three", "two"] if change else ["three"])
    for pk in preemption.run(SOON):
        step_back(Job.objects.get(pk=pk))
    assert StateChange.objects.filter(transition="preempt").first().reason == "preempted to return borrowed resources"
    assert asked() == []
    assert lent() == (0 if change else 2)


def test_an_application_of_the_lender_gets_the_loan_back(running, alice, bob):
    """It is queued until the borrower has stepped back; nothing is lent for a while."""
    running(alice, "long", cpu=10)
    Model.objects.create(user=bob, tenant=bob.tenant, name="net", size=0, src="home/net", state="ready")
    app = apps.create_app(user=bob, name="app", model_name="net", by="bob")
    assert not app.reserved
    [pk] = preemption.run(SOON)
    step_back(Job.objects.get(pk=pk))
    assert lifecycle.reserve_next() == []
    app.refresh_from_db()
    assert app.reserved


def test_the_queue_says_what_can_be_borrowed(running, create, alice, bob, as_alice):
    running(bob, "his", cpu=7, preemptible=False)
    create(alice, "long", cpu=4, preemptible=True)
    turns.reordered()
    said = as_alice.call("get", "users/alice/jobs/long/queue").json()
    assert said["reason"] == "Not enough free resources: needs 4 CPU, 3 CPU free."


@pytest.mark.long
def test_a_run_on_borrowed_resources_saves_its_checkpoint_and_continues(submit, create, until, alice, bob):
    long = until(submit(CONTINUES, name="long", cpu=8, preemptible=True), "running")
    wait_for((storage.job_dir("alice", "long") / "at-two").exists)
    short = create(bob, "short", cpu=8)
    until(short, "finished")
    until(long, "finished")
    assert (long.attempt, long.preemptions) == (2, 1)
    assert short.ended < Job.objects.get(pk=long.pk).ended
    assert not Loan.objects.exists()
    assert all(tenant.cpu_inuse == 0 for tenant in Tenant.objects.all())
