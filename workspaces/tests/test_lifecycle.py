"""Workspaces are created, stopped, started and deleted over REST; their runs are real ones of a stand-in."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

import runners
from accounts.models import Notice
from datasets.models import Dataset
from jobs.models import Job
from kernel import storage
from kernel.messages import Message, translate
from kernel.tests.nats_tools import until as until_done
from mlp.operators.tests.admin_world import put
from models_app.models import Model
from resources import tcc
from runners import RunSpec
from workspaces import launching, place, reconcile
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice_page_client(alice):
    client = Client()
    client.force_login(alice)
    return client


def call(as_alice, row: Workspace, verb: str):
    return as_alice.call("put", f"users/alice/workspaces/{row.name}:{verb}")


def test_it_keeps_its_files_when_it_is_stopped_and_started_again(service, create, settle, as_alice, until, visitor,
                                                                 alice):  # fmt: skip
    row = settle(create(title="My lab"))
    assert place.spec_of(row).purpose == "workspace"
    shown = as_alice.call("get", f"users/alice/workspaces/{row.name}").json()
    assert (shown["state"], shown["title"], shown["queued"], shown["url"].endswith(f"/alice/{row.name}/lab")) == (
        "ready", "My lab", False, True)  # fmt: skip
    (place.folder(row) / "home" / "kept.ipynb").write_text("{}")
    before = row.run_name
    assert call(as_alice, row, "stop").json()["state"] == "stopping"
    settle(row, "stopped")
    assert (row.run_name, row.reserved) == ("", False)
    assert runners.get().poll(before).state == "unknown"
    assert call(as_alice, row, "stop").status_code == 403
    assert call(as_alice, row, "start").json()["state"] == "creating"
    settle(row)
    assert row.run_name != before
    mine = visitor(alice)
    mine.page(f"/alice/{row.name}/lab")
    assert "kept.ipynb" in mine.at(f"/alice/{row.name}/home").json()["files"]
    assert as_alice.call("delete", f"users/alice/workspaces/{row.name}").status_code == 403  # it runs
    call(as_alice, row, "stop")
    settle(row, "stopped")
    assert as_alice.call("delete", f"users/alice/workspaces/{row.name}").status_code == 200
    until(lambda: not Workspace.objects.exists())
    assert not (storage.root() / "workspaces" / "alice" / row.name).exists()


def answered(visitor, row: Workspace, path: str, method: str = "GET", **options) -> dict:
    """Let the program in a workspace do something, by the browser of its owner."""
    answer = visitor.at(f"/alice/{row.name}/{path}", method, headers={"Origin": visitor.origin}, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()


def used_last(visitor, row: Workspace, minutes_ago: float, busy: bool = False) -> None:
    """Have the program write that it was used last so long ago."""
    last = (timezone.now() - timedelta(minutes=minutes_ago)).timestamp()
    answered(visitor, row, "write/activity", "PUT", data=json.dumps({"busy": busy, "last": last}))
    Workspace.objects.filter(pk=row.pk).update(active=timezone.now() - timedelta(minutes=minutes_ago))


def test_an_idle_one_is_stopped_after_a_warning_and_a_busy_one_is_not(service, create, settle, until, as_alice, alice,
                                                                      visitor, alice_page_client):  # fmt: skip
    row = settle(create(idle_minutes=30))
    mine = visitor(alice)
    mine.page(f"/alice/{row.name}/lab")
    used_last(mine, row, 300, busy=True)
    until(lambda: Workspace.objects.get(pk=row.pk).busy)
    assert Workspace.objects.get(pk=row.pk).stops is None
    used_last(mine, row, 31)

    def warned() -> bool:
        return Workspace.objects.get(pk=row.pk).stops is not None

    until(warned)
    notice = Notice.objects.get(user=alice, kind="workspace")
    assert (notice.event, "30 min" in str(translate(notice.reason))) == ("idle", True)
    page = alice_page_client.get(f"/workspaces/{row.name}").content.decode()
    assert "Keep it running" in page
    assert f'href="/workspaces/{row.name}"' in alice_page_client.get("/notifications").content.decode()
    # Used again, or kept by a click, it goes on.
    used_last(mine, row, 0)
    until(lambda: not warned())
    used_last(mine, row, 31)
    until(warned)
    alice_page_client.post(f"/workspaces/{row.name}/change", {"do": "keep"})
    assert not warned()
    reconcile.run()
    assert not warned()
    # Else it is stopped, and keeps its files.
    used_last(mine, row, 41)
    settle(row, "stopped")
    assert "idle" in str(translate(row.reason))
    assert (place.folder(row) / "home").is_dir()


@pytest.mark.long
def test_a_limit_of_hours_stops_one_that_is_busy(service, create, settle, until, alice, visitor, settings, as_alice):
    settings.WORKSPACE_HOURS = 4
    refused = as_alice.call("post", "users/alice/workspaces", {"name": "long", "cpu": 0.1, "ram": 400, "hours": 5})
    assert (refused.status_code, refused.json()["msg"]) == (403, "hours: at most 4")
    row = settle(create(hours=2))
    Workspace.objects.filter(pk=row.pk).update(ready_since=timezone.now() - timedelta(minutes=115))
    until(lambda: Workspace.objects.get(pk=row.pk).stops is not None)
    assert call(as_alice, row, "keep").json()["stops"]
    Workspace.objects.filter(pk=row.pk).update(ready_since=timezone.now() - timedelta(hours=2), stops=timezone.now())
    settle(row, "stopped")
    assert "2 h" in str(translate(row.reason))


@pytest.mark.long
def test_a_tenants_policy_counts_for_those_that_run(service, create, settle, until, as_alice, as_staff, alice, visitor,
                                                    settings):  # fmt: skip
    settings.WORKSPACE_IDLE_MINUTES = 60
    row = settle(create(idle_minutes=50))
    policy = {"workspace_idle_minutes": 20, "workspace_hours": 7}
    assert as_staff.call("put", "tenants/default", policy).status_code == 200
    shown = as_alice.call("get", f"users/alice/workspaces/{row.name}").json()
    assert (shown["idle_minutes"], shown["hours"]) == (20, 7)
    mine = visitor(alice)
    mine.page(f"/alice/{row.name}/lab")
    used_last(mine, row, 21)
    until(lambda: Workspace.objects.get(pk=row.pk).stops is not None)
    notice = Notice.objects.get(user=alice, kind="workspace")
    assert "idle for 20 min" in str(translate(notice.reason))
    for field, most in (("idle_minutes", 20), ("hours", 7)):
        new = {"name": "long", "cpu": 0.1, "ram": 400, field: most + 1}
        refused = as_alice.call("post", "users/alice/workspaces", new)
        assert (refused.status_code, refused.json()["msg"]) == (403, f"{field}: at most {most}")
    # No tenant goes beyond the platform.
    as_staff.call("put", "tenants/default", {"workspace_idle_minutes": 500, "workspace_hours": None})
    assert as_alice.call("get", f"users/alice/workspaces/{row.name}").json()["idle_minutes"] == 50


@pytest.mark.long
def test_a_tenant_without_workspaces_stops_them_and_keeps_their_files(service, create, settle, until, as_alice,
                                                                     as_staff, alice, alice_page_client):  # fmt: skip
    row = settle(create())
    assert as_staff.call("put", "tenants/default", {"allows_workspaces": False}).status_code == 200
    until(lambda: Workspace.objects.get(pk=row.pk).stops is not None)
    words = "workspaces are not allowed in the tenant default"
    notice = Notice.objects.get(user=alice, kind="workspace")
    assert words in str(translate(notice.reason))
    assert "Keep it running" not in alice_page_client.get(f"/workspaces/{row.name}").content.decode()
    Workspace.objects.filter(pk=row.pk).update(stops=timezone.now())
    settle(row, "stopped")
    assert (place.folder(row) / "home").is_dir()
    refused = as_alice.call("post", "users/alice/workspaces", {"name": "more", "cpu": 0.1, "ram": 400})
    assert (refused.status_code, refused.json()["msg"]) == (403, f"tenant: {words}")
    assert as_alice.call("put", f"users/alice/workspaces/{row.name}:start").json()["msg"] == f"tenant: {words}"
    as_staff.call("put", "tenants/default", {"allows_workspaces": True})
    call(as_alice, row, "start")
    settle(row)


def test_one_that_crashes_fails_and_one_that_is_ended_from_outside_starts_again(service, create, settle, until, alice,
                                                                               visitor, as_alice):  # fmt: skip
    row = settle(create())
    before = row.run_name
    runners.get().stop(before, 0)  # as the platform's end, or an administrator
    until(lambda: Workspace.objects.get(pk=row.pk).run_name not in ("", before))
    settle(row)
    mine = visitor(alice)
    mine.page(f"/alice/{row.name}/lab")
    mine.at(f"/alice/{row.name}/end", "POST", headers={"Origin": mine.origin})
    settle(row, "error")
    assert "7" in str(translate(row.reason))
    assert not row.reserved
    assert as_alice.call("delete", f"users/alice/workspaces/{row.name}").status_code == 200


@pytest.mark.long
def test_without_free_resources_it_is_queued(service, create, settle, as_alice, alice, until):
    tcc.set_capacity(name="default", by="test", cpu=0.15, ram=1000, gpu=0)
    first, second = create(), create()
    shown = as_alice.call("get", f"users/alice/workspaces/{second.name}").json()
    assert (shown["state"], shown["queued"]) == ("creating", True)
    settle(first)
    call(as_alice, first, "stop")
    settle(second)
    refused = as_alice.call("post", "users/alice/workspaces", {"name": "big", "cpu": 8, "ram": 400})
    assert refused.status_code == 403


def test_it_reads_its_datasets_and_its_model_and_opens_a_job(service, create, settle, alice, bob, visitor, as_alice):
    for owner, name in ((alice, "digits"), (bob, "secret")):
        Dataset.objects.create(user=owner, tenant=owner.tenant, name=name, size=2, stored=2, state="ready")
        folder = storage.dataset_dir(owner.username, name)
        folder.mkdir(parents=True)
        (folder / "one.csv").write_text("1")
    job = Job.objects.create(user=alice, tenant=alice.tenant, name="fit", entry="sub/train.py", state="error",
                             args=["--lr", "a b"], env={"SHAPE": "wide"}, cpu=0.1, ram=100,
                             datasets=["digits"])  # fmt: skip
    (storage.home_dir("alice") / "sub").mkdir()
    (storage.home_dir("alice") / "sub" / "train.py").write_text("raise SystemExit(1)")
    output = storage.job_dir("alice", "fit")
    output.mkdir(parents=True)
    (output / "model.txt").write_text("weights")
    body = {"cpu": 0.1, "ram": 400}
    for owner, name in ((alice, "net"), (bob, "other")):
        put(Model, owner, name, "error")
        (storage.model_dir(owner.username, name) / "part").mkdir(parents=True)
        (storage.model_dir(owner.username, name) / "part" / "a.txt").write_text("layers")
    for fields in ({"datasets": ["nothing"]}, {"datasets": ["bob/secret"]}, {"job": "nothing"}, {"model": "other"}):
        refused = as_alice.call("post", "users/alice/workspaces", {"name": "x", **body, **fields})
        assert refused.status_code == 403, refused.content
    row = settle(create(job=job.name, model="net"))
    mine = visitor(alice)
    mine.page(f"/alice/{row.name}/lab")
    found = answered(mine, row, "home")
    files, variables = found["files"], found["variables"]
    assert files["datasets/digits/one.csv"] == "1"
    assert files["model-net/part/a.txt"] == "layers"
    assert files["job-fit/code/sub/train.py"] == "raise SystemExit(1)"
    assert files["job-fit/output/model.txt"] == "weights"
    assert files["job-fit/run.sh"].endswith("exec python -u code/sub/train.py --lr 'a b'\n")
    assert (variables["SHAPE"], variables["MLP_USER"]) == ("wide", "alice")
    assert {"MLP_API_URL", "MLFLOW_TRACKING_URI"} <= variables.keys()
    assert not [name for name, text in variables.items() if "mlp_" in text or name == "MLP_TOKEN"]
    own = {"Origin": mine.origin}
    for path in ("datasets/digits/one.csv", "job-fit/output/model.txt", "model-net/part/a.txt"):
        assert mine.at(f"/alice/{row.name}/write/{path}", "PUT", data="x", headers=own).status_code == 409
    assert mine.at(f"/alice/{row.name}/write/output/new.txt", "PUT", data="x", headers=own).status_code == 200
    assert (place.folder(row) / "output" / "new.txt").read_text() == "x"


def test_another_job_of_the_machine_reaches_neither_its_files_nor_its_socket(service, create, settle, bob, tasks):
    row = settle(create())
    seen = storage.root() / "jobs" / "seen"
    seen.mkdir(parents=True)
    program = f"""
