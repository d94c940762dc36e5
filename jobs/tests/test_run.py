"""The life cycle of a job on the real local runner."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from django.utils import timezone

import runners
from jobs import launching, lifecycle
from jobs.auth import job_token
from jobs.environment import ALONE
from jobs.models import Job
from jobs.reconcile import run as reconcile_once
from kernel import storage
from kernel.models import StateChange
from mlp.management.commands import reconcile as rounds
from mlp.management.commands.reconcile import Pause
from mlp.tests.patience import LIMIT_S, rest
from mlp.tests.tiers import few
from resources import tcc
from resources.models import Tenant
from runners.tests.helpers import eventually

pytestmark = pytest.mark.django_db(transaction=True)

SLEEP = "import time\nwhile True: time.sleep(0.05)"


def in_use() -> dict:
    tenant = Tenant.objects.get(name="default")
    assert {kind: getattr(tenant, f"{kind}_inuse") for kind in tcc.KINDS} == tcc.allocated(tenant)
    return {"cpu": float(tenant.cpu_inuse), "gpu": tenant.gpu_inuse, "ram": tenant.ram_inuse}


NOTHING = {"cpu": 0.0, "gpu": 0, "ram": 0}


def test_it_runs_to_its_end_and_releases_its_resources(as_alice, submit, until):
    job = submit("print('hello from the script')", cpu=0.5, ram=300)
    assert job.state == "creating"
    assert in_use() == {"cpu": 0.5, "gpu": 0, "ram": 300}
    until(job, "finished")
    assert job.progress == 100
    assert in_use() == NOTHING
    log = as_alice.call("get", "users/alice/jobs/fit/log")
    assert log.content == b"hello from the script\n"
    assert log["X-Next-Offset"] == str(len(log.content))
    assert as_alice.call("get", "users/alice/jobs/fit/log?offset=6").content == b"from the script\n"
    rows = StateChange.objects.filter(kind="job", name="fit").order_by("id")
    assert [row.target for row in rows] == ["creating", "running", "finished"]


def test_every_message_may_be_delivered_twice(tasks, submit, until):
    job = submit("print('once')")
    tasks.run(times=2)
    until(job, "finished")
    tasks.run(times=2)
    assert (storage.job_dir("alice", "fit") / "log" / "job.log").read_text() == "once\n"
    assert in_use() == NOTHING


@pytest.mark.long
def test_every_message_may_be_lost(tasks, submit, settings, monkeypatch):
    job = submit("print('found again')")
    tasks.queue.clear()
    monkeypatch.setattr("jobs.reconcile.AGAIN_AFTER", timedelta(0))

    def over() -> bool:
        reconcile_once()
        tasks.run()
        job.refresh_from_db()
        return job.state == "finished" and not job.run_name

    eventually(over)
    assert in_use() == NOTHING


def test_a_job_ends_with_its_run_and_not_with_the_next_round(tasks, submit, monkeypatch):
    job, pause = submit(), Pause()
    ended = SimpleNamespace(is_set=lambda: Job.objects.get(pk=job.pk).state == "finished")
    for name in ("SHORTEST_S", "ROUND_S"):
        monkeypatch.setattr(rounds, name, float(LIMIT_S))
    with runners.get().watch(pause.changed.set, pause.ended.append):
        tasks.run()
        assert pause.last(ended)
    assert ended.is_set()


def test_a_failing_script_is_an_error_with_its_last_lines(as_alice, submit, until):
    until(submit("raise ValueError('the data is odd')"), "error")
    job = as_alice.call("get", "users/alice/jobs/fit").json()
    assert "exit code 1" in job["reason"]
    assert job["exit_code"] == 1
    assert "ValueError: the data is odd" in job["reason"]
    assert in_use() == NOTHING


def test_a_killed_script_is_an_error_that_names_the_signal(submit, until):
    job = until(submit("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"), "error")
    assert "SIGKILL" in job.reason
    assert job.exit_code is None


@pytest.mark.long
def test_a_retry_continues_with_the_output_of_the_last_attempt(submit, until, monkeypatch):
    monkeypatch.setattr("jobs.lifecycle.BACKOFF_S", (0,))
    text = (
        "import os, pathlib, sys\n"
        "seen = pathlib.Path('ckpt/seen')\n"
        "print(os.environ['MLP_ATTEMPT'], seen.exists())\n"
        "if not seen.exists(): seen.touch(); sys.exit(7)\n"
    )
    job = until(submit(text, retries=1), "finished")
    assert job.attempt == 2
    assert (storage.job_dir("alice", "fit") / "log" / "job.log").read_text() == "1 False\n2 True\n"


@pytest.mark.long
def test_without_retries_left_it_ends_in_error(submit, until, monkeypatch):
    monkeypatch.setattr("jobs.lifecycle.BACKOFF_S", (0,))
    job = until(submit("raise SystemExit(3)", retries=2), "error")
    assert (job.attempt, "exit code 3" in job.reason, job.exit_code) == (3, True, 3)


def test_cancel_ends_the_script(as_alice, submit, until):
    job = until(submit(SLEEP), "running")
    run_name = job.run_name
    response = as_alice.call("put", "users/alice/jobs/fit:cancel")
    assert (response.status_code, response.json()["state"], response.json()["reason"]) == (200, "error", "cancelled")
    until(job, "error")
    assert runners.get().poll(run_name).state == "unknown"
    assert in_use() == NOTHING


def test_a_waiting_job_can_be_cancelled(as_alice, submit, tasks):
    submit()
    as_alice.call("put", "users/alice/jobs/fit:cancel")
    tasks.run()
    assert in_use() == NOTHING


def test_delete_removes_files_and_row_but_not_the_history(as_alice, submit, until, tasks):
    until(submit(), "finished")
    assert as_alice.call("delete", "users/alice/jobs/fit").json()["state"] == "deleting"
    tasks.run()
    assert not Job.objects.exists()
    assert not storage.job_dir("alice", "fit").exists()
    assert StateChange.objects.filter(kind="job", name="fit", target="deleting").exists()
    as_alice.refused("get", "users/alice/jobs/fit")


@pytest.mark.parametrize("call", few([("delete", "fit"), ("put", "fit:cancel")], 1, names=1))
def test_delete_and_cancel_require_the_right_state(as_alice, submit, until, call):
    method, path = call
    state = "running" if method == "delete" else "finished"
    until(submit(SLEEP if state == "running" else "pass"), state)
    assert as_alice.refused(method, f"users/alice/jobs/{path}").startswith("state:")


def test_the_script_gets_the_contracts_environment_and_nothing_of_the_server(as_alice, submit, until, monkeypatch):
    monkeypatch.setenv("DATABASE_PASSWORD", "not for jobs")
    text = "import os, json, sys\nprint(json.dumps([dict(os.environ), os.getcwd(), sys.argv[1:]]))\nimport mlp_report"
    until(
        submit(text, env={"MINE": "yes", "PATH": "/evil", "PYTHONPATH": "/scripts/lib"}, args=["--epochs", "3"]),
        "finished",
    )
    environment, folder, args = json.loads(as_alice.call("get", "users/alice/jobs/fit/log").content)
    assert folder == environment["MLP_WORKSPACE"]
    assert folder == runners.get().place(storage.job_dir("alice", "fit"), "/workspace")
    assert args == ["--epochs", "3"]
    assert environment["MINE"] == "yes"
    assert environment["PYTHONPATH"].endswith(":/scripts/lib")
    assert (environment["MLP_USER"], environment["MLP_JOB"], environment["MLP_ATTEMPT"]) == ("alice", "fit", "1")
    allowed = {
        "PATH",
        "HOME",
        "LANG",
        "TZ",
        "PYTHONUNBUFFERED",
        "PYTHONPATH",
        "OMP_NUM_THREADS",
        "OMP_WAIT_POLICY",
        "LC_CTYPE",
        "MINE",
        "CUDA_VISIBLE_DEVICES",
        "KUBEFLOW_TRAINER_SERVER_URL",
        "KUBEFLOW_TRAINER_SERVER_TOKEN",
        "MLFLOW_TRACKING_URI",
        "MLFLOW_TRACKING_TOKEN",
        "MLFLOW_EXPERIMENT_ID",
        *ALONE,
    }
    proxies = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}  # of a run with a network of its own
    allowed |= proxies | {name.upper() for name in proxies}
    assert {key for key in environment if not key.startswith("MLP_")} <= allowed
    assert {environment[name] for name in ("RANK", "LOCAL_RANK")} == {"0"}, "as torchrun sets them"
    assert (environment["WORLD_SIZE"], environment["LOCAL_WORLD_SIZE"]) == ("1", "1")
    assert environment["MASTER_PORT"].isdigit()
    assert "/evil" not in environment["PATH"]
    assert "DATABASE_URL" not in environment


def test_the_job_token_is_valid_for_its_job_and_revoked_at_its_end(api, as_alice, submit, until):
    job = until(submit(SLEEP), "running")
    job_api = api(job_token(job))
    assert job_api.call("put", "users/alice/jobs/fit:heartbeat", {"state": "running", "progress": 7}).status_code == 200
    assert as_alice.call("get", "users/alice/jobs/fit").json()["progress"] == 7
    job_api.refused("get", "users/alice/jobs/fit")
    job_api.refused("put", "users/alice/jobs/fit:cancel")
    job_api.refused("get", "auth")
    submit(SLEEP, name="other")
    job_api.refused("put", "users/alice/jobs/other:heartbeat", {"state": "running", "progress": 7})
    as_alice.call("put", "users/alice/jobs/fit:cancel")
    assert "token" in job_api.refused("put", "users/alice/jobs/fit:heartbeat", {"state": "running", "progress": 9})


def test_deactivation_stops_running_jobs(as_alice, submit, until):
    job = until(submit(SLEEP), "running")
    as_alice.call("put", "users/alice")
    until(job, "error")
    assert "deactivated" in job.reason
    assert in_use() == NOTHING


def test_a_lost_run_ends_in_error_with_the_reason(submit, until):
    job = until(submit(SLEEP), "running")
    runners.get().stop(job.run_name, 0)
    while runners.get().poll(job.run_name).state == "running":
        pass
    runners.get().forget(job.run_name)
    assert "the run no longer exists" in until(job, "error").reason
    job.refresh_from_db()
    assert job.outcome == "lost"
    assert in_use() == NOTHING


@pytest.mark.long
def test_a_run_that_starts_while_its_job_is_cancelled_is_stopped(as_alice, submit, until, tasks, monkeypatch):
    """The cancellation and its clean-up happen between the order and the runner's start."""
    job = submit(SLEEP)
    runner, begin = runners.get(), runners.get().start

    def start(spec):
        as_alice.call("put", "users/alice/jobs/fit:cancel")
        launching.clean(job.pk)
        begin(spec)

    monkeypatch.setattr(runner, "start", start)
    launching.launch(job.pk)
    assert f"job-{job.pk}-1" in runner.names()  # it may have ended already: its code went with the clean-up
    until(job, "error")
    while runner.names():
        rest()
        reconcile_once()
    assert in_use() == NOTHING


