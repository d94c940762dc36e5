"""Jobs whose pods start when Kueue admits them; the cluster's Kueue is a stand-in (runners/tests/cluster/kueue.py)."""

from __future__ import annotations

import pytest

from jobs import reconcile
from jobs.models import Job
from kernel import storage
from kernel.models import StateChange
from kernel.tests.nats_tools import until as wait_for
from mlp.tests.page_world import visible_text, visitor
from resources.models import Tenant
from runners.kubernetes import kueue
from runners.tests.on_cluster import platform_on_cluster

pytestmark = pytest.mark.django_db(transaction=True)
SHORT = "insufficient unused quota for cpu in flavor default, 3 more needed"
SCRIPT = """
import os, pathlib, time
print("attempt", os.environ["MLP_ATTEMPT"], flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""


@pytest.fixture
def queues(settings, tmp_path, monkeypatch):
    """The stand-in, with the queue `lab`; it is asked at each look."""
    monkeypatch.setattr(kueue, "ASK_AGAIN_S", -1)
    settings.RUN_GATEWAY_URL = "http://10.0.0.7:30001"
    images = {"python": "registry.test/python:1"}
    with platform_on_cluster(settings, tmp_path, images=images, kueue_queue="lab") as fake:
        fake.store.create("localqueues", {"metadata": {"name": "lab"}, "spec": {"clusterQueue": "all"}})
        yield fake.controllers.kueue


@pytest.fixture
def sees(tasks):
    """Run the workers and the reconcile loop until a condition holds of the job."""

    def wait(job: Job, condition) -> Job:
        def holds() -> bool:
            tasks.run()
            reconcile.run()
            job.refresh_from_db()
            return condition(job)

        wait_for(holds)
        return job

    return wait


def test_a_job_waits_for_its_queue_with_the_reason_and_runs(queues, submit, sees, until, as_alice):
    queues.closed = SHORT
    job = sees(submit(), lambda job: SHORT in str(job.reason))
    words = f"waiting to start: queued by Kueue in lab: {SHORT}"
    assert (str(job.reason), job.state, job.reserved) == (words, "creating", True)
    assert as_alice.call("get", "users/alice/jobs/fit").json()["reason"] == words
    assert words in visible_text(visitor(job.user).get("/jobs/fit"))
    queues.closed = ""
    assert until(job, "finished").attempt == 1


def test_it_is_cancelled_while_it_waits(queues, submit, sees, until, as_alice):
    queues.closed = SHORT
    job = sees(submit(), lambda job: SHORT in str(job.reason))
    assert as_alice.call("put", "users/alice/jobs/fit:cancel").status_code == 200
    assert until(job, "error").outcome == "cancelled"
    assert queues.store.list("jobs") == []
    assert Tenant.objects.get().cpu_inuse == 0


def test_what_kueue_suspends_again_goes_back_to_the_queue_and_is_no_failure(queues, submit, sees, until, as_alice):
    job = sees(submit(SCRIPT), lambda job: job.state == "running")
    queues.closed = "Preempted to accommodate a workload of higher priority"
    job = sees(job, lambda job: job.preemptions == 1)
    assert job.state == "creating"
    assert StateChange.objects.filter(kind="job", transition="preempt").get().reason == "preempted by the cluster"
    job = sees(job, lambda job: "higher priority" in str(job.reason))
    assert job.attempt == 2  # a run that waits has not been displaced
    assert job.preemptions == 1
    queues.closed = ""
    job = sees(job, lambda job: job.state == "running")
    (storage.job_dir("alice", "fit") / "go").touch()
    job = until(job, "finished")
    assert (job.attempt, job.preemptions, job.outcome) == (2, 1, "finished")
    assert "attempt 2" in as_alice.call("get", "users/alice/jobs/fit/log").content.decode()


def test_a_second_attempt_that_waits_is_not_taken_for_displaced(queues, submit, sees, until):
    job = sees(submit("import sys; sys.exit(3)", retries=1), lambda job: job.attempt == 2)
    queues.closed = SHORT
    Job.objects.filter(pk=job.pk).update(not_before=None)
    job = sees(job, lambda job: job.run_started and bool(queues.store.list("workloads")))
    job = sees(job, lambda job: True)
    assert (job.preemptions, job.stepping_back) == (0, None)
    queues.closed = ""
    assert until(job, "error").attempt == 2
