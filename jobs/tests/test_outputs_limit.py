"""What the folders of a user's jobs take on the disk is limited: who is over the limit submits nothing, queued jobs
wait, and those that write on are ended.
"""

from __future__ import annotations

import json
import os

import pytest
from django.utils import timezone
from django.utils.text import capfirst

import runners
from jobs import lifecycle, sizes
from jobs.artifacts import files, outputs, space
from jobs.models import Job
from kernel import disk_usage, storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visitor
from resources import limits

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]

MIB = 1 << 20
OVER = "the files of your jobs and workspaces take 2 MiB of the disk, and the limit is 1 MiB"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(outputs, "FRESH_S", -1.0)
    sizes._within.clear()


@pytest.fixture
def full(alice, settings):
    """A finished job of alice's that has left 2 MiB, of which she may have 1."""
    settings.OUTPUTS_LIMIT_MIB = 1
    job = put(Job, alice, "old", "finished")
    written(job, "out", 2 * MIB)
    sizes.measure(timezone.now())
    return job


def written(job: Job, name: str, size: int) -> None:
    folder = storage.job_dir(job.user.username, job.name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(os.urandom(size))


def running(alice, home, name: str) -> Job:
    """Return a job of alice's whose run has begun."""
    (home / "train.py").write_text("pass")
    job = lifecycle.create_job(user=alice, name=name, entry="train.py", by="test")
    lifecycle.order_run(job.pk)
    lifecycle.note_start(job.pk, f"job-{job.pk}-1")
    job.refresh_from_db()
    return job


def sampled(job: Job, mib: int) -> None:
    """Write what the job's run has written, as its shim does."""
    path = runners.get().usage_of(job.run_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({"after": 1.0, "disk": mib}) + "\n")


def test_nothing_is_submitted_until_jobs_are_deleted(full, alice, as_alice, as_bob, home):
    (home / "train.py").write_text("pass")
    body = {"name": "fit", "entry": "train.py"}
    refused = as_alice.refused("post", "users/alice/jobs", body)
    assert refused.startswith(OVER)
    assert "MLP_OUTPUTS_LIMIT_MIB" in refused
    assert "delete some" in refused
    assert as_alice.refused("post", "users/alice/jobs/old:rerun", {}).startswith(OVER)
    page = visitor(alice).post("/jobs", {**body, "cpu": 1, "ram": 100})
    assert capfirst(OVER) in page.content.decode()
    (storage.home_dir("bob") / "train.py").write_text("pass")
    assert as_bob.call("post", "users/bob/jobs", body).status_code == 201
    Job.objects.filter(pk=full.pk).delete()
    assert as_alice.call("post", "users/alice/jobs", body).status_code == 201


def test_jobs_of_schedules_and_sweeps_wait_with_the_reason(full, alice, as_alice, home):
    (home / "train.py").write_text("pass")
    lifecycle.create_job(user=alice, name="fit", entry="train.py", by="sweep")
    lifecycle.reserve_next()
    assert not Job.objects.get(name="fit").reserved
    assert as_alice.call("get", "users/alice/jobs/fit/queue").json()["reason"].startswith(OVER)
    limits.set_limit(tenant="default", user="alice", by="test", outputs=0)
    Job.objects.filter(pk=full.pk).delete()
    lifecycle.reserve_next()
    assert not Job.objects.get(name="fit").reserved
    limits.set_limit(tenant="default", user="alice", by="test", outputs=None)
    lifecycle.reserve_next()
    assert Job.objects.get(name="fit").reserved


def test_of_the_running_jobs_those_that_write_on_are_ended(alice, home, settings):
    settings.OUTPUTS_LIMIT_MIB = 100
    quiet, writing = running(alice, home, "quiet"), running(alice, home, "writing")
    sampled(quiet, 60)
    sizes.apply_limits(timezone.now(), often=True)
    sampled(writing, 90)
    sizes.apply_limits(timezone.now(), often=True)
    quiet.refresh_from_db()
    writing.refresh_from_db()
    assert (quiet.state, writing.state) == ("running", "error")
    assert "take 150 MiB of the disk, and the limit is 100 MiB" in writing.reason
    assert outputs.usage_of([alice.pk])[alice.pk] >= 150 * MIB  # until its folder is counted


def test_a_job_that_ran_before_is_not_ended_for_what_it_had_written(alice, home, settings):
    job = running(alice, home, "old")
    sampled(job, 60)
    before = timezone.now() - 2 * sizes.AGAIN_AFTER
    Job.objects.filter(pk=job.pk).update(output_bytes=60 * MIB, started=before)
    settings.OUTPUTS_LIMIT_MIB = 10
    sizes.apply_limits(timezone.now(), often=True)
    job.refresh_from_db()
    assert job.state == "running"
    sampled(job, 62)
    sizes.apply_limits(timezone.now(), often=True)
    job.refresh_from_db()
    assert job.state == "error"


def test_artifacts_count_and_are_refused(alice, full, settings, tmp_path):
    settings.OUTPUTS_LIMIT_MIB = 4
    run = put(Job, alice, "logged", "finished")
    (tmp_path / "model").write_bytes(bytes(2 * MIB))
    files.put(run, "model", tmp_path / "model")
    with pytest.raises(space.NoRoom, match="take 4 MiB of the disk, and the limit is 4 MiB"):
        space.require(run, 1)
    sizes.measure(timezone.now())
    assert outputs.usage_of([alice.pk])[alice.pk] >= 4 * MIB
    (tmp_path / "more").write_bytes(b"x")
    with pytest.raises(space.NoRoom):
        files.put(run, "more", tmp_path / "more")


def test_a_folder_is_counted_whatever_its_script_made_of_it(tmp_path):
    (tmp_path / "one").write_bytes(b"x" * 3 * MIB)
    os.link(tmp_path / "one", tmp_path / "two")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    os.symlink("/usr", tmp_path / "link")
    deep = tmp_path
    for _ in range(150):
        deep = deep / "d"
        deep.mkdir()
    (deep / "hidden").write_bytes(b"x" * 2 * MIB)
    (tmp_path / "d").chmod(0)
    assert 5 * MIB <= disk_usage.of_folder(tmp_path) < 6.5 * MIB
    assert disk_usage.of_folder(tmp_path / "none") == 0
