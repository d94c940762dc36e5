"""Outputs of other jobs as inputs: checked when the job is submitted, seen by its run, told when they are gone."""

from __future__ import annotations

import shutil

import pytest

from jobs import environment, launching
from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks", "home")]

JOB = {"name": "train", "entry": "train.py", "cpu": 0.1, "ram": 100}


@pytest.fixture
def prepared(alice):
    put(Job, alice, "prepare", "finished")
    folder = storage.job_dir("alice", "prepare") / "data"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("1,2\n")
    return folder


def test_a_run_gets_the_output_of_another_job(prepared, as_alice):
    made = as_alice.call("post", "users/alice/jobs", {**JOB, "inputs": {"DATA": "prepare/data", "ALL": "prepare"}})
    assert (made.status_code, made.json()["inputs"]) == (201, {"DATA": "prepare/data", "ALL": "prepare"})
    job = Job.objects.select_related("user", "snapshot").get(name="train")
    job.run_name = "job-1-1"
    spec = environment.run_spec(job, job.user)
    place = next(mount for mount in spec.mounts if mount.source == prepared)
    assert spec.environment["MLP_INPUT_DATA"] in (str(place.source), place.target)
    assert {"MLP_INPUT_DATA", "MLP_INPUT_ALL"} <= spec.environment.keys()


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ({"DATA": "none"}, "inputs.DATA: you have no finished job named none"),
        ({"DATA": "prepare/none"}, "inputs.DATA: the job has no output prepare/none"),
        ({"DATA": "prepare/../../bob"}, ""),
        ({"DATA": "Prepare"}, "inputs"),
        ({"data": "prepare"}, "inputs"),
        ({"DATA": 1}, "inputs"),
        ([], "inputs: must be an object"),
    ],
)
def test_what_is_wrong_is_named(prepared, as_alice, inputs, problem):
    assert as_alice.refused("post", "users/alice/jobs", {**JOB, "inputs": inputs}).startswith(problem)
    assert not Job.objects.filter(name="train").exists()


def test_nobody_reads_what_others_have_made(prepared, as_bob):
    storage.home_dir("bob").mkdir(parents=True, exist_ok=True)
    (storage.home_dir("bob") / "train.py").write_text("print(1)")
    refusal = as_bob.refused("post", "users/bob/jobs", {**JOB, "inputs": {"DATA": "prepare"}})
    assert refusal == "inputs.DATA: you have no finished job named prepare"


def test_a_link_in_the_output_is_not_followed(prepared, as_alice):
    (prepared.parent / "etc").symlink_to("/etc")
    as_alice.refused("post", "users/alice/jobs", {**JOB, "inputs": {"DATA": "prepare/etc"}})


def test_a_job_whose_input_is_gone_fails_and_says_so(prepared, as_alice):
    as_alice.call("post", "users/alice/jobs", {**JOB, "inputs": {"DATA": "prepare/data"}})
    shutil.rmtree(prepared)
    job = Job.objects.get(name="train")
    launching.launch(job.pk)
    job.refresh_from_db()
    assert (job.state, job.reason) == ("error", "its input prepare/data is not there any more")


def test_a_rerun_has_the_same_inputs(prepared, as_alice):
    as_alice.call("post", "users/alice/jobs", {**JOB, "inputs": {"DATA": "prepare"}})
    again = as_alice.call("post", "users/alice/jobs/train:rerun", {})
    assert again.json()["inputs"] == {"DATA": "prepare"}, again.content
