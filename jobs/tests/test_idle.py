"""Jobs that idle are warned, then stopped, by the policy of their tenant; what is not known is never idle."""

from __future__ import annotations

import json
import os
from datetime import timedelta

import pytest
from django.utils import timezone

import runners
from accounts.models import Notice
from jobs import environment, idle, lifecycle
from jobs.models import Job
from kernel.tests.nats_tools import until as wait_for
from mlp.tests.page_world import visible_text
from mlp.tests.tiers import few
from resources.models import Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]

NOW = timezone.now()


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


@pytest.fixture
def policy(as_staff):
    """Set the policy over REST: 30 minutes below 10 %, stopped 15 minutes after the warning."""
    asked = {"idle_gpu_minutes": 30, "idle_gpu_percent": 10, "idle_cpu_minutes": 30, "idle_grace_minutes": 15}
    answer = as_staff.call("put", "tenants/default", {**asked, "idle_cpu_percent": 10})
    assert answer.status_code == 200, answer.content
    return answer.json()


@pytest.fixture
def running(home, alice):
    """`running(gpu=…)` is a job of alice's whose run has begun."""
    (home / "train.py").write_text("pass")

    def make(**fields) -> Job:
        job = lifecycle.create_job(user=alice, name="fit", entry="train.py", by="test", **fields)
        lifecycle.order_run(job.pk)
        lifecycle.note_start(job.pk, f"job-{job.pk}-1")
        job.refresh_from_db()
        return job

    return make


def used(job: Job, samples: list[dict], written=NOW) -> None:
    """Write the usage of the job's run as its shim does."""
    path = runners.get().usage_of(job.run_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in samples))
    os.utime(path, (written.timestamp(), written.timestamp()))


def forged(job: Job, rows: list[dict]) -> None:
    """Write the same as the job's script."""
    path = environment.usage_path(job)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def samples(first: int, last: int, **values) -> list[dict]:
    """Return a sample a minute, from and to these minutes."""
    return [{"after": minute * 60.0, "ram": 5, **values} for minute in range(first, last + 1)]


def look(job: Job, at=NOW) -> Job:
    idle.apply(at, often=True)
    job.refresh_from_db()
    return job


def test_off_by_default(running, as_alice):
    job = running()
    used(job, samples(1, 600, cpu=0.0))
    assert look(job).idle_warned is None
    tenant = as_alice.call("get", "tenants/default").json()
    assert (tenant["idle_gpu_minutes"], tenant["idle_cpu_minutes"]) == (None, None)


def test_warned_then_stopped_with_the_reason(running, policy, client, as_alice, alice):
    job = running(retries=3)
    used(job, samples(1, 30, cpu=0.0))
    assert look(job).idle_warned is None, "29 minutes"
    used(job, samples(1, 31, cpu=0.09))
    assert look(job).idle_warned == NOW
    notice = Notice.objects.get(user=alice)
    assert (notice.event, str(notice.reason)) == (
        "idle",
        "idle: less than 10 % of its CPU used for 30 min; unless it is used again, the job is stopped in 15 min",
    )
    client.force_login(alice)
    assert "The job has used less than 10 % of its CPU for 30 minutes." in visible_text(client.get("/jobs/fit"))
    assert as_alice.call("get", "users/alice/jobs/fit").json()["idle_warned"]
    used(job, samples(1, 45, cpu=0.0), NOW + minutes(14))
    assert look(job, NOW + minutes(14)).state == "running"
    assert Notice.objects.count() == 1, "one warning, one notification"
    assert look(job, NOW + minutes(15)).state == "error"
    assert (str(job.reason), job.attempt) == ("idle: less than 10 % of its CPU used for 30 min", 1)


def test_the_diagnosis_explains_it(running, policy, as_alice, tasks):
    job = running()
    used(job, samples(1, 31, cpu=0.0))
    look(job)
    used(job, samples(1, 60, cpu=0.0), NOW + minutes(15))
    look(job, NOW + minutes(15))
    runners.get().stop_all(grace=0)
    tasks.run()
    diagnosis = as_alice.call("get", "users/alice/jobs/fit/diagnosis").json()
    assert (diagnosis["title"], diagnosis["action"]) == ("The job was idle", "usage")
    assert diagnosis["explanation"].startswith("It used less than 10 % of its CPU for 30 minutes")


