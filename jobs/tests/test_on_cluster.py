"""The life cycle of a job on Kubernetes (MLP_RUNNER=kubernetes), on the runner tests' fake cluster."""

from __future__ import annotations

import pytest

import runners
from accounts.models import Share
from datasets.tests.test_buckets import bucket, objects, remote  # noqa: F401 (fixtures)
from datasets.tests.test_external import external  # noqa: F401
from jobs import reconcile
from jobs.models import Job
from kernel import storage
from kernel.tests.nats_tools import until as wait_for
from mlp.tests.page_world import visitor
from operations.backup.tests.conftest import s3  # noqa: F401
from runners.tests.on_cluster import platform_on_cluster
from runners.tests.test_kubernetes_check import node

from .checkpoints import CONTINUES

pytestmark = pytest.mark.django_db(transaction=True)
IMAGE = "registry.test/python:1"


@pytest.fixture
def cluster(settings, tmp_path):
    settings.RUN_GATEWAY_URL = "http://10.0.0.7:30001"
    with platform_on_cluster(settings, tmp_path, images={"python": IMAGE}, start_timeout_s=1) as fake:
        yield fake


SCRIPT = """
import os, sys, mlp_report
print(sys.argv[1:], os.environ["MLP_API_URL"], os.environ["MLP_WORKSPACE"] == os.getcwd())
os.makedirs("ckpt", exist_ok=True)
open("ckpt/model.pt", "w").write("weights")
"""


def test_a_job_runs_to_its_end(cluster, as_alice, submit, until):
    job = until(submit(SCRIPT, args=["--epochs", "3"]), "finished")
    log = as_alice.call("get", "users/alice/jobs/fit/log").content.decode()
    assert log == "['--epochs', '3'] http://10.0.0.7:30001 True\n"
    assert (storage.job_dir("alice", "fit") / "ckpt/model.pt").read_text() == "weights"
    assert job.progress == 100
    assert cluster.store.list("jobs") == []