@pytest.mark.parametrize("problem", few([ValueError("a null character"), runners.RunnerError("no room")], 1))
def test_a_job_that_cannot_be_started_ends_in_error(submit, until, monkeypatch, problem):
    def start(spec):
        raise problem

    monkeypatch.setattr(runners.get(), "start", start)
    monkeypatch.setattr("runners.owned.LAUNCH_PATIENCE_S", 0)
    job = until(submit(), "error")
    assert job.reason == f"could not be started: {problem}"
    assert in_use() == NOTHING


def test_artifacts_are_listed_and_downloaded_and_links_are_not_followed(as_alice, submit, until):
    text = "import os\nopen('ckpt/model.bin', 'wb').write(b'abc')\nos.symlink('/etc/passwd', 'leak')"
    text += "\nopen('page.html', 'w')"
    until(submit(text), "finished")
    paths = {row["path"]: row["size"] for row in as_alice.call("get", "users/alice/jobs/fit/artifacts").json()}
    assert paths["ckpt/model.bin"] == 3
    assert "leak" not in paths
    answer = as_alice.call("get", "users/alice/jobs/fit/artifacts/ckpt/model.bin")
    assert b"".join(answer.streaming_content) == b"abc"
    page = as_alice.call("get", "users/alice/jobs/fit/artifacts/page.html")
    assert page["Content-Type"] == answer["Content-Type"] == "application/octet-stream"
    for path in ("leak", "../../../secret-key", "%2e%2e/x", "none"):
        as_alice.refused("get", f"users/alice/jobs/fit/artifacts/{path}")