def test_activity_withdraws_the_warning(running, policy):
    job = running()
    used(job, samples(1, 31, cpu=0.0))
    look(job)
    later = NOW + minutes(5)
    used(job, [*samples(1, 35, cpu=0.0), {"after": 36 * 60.0, "cpu": 0.8}], later)
    assert look(job, later).idle_warned is None
    assert look(job, NOW + minutes(15)).state == "running"


def test_only_the_gpu_counts_for_a_job_that_has_one(running, policy):
    job = running(gpu=1)
    used(job, samples(1, 40, cpu=0.0, gpu=55))
    assert look(job).idle_warned is None, "the CPU is idle, the GPU is not"
    used(job, samples(1, 40, cpu=1.0, gpu=9))
    assert (look(job).idle_warned, job.idle_kind) == (NOW, "gpu")


@pytest.mark.parametrize(
    "known",
    few(
        [
            pytest.param(([], NOW), id="no samples"),
            pytest.param((samples(1, 40, cpu=0.0), NOW - minutes(10)), id="samples of ten minutes ago"),
            pytest.param((samples(37, 40, cpu=0.0), NOW), id="too few"),
            pytest.param((samples(1, 40), NOW), id="not measured"),
            pytest.param(([*samples(1, 90, cpu=0.0), *samples(1, 9, cpu=0.0)], NOW), id="of the attempt before"),
            pytest.param((samples(1, 40, cpu=0.2), NOW), id="busy"),
        ],
        2,
    ),
)
def test_what_is_not_known_is_not_idle(running, policy, known):
    job = running()
    used(job, *known)
    assert look(job).idle_warned is None


def test_the_share_is_that_of_what_is_reserved(running, policy):
    job = running(cpu=4)
    used(job, samples(1, 40, cpu=0.39))
    assert look(job).idle_warned == NOW


def test_an_exempt_job_is_left_alone(running, policy, staff, client):
    job = running()
    used(job, samples(1, 40, cpu=0.0))
    look(job)
    client.force_login(staff)
    client.post(f"/admin/jobs/job/{job.pk}/do/exempt/")
    job.refresh_from_db()
    assert (job.idle_exempt, job.idle_warned) == (True, None)
    assert look(job, NOW + minutes(60)).state == "running"


def test_without_the_policy_the_warning_goes(running, policy, as_staff):
    job = running()
    used(job, samples(1, 40, cpu=0.0))
    look(job)
    as_staff.call("put", "tenants/default", {"idle_cpu_minutes": None})
    assert look(job, NOW + minutes(60)).idle_warned is None
    assert Job.objects.get().state == "running"


def test_the_next_attempt_is_not_warned_for_the_one_before(running, policy):
    job = running(retries=1)
    used(job, samples(1, 31, cpu=0.0))
    look(job)
    lifecycle.end_attempt(job.pk, job.run_name, "x", by="test")
    assert look(job, NOW + minutes(15)).idle_warned is None


def test_what_a_script_writes_about_itself_is_not_believed(running, policy):
    job = running()
    used(job, samples(1, 31, cpu=0.0))
    forged(job, samples(1, 31, cpu=1.0))
    assert look(job).idle_warned == NOW


@pytest.mark.parametrize("wrong", [{"idle_gpu_minutes": 0}, {"idle_cpu_percent": 101}, {"idle_grace_minutes": None}])
def test_a_policy_out_of_range_is_refused(as_staff, as_alice, wrong):
    assert next(iter(wrong)) in as_staff.refused("put", "tenants/default", wrong)
    assert "administrators" in as_alice.refused("put", "tenants/default", {"idle_gpu_minutes": 5})
    assert Tenant.objects.get(name="default").idle_gpu_minutes is None


@pytest.mark.long
def test_the_shims_own_samples_are_read(submit, until, policy):
    job = until(submit("import time\ntime.sleep(600)"), "running")
    lasted = wait_for(lambda: idle.idle_for(job, "cpu", 50, timezone.now()))
    assert lasted >= 1
