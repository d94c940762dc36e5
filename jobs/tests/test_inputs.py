"""Outputs of other jobs as inputs: checked when the job is submitted, seen by its run, told when they are gone."""

from __future__ import annotations

import shutil

import pytest

import runners
from jobs import environment, launching, reconcile
from jobs.artifacts.inputs import gone_input
from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put
from runners.tests.helpers import eventually, spec

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
    response = as_alice.call("post", "users/alice/jobs", {**JOB, "inputs": {"DATA": "prepare/data", "ALL": "prepare"}})
    assert (response.status_code, response.json()["inputs"]) == (201, {"DATA": "prepare/data", "ALL": "prepare"})
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


@pytest.fixture
def ending(prepared):
    """The job that has reported its end, while its program goes on until there is a file `end` in its output."""
    job = Job.objects.get(name="prepare")
    folder, code = prepared.parent, "import os, time\nwhile not os.path.exists('end'): time.sleep(0.01)"
    Job.objects.filter(pk=job.pk).update(run_name=f"job-{job.pk}-1")
    runners.get().start(spec(folder, code, f"job-{job.pk}-1", cwd=folder, log=folder / "log/job.log"))
    yield folder
    runners.get().stop_all(grace=0)


def test_a_job_waits_until_the_program_that_wrote_its_input_has_ended(ending, as_alice, tasks, home):
    (home / "train.py").write_text("import os; print(open(os.environ['MLP_INPUT_DATA'] + '/a.csv').read())")
    as_alice.call("post", "users/alice/jobs", {**JOB, "inputs": {"DATA": "prepare/data"}})
    for _ in range(2):
        tasks.run()
        reconcile.run()
    job = Job.objects.get(name="train")
    assert (job.state, runners.get().poll(job.run_name).state) == ("creating", "unknown")
    assert job.reason == "waiting to start: the job prepare, whose output it reads, has not exited yet"
    (ending / "data" / "a.csv").write_text("the last words")
    (ending / "end").touch()

    def started() -> bool:
        """Whether it has started by the other job's end alone, without a round of reconcile."""
        launching.clean(Job.objects.get(name="prepare").pk, follow=False)
        tasks.run()
        return Job.objects.get(name="train").run_started

    eventually(started)

    def ended() -> bool:
        tasks.run()
        reconcile.run()
        return Job.objects.get(name="train").has_ended

    eventually(ended)
    job.refresh_from_db()
    assert (job.state, job.reason) == ("finished", "")
    assert "the last words" in (storage.job_dir("alice", "train") / "log" / "job.log").read_text()


def test_a_job_does_not_read_what_another_job_of_that_name_is_writing(prepared, as_alice, alice):
    as_alice.call("post", "users/alice/jobs", {**JOB, "inputs": {"DATA": "prepare/data"}})
    Job.objects.filter(name="prepare").delete()
    other = put(Job, alice, "prepare", "running")
    job = Job.objects.get(name="train")
    Job.objects.filter(pk=other.pk).update(origin="client")
    assert gone_input(job) == ""  # a client has no processes here, and may go on with its run
    Job.objects.filter(pk=other.pk).update(origin="job")
    launching.launch(job.pk)
    job.refresh_from_db()
    assert (job.state, job.reason) == ("error", "its input prepare/data is not there any more")