ODD = {r"two\x0alines": b"1", r"caf\xe9.txt": b"2", r"folder\x1b/in": b"3", r"back\x5cx0a": b"4", r"plain\slash": b"5"}


@pytest.mark.long
def test_artifacts_of_any_name_are_listed_and_downloaded(as_alice, client, alice, submit, until):
    """Names with control characters were listed and could not be fetched; those that are not UTF-8 were left out."""
    raw = [b"two\nlines", b"caf\xe9.txt", b"folder\x1b/in", rb"back\x0a", rb"plain\slash"]
    text = "import os\nos.mkdir(b'folder\\x1b')\n"
    for data, name in enumerate(raw, 1):
        text += f"open({name!r}, 'w').write('{data}')\n"
    until(submit(text), "finished")
    client.force_login(alice)
    paths = [row["path"] for row in as_alice.call("get", "users/alice/jobs/fit/artifacts").json()]
    assert set(ODD) <= set(paths)
    page = client.get("/jobs/fit").content.decode()
    for path, data in ODD.items():
        answer = as_alice.call("get", f"users/alice/jobs/fit/artifacts/{quote(path)}")
        assert b"".join(answer.streaming_content) == data
        assert path in page
        assert client.get(f"/jobs/fit/files/{quote(path)}").status_code == 200
    for path in (r"\x2e\x2e/\x2e\x2e/secret-key", r"ckpt\x2f", r"a\x00", "a\x1b"):
        as_alice.refused("get", f"users/alice/jobs/fit/artifacts/{quote(path)}")


