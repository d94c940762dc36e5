"""A user's limit inside the tenant: the user's jobs wait for each other and delay nobody else."""

from __future__ import annotations

import pytest

from jobs import lifecycle
from jobs.models import Job
from kernel import storage
from resources import limits
from resources.models import Tenant

SLEEP = "import time\ntime.sleep(600)"


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


@pytest.mark.long
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
    assert message == "cpu: requested 2.5, but the limit for user alice is 2 (0 in use)"
    assert not Job.objects.exists()


def test_a_dataset_over_the_limit_is_refused(as_alice, as_bob):
    limits.set_limit(tenant="default", user="*", by="test", rom=100)
    limits.set_limit(tenant="default", user="bob", by="test")
    as_alice.call("post", "users/alice/datasets", {"name": "a", "size": 60})
    message = as_alice.refused("post", "users/alice/datasets", {"name": "b", "size": 50})
    assert message == "rom: requested 50 bytes, but user alice already uses 60 bytes of a limit of 100 bytes"
    assert as_bob.call("post", "users/bob/datasets", {"name": "b", "size": 5000}).status_code == 201


def test_a_job_is_stopped_at_its_time_limit_and_not_retried(submit, until, as_alice):
    job = until(submit(SLEEP, name="endless", timeout=1, retries=3), "error")  # its run is gone
    assert (job.reason, job.outcome, job.attempt) == ("the time limit of 1 s is exceeded", "timed_out", 1)
    diagnosis = as_alice.call("get", "users/alice/jobs/endless/diagnosis").json()
    assert diagnosis["title"] == "The time limit is exceeded"
    assert diagnosis["explanation"].startswith("The job was stopped after the 1 second that was allowed")
    again = as_alice.call("post", "users/alice/jobs/endless:rerun", {"timeout": None, "cpu": 1})
    assert (again.status_code, again.json()["timeout"]) == (201, None)


def test_the_form_takes_a_time_limit_with_units(client, alice):
    client.force_login(alice)
    (storage.home_dir("alice") / "x.py").write_text("pass")
    form = {"name": "limited", "entry": "x.py", "cpu": 1, "ram": 100, "priority": -5}
    refused = client.post("/jobs", {**form, "timeout": "soon"})
    assert refused.status_code == 403
    assert "soon is not a duration such as 90, 30m or 1h30m" in refused.text
    assert client.post("/jobs", {**form, "timeout": "1h30m"}).status_code == 302
    job = Job.objects.get(name="limited")
    assert (job.timeout, job.priority) == (5400, -5)
    assert 'value="5400"' in client.get("/jobs?from=limited").text


@pytest.mark.parametrize("wrong", [{"timeout": 0}, {"timeout": "1h"}, {"priority": 101}, {"priority": None}])
def test_limits_out_of_range_are_named(as_alice, wrong):
    (storage.home_dir("alice") / "x.py").write_text("pass")
    refused = as_alice.call("post", "users/alice/jobs", {"name": "limited", "entry": "x.py", **wrong})
    assert refused.status_code == 403
    assert next(iter(wrong)) in refused.json()["msg"]


@pytest.mark.long
def test_a_queued_jobs_priority_orders_its_users_own_jobs(limit, sleeper, submit, until, as_alice):
    first = sleeper(2)
    for name, priority in (("low", -1), ("usual", 0), ("high", 7)):
        submit("pass", name=name, cpu=2, priority=priority)
    ahead = lambda name: as_alice.call("get", f"users/alice/jobs/{name}/queue").json()["ahead"]["own"]  # noqa: E731
    assert (ahead("high"), ahead("low")) == ([], ["high", "usual"])
    edited = as_alice.call("put", "users/alice/jobs/low:edit", {"priority": 9})
    assert (edited.status_code, edited.json()["priority"]) == (200, 9)
    assert ahead("usual") == ["low", "high"]
    refused = as_alice.call("put", "users/alice/jobs/first:edit", {"priority": 9})
    assert (refused.status_code, "only a queued job" in refused.json()["msg"]) == (403, True)
    lifecycle.cancel(user=first.user, name="first", by="alice")
    started = [until(Job.objects.get(name=name), "finished").started for name in ("low", "high", "usual")]
    assert started == sorted(started)