import glob, os, socket
for path in ({str(place.folder(row))!r}, {str(storage.root())!r} + "/workspaces"):
    print("files", os.path.exists(path))
link = socket.socket(socket.AF_UNIX)
try:
    link.connect({row.address.removeprefix("unix:")!r})
    print("socket True")
except OSError:
    print("socket False")
"""
    runner = runners.get()
    spec = RunSpec(name="job-spy-1", command=[runner.python, "-c", program], cwd=seen, owner=bob.pk,
                   environment=runner.environment(str(seen)), log=seen / "log" / "job.log")  # fmt: skip
    runner.start(spec)
    until_done(lambda: runner.poll("job-spy-1").state == "exited")
    assert (seen / "log" / "job.log").read_text().split("\n")[:3] == ["files False", "files False", "socket False"]


def test_a_run_that_waits_for_what_is_not_known_yet_has_no_reason(service, create):
    """A pod that has just been made: what the workspace has waited for before is over."""
    row = create()
    Workspace.objects.filter(pk=row.pk).update(run_name="workspace-1-1", ordered=timezone.now())
    row.refresh_from_db()
    for reason, shown in ((Message("an image"), "waiting to start: an image"), ("", "")):
        launching.RUNS.running(row, runners.RunStatus("running", reason=reason, waits=True), follow=False)
        row.refresh_from_db()
        assert row.reason == shown
