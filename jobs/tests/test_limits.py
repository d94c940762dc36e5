"""A user's limit inside the tenant: the user's jobs wait for each other and delay nobody else."""

from __future__ import annotations

import pytest

from jobs import lifecycle
from jobs.models import Job
from kernel import storage
from resources import limits
from resources.models import Tenant

SLEEP = "import time\ntime.sleep(60)"


@pytest.fixture
def limit(alice):
    return limits.set_limit(tenant="default", user="alice", by="test", cpu=2)


@pytest.fixture
def sleeper(submit, script, until):
    """A running job of alice's, with a script that the other tests' jobs do not overwrite."""

    def start(cpu: float) -> Job:
        return until(submit("pass", name="first", entry=script(SLEEP, "sleep.py"), cpu=cpu), "running")

    return start


@pytest.fixture
def submit_as_bob(as_bob):
    (storage.home_dir("bob") / "x.py").write_text("pass")

    def post(name: str, **fields) -> Job:
        body = {"name": name, "entry": "x.py", **fields}
        assert as_bob.call("post", "users/bob/jobs", body).status_code == 201
        return Job.objects.get(name=name)

    return post


def test_a_job_over_the_limit_is_queued_until_the_users_own_job_ends(limit, sleeper, submit, until):
    first = sleeper(2)
    second = submit("pass", name="second", cpu=1)
    until(first, "running")
    second.refresh_from_db()
    assert (second.state, second.reserved) == ("creating", False)
    lifecycle.cancel(user=first.user, name="first", by="alice")
    until(second, "finished")


def test_other_users_are_not_delayed(limit, sleeper, submit, until, submit_as_bob):
    first = sleeper(2)
    mine = [submit("pass", name=name, cpu=1) for name in ("second", "third")]
    until(submit_as_bob("theirs", cpu=6), "finished")
    assert not any(job.reserved for job in Job.objects.filter(pk__in=[job.pk for job in mine]))
    lifecycle.cancel(user=first.user, name="first", by="alice")
    for job in mine:
        until(job, "finished")
    assert Tenant.objects.get(name="default").cpu_inuse == 0


def test_smaller_jobs_of_the_user_do_not_overtake_the_queued_one(limit, sleeper, submit):
    sleeper(1.5)
    submit("pass", name="second", cpu=1)
    submit("pass", name="third", cpu=0.5)
    lifecycle.reserve_next()
    assert not Job.objects.get(name="third").reserved


def test_a_job_that_can_never_fit_the_limit_is_refused(limit, as_alice, script):
    body = {"name": "big", "entry": script("pass"), "cpu": 2.5}
    message = as_alice.refused("post", "users/alice/jobs", body)
    assert message == "cpu: requested 2.5, but the limit for user alice is 2"
    assert not Job.objects.exists()


def test_a_dataset_over_the_limit_is_refused(as_alice, as_bob):
    limits.set_limit(tenant="default", user="*", by="test", rom=100)
    limits.set_limit(tenant="default", user="bob", by="test")
    as_alice.call("post", "users/alice/datasets", {"name": "a", "size": 60})
    message = as_alice.refused("post", "users/alice/datasets", {"name": "b", "size": 50})
    assert message == "rom: requested 50 bytes, but user alice has 40 bytes left of a limit of 100 bytes"
    assert as_bob.call("post", "users/bob/datasets", {"name": "b", "size": 5000}).status_code == 201