@pytest.mark.long
def test_a_script_that_reports_its_end_and_does_nothing_more_is_stopped_before_its_grace_ends(
    submit, until, monkeypatch
):
    monkeypatch.setattr(launching, "REPORT_GRACE_S", 86_400)
    monkeypatch.setattr(launching, "QUIET_S", 2)
    job = submit("import time\nwhile True: time.sleep(1)")
    until(job, "running")
    lifecycle.heartbeat(user=job.user, name="fit", state="finished", progress=100, by="job")
    job.refresh_from_db()

    def free() -> bool:
        rest()
        launching.clean(job.pk, follow=False)
        return in_use() == NOTHING

    eventually(free)
    assert Job.objects.get(pk=job.pk).state == "finished"


def test_a_script_gets_no_longer_grace_when_the_clock_is_set_back(submit, until):
    job = submit("while True: pass")
    until(job, "running")
    lifecycle.heartbeat(user=job.user, name="fit", state="finished", progress=100, by="job")
    Job.objects.filter(pk=job.pk).update(ended=timezone.now() + timedelta(hours=1))
    launching.clean(job.pk, follow=False)
    eventually(lambda: (launching.clean(job.pk, follow=False), in_use())[1] == NOTHING)
    assert Job.objects.get(pk=job.pk).state == "finished"


@pytest.mark.long
def test_a_script_that_works_on_after_it_has_reported_its_end_may(submit, until):
    job = submit("import time\nend = time.time() + 9\nwhile time.time() < end: pass\nopen('saved', 'w').close()")
    until(job, "running")
    lifecycle.heartbeat(user=job.user, name="fit", state="finished", progress=100, by="job")

    def free() -> bool:
        rest()
        launching.clean(job.pk, follow=False)
        return in_use() == NOTHING

    eventually(free)
    assert (storage.job_dir("alice", "fit") / "saved").exists()


def test_only_the_named_datasets_are_available(as_alice, submit, until):
    for name in ("digits", "other"):
        as_alice.call("post", "users/alice/datasets", {"name": name, "size": 3})
        folder = storage.dataset_dir("alice", name)
        folder.mkdir(parents=True)
        (folder / "x.txt").write_text("abc")
        as_alice.call("put", f"users/alice/datasets/{name}:heartbeat", {"state": "ready", "progress": 100})
    text = "import os\nd = os.environ['MLP_DATASETS']\nprint(os.listdir(d), open(d + '/digits/x.txt').read())"
    until(submit(text, datasets=["digits"]), "finished")
    assert as_alice.call("get", "users/alice/jobs/fit/log").content == b"['digits'] abc\n"


class TestQueue:
    def test_a_job_that_does_not_fit_now_is_queued(self, submit, until):
        first = until(submit(SLEEP, name="first", cpu=8), "running")
        second = submit("pass", name="second", cpu=1)
        until(first, "running")
        second.refresh_from_db()
        assert (second.state, second.reserved) == ("creating", False)
        first.user.refresh_from_db()
        lifecycle.cancel(user=first.user, name="first", by="alice")
        until(second, "finished")

    def test_a_job_that_can_never_fit_is_refused_at_once(self, as_alice, script):
        body = {"name": "big", "entry": script("pass"), "cpu": 10}
        assert as_alice.refused("post", "users/alice/jobs", body).startswith("cpu:")
        assert not Job.objects.exists()

    def test_the_queue_is_fair_between_users(self, submit, until, as_bob, tasks):
        first = until(submit(SLEEP, name="first", cpu=8), "running")
        for name in ("a", "b"):
            submit("pass", name=name, cpu=8)
        (storage.home_dir("bob") / "x.py").write_text("pass")
        as_bob.call("post", "users/bob/jobs", {"name": "theirs", "entry": "x.py", "cpu": 8})
        other = Job.objects.get(name="b")
        lifecycle.cancel(user=first.user, name="first", by="alice")
        until(other, "finished")
        order = StateChange.objects.filter(kind="job", target="running").order_by("id").values_list("name", flat=True)
        assert list(order) == ["first", "theirs", "a", "b"]