def test_a_pod_mounts_the_files_of_a_dataset_that_stays_in_a_bucket(cluster, external, submit, until):  # noqa: F811
    """They are in the shared storage when it starts, and the pod has no key of the bucket."""
    external({"a.csv": b"1", "deep/b c.txt": b"2"})
    until(submit("import time\ntime.sleep(600)", datasets=["cats"]), "running", clean=False)
    (found,) = cluster.store.list("jobs")
    (mount,) = [
        each
        for each in found["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        if each["mountPath"] == "/datasets/cats"
    ]
    assert mount["readOnly"]
    assert (storage.root() / mount["subPath"] / "deep" / "b c.txt").read_bytes() == b"2"
    assert "the-secret" not in str(cluster.store.list("jobs") + cluster.store.list("secrets"))


def test_a_failing_script_has_a_reason(cluster, submit, until):
    job = until(submit("raise ValueError('the data is odd')"), "error")
    assert job.reason.startswith("exit code 1\n")
    assert "the data is odd" in job.reason


def test_a_job_is_cancelled(cluster, as_alice, submit, until):
    job = submit("import time\nopen('begun', 'w')\ntime.sleep(600)")
    until(job, "running", clean=False)
    assert as_alice.call("put", "users/alice/jobs/fit:cancel").status_code == 200
    assert until(job, "error").reason == "cancelled"
    assert not cluster.node.processes


def test_a_job_whose_pod_waits_for_a_node_is_not_running_and_says_why(cluster, as_alice, submit, until, tasks):
    cluster.store.create("nodes", node("node-1", "8", "64Gi"))
    cluster.node.capacity["cpu"] = "0"  # another tenant of the cluster has it
    job = submit("print('mine')")
    wait_for(lambda: (tasks.run(), reconcile.run(), Job.objects.get(pk=job.pk).reason)[-1])
    told = as_alice.call("get", "users/alice/jobs/fit").json()
    assert told["state"] == "creating"
    assert told["reason"].startswith("waiting to start: no node has room for it: 0/1 nodes are available")
    page = visitor(job.user).get("/jobs/fit").text
    assert "waiting to start: no node has room for it" in page
    cluster.node.capacity["cpu"] = "8"
    done = until(job, "finished")
    assert (done.reason, done.attempt) == ("", 1)


@pytest.mark.long
def test_a_job_that_waits_for_a_node_is_cancelled(cluster, as_alice, submit, until, tasks):
    cluster.node.capacity["cpu"] = "0"
    job = submit("print('mine')")
    wait_for(lambda: (tasks.run(), reconcile.run(), Job.objects.get(pk=job.pk).reason)[-1])
    assert as_alice.call("put", "users/alice/jobs/fit:cancel").status_code == 200
    assert until(job, "error").reason == "cancelled"
    assert cluster.store.list("jobs") == []


@pytest.mark.long
def test_a_preemptible_job_steps_back_and_continues(cluster, settings, submit, until):
    settings.PREEMPT_WAIT_S = 0
    long = submit(CONTINUES, name="long", cpu=8, preemptible=True)
    until(long, "running", clean=False)
    wait_for((storage.job_dir("alice", "long") / "at-two").exists)
    short = submit("print('short')", name="short", cpu=8)
    until(short, "finished")
    until(long, "finished")
    assert (long.attempt, long.preemptions) == (2, 1)
    log = (storage.job_dir("alice", "long") / "log" / "job.log").read_text()
    assert "run 2 preempted 1 from 2" in log
    assert cluster.store.list("jobs") == []
    long.tenant.refresh_from_db()
    assert long.tenant.cpu_inuse == 0


@pytest.mark.long
def test_a_job_without_its_image_is_an_error_with_the_reason(cluster, submit, until):
    cluster.node.bad_images[IMAGE] = ("ErrImagePull", "pull access denied")
    reason = until(submit("print(1)"), "error").reason
    assert reason.startswith(f"could not start: its image cannot be pulled ({IMAGE}): pull access denied")


def test_a_runtime_without_an_image_is_an_error_at_once(cluster, submit, until):
    reason = until(submit("print(1)", runtime="torch"), "error").reason
    assert reason == "could not be started: runtime torch: no image; set MLP_K8S_IMAGE_TORCH"


def test_the_job_token_is_in_a_secret_that_is_deleted_with_the_run(cluster, submit, until):
    job = submit("import time; time.sleep(600)")
    until(job, "running", clean=False)
    (secret,) = cluster.store.list("secrets")
    assert set(secret["data"]) >= {"MLP_TOKEN", "MLP_USER", "MLP_JOB"}
    assert not any("DATABASE" in key or "REDIS" in key for key in secret["data"])
    runners.get().stop(Job.objects.get(pk=job.pk).run_name, 0)
    until(job, "error")
    assert cluster.store.list("secrets") == []


def test_workers_train_together_and_all_count_as_usage(cluster, as_alice, submit, until):
    script = "import os\nopen('rank-' + os.environ['RANK'], 'w').write(os.environ['WORLD_SIZE'])"
    job = submit(script, workers=3, cpu=0.2, ram=100)
    tenant = job.tenant
    assert (float(tenant.cpu_inuse), tenant.ram_inuse) == (pytest.approx(0.6), 300)
    until(job, "finished")
    folder = storage.job_dir("alice", "fit")
    assert {path.name: path.read_text() for path in folder.glob("rank-*")} == {f"rank-{n}": "3" for n in range(3)}
    tenant.refresh_from_db()
    assert (float(tenant.cpu_inuse), tenant.ram_inuse) == (0, 0)
    assert as_alice.call("get", "users/alice/jobs/fit").json()["workers"] == 3


@pytest.mark.long
def test_the_reason_has_the_lines_of_the_worker_that_failed(cluster, submit, until):
    script = "import os, sys, time\nrank = os.environ['RANK']\nprint('I am', rank)\n"
    script += "sys.exit(3) if rank == '1' else time.sleep(600)"
    job = until(submit(script, workers=2, cpu=0.2, ram=100), "error")
    assert "worker 1: exit code 3" in job.reason
    assert "I am 1" in job.reason
    assert "I am 0" not in job.reason


@pytest.mark.long
def test_the_log_of_each_worker_is_read(cluster, as_alice, submit, until, alice, bob):
    script = "import os\nprint('I am', os.environ['RANK'])\nif os.environ['RANK'] == '1': print('ERROR: disk full')"
    job = until(submit(script, workers=3, cpu=0.2, ram=100), "finished")
    mine, log = visitor(alice), "users/alice/jobs/fit/log"
    for worker in range(3):
        lines = as_alice.call("get", f"{log}/lines?worker={worker}").json()
        assert lines["rows"][0]["text"] == f"I am {worker}"
        assert as_alice.call("get", f"{log}?worker={worker}").content.startswith(f"I am {worker}\n".encode())
        page = mine.get(f"/jobs/fit/log?worker={worker}")
        assert f"I am {worker}" in page.text
        assert ('data-worker="' in page.text) == (worker > 0)
        saved = mine.get(f"/jobs/fit/log/download?worker={worker}")
        assert b"".join(saved.streaming_content).startswith(f"I am {worker}\n".encode())
    assert as_alice.call("get", f"{log}/search?worker=1&errors=1").json()["lines"] == [2]
    assert as_alice.call("get", f"{log}/search?errors=1").json()["lines"] == []
    assert "worker: no worker of this number" in as_alice.refused("get", f"{log}/lines?worker=3")
    assert as_alice.refused("get", f"{log}?worker=x").startswith("worker:")
    for wrong in ("3", "x", "-1", "%00", "9" * 99):
        assert mine.get(f"/jobs/fit/log?worker={wrong}").status_code == 404
    assert visitor(bob).get("/u/alice/jobs/fit/log?worker=1").status_code == 404
    Share.objects.create(owner=alice, kind="job", object_id=job.pk, name="fit", audience="user", user=bob)
    assert "I am 1" in visitor(bob).get("/u/alice/jobs/fit/log?worker=1").text


def test_several_workers_are_refused_where_the_runner_supports_one(as_alice, script, monkeypatch):
    monkeypatch.setattr(type(runners.get()), "many_workers", False)
    fields = {"name": "fit", "entry": script("print(1)"), "workers": 2}
    answer = as_alice.call("post", "users/alice/jobs", fields)
    assert (answer.status_code, answer.json()) == (
        403,
        {"msg": "workers: must be 1: this platform does not run jobs with more than one worker"},
    )
