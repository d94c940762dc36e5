"""Applications are stopped, started, restarted and moved to another model by their owner."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta

import pytest
import requests
from django.utils import timezone

import runners
from apps import reconcile, runs
from apps.models import Application, AppRun, Rollout
from jobs import lifecycle as jobs
from jobs.models import Job
from kernel import storage
from mlp.tests.tiers import later
from models_app.models import Model
from resources import tcc
from resources.models import ResourceRequest, Tenant

from .conftest import ADDER, BROKEN, NAMES, bearer_of, settled
from .test_apps import process_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def models(alice, adder):
    """Two more of alice's models: one adds 2, one does not load."""
    for name, program in (("addtwo", ADDER.replace("v + 1", "v + 2")), ("broken", BROKEN)):
        folder = storage.model_dir("alice", name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "predictor.py").write_text(program)
        Model.objects.create(
            user=alice, tenant=alice.tenant, name=name, src="home/x", size=1, state="ready", reserved=False
        )


@pytest.fixture
def up(deploy, ready):
    """Return a function that deploys an application and waits until it is ready."""
    return lambda **fields: ready(deploy(next(NAMES), **fields))


@pytest.fixture
def ask(front, alice):
    def ask(app: Application, path: str = "predict", body: dict | None = None) -> requests.Response:
        address = f"{front}/alice/{app.name}/{path}"
        return requests.post(address, json=body or {"x": [1]}, headers=bearer_of(alice), timeout=60)

    return ask


def do(as_alice, app: Application, verb: str, **body) -> dict:
    response = as_alice.call("put", f"users/alice/apps/{app.name}{verb}", body or None)
    assert response.status_code == 200, response.content
    return response.json()


def live_runs() -> list[str]:
    runner = runners.get()
    return [name for name in runner.names() if name.startswith("app-") and runner.poll(name).state == "running"]


def has_process(run_name: str) -> bool:
    try:
        return bool(process_of(Application(run_name=run_name)))
    except AssertionError:
        return False


class Clients:
    """Threads that call an application without a pause; `answers` has each status and text."""

    def __init__(self, ask, app: Application):
        self.answers, self.over = [], threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(ask, app)) for _ in range(3)]

    def run(self, ask, app) -> None:
        while not self.over.is_set():
            response = ask(app)
            self.answers.append((response.status_code, response.text))

    def __enter__(self) -> Clients:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_given) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def test_a_stopped_application_holds_nothing_and_starts_again(up, as_alice, until, ready, ask, default_tenant):
    app = up()
    stopped = do(as_alice, app, ":stop")
    assert (stopped["state"], stopped["stopped"], stopped["reason"]) == ("error", True, "stopped")
    assert as_alice.refused("put", f"users/alice/apps/{app.name}:stop").startswith("state:")
    until(lambda: not Application.objects.get(pk=app.pk).run_name)
    default_tenant.refresh_from_db()
    assert (default_tenant.ram_inuse, float(default_tenant.cpu_inuse), live_runs()) == (0, 0.0, [])
    refused = ask(app)
    assert (refused.status_code, "stopped" in refused.json()["msg"]) == (503, True)
    started = do(as_alice, app, ":start")
    assert (started["state"], started["stopped"], started["reason"]) == ("creating", False, "")
    ready(app)
    until(lambda: ask(app).text == '{"y":[2.0]}')
    default_tenant.refresh_from_db()
    assert tcc.allocated(default_tenant)["ram"] == default_tenant.ram_inuse == 400
    assert ResourceRequest.objects.get(id=f"app:{app.pk}").state == "confirmed"
    assert [row["outcome"] for row in as_alice.call("get", f"users/alice/apps/{app.name}/runs").json()] == [
        "",
        "stopped",
    ]


def test_it_is_refused_to_start_what_is_being_stopped(up, as_alice, until):
    app = up()
    do(as_alice, app, ":stop")
    refusal = as_alice.refused("put", f"users/alice/apps/{app.name}:start")
    assert refusal == "state: the application is still being stopped; try again in a few seconds"


@pytest.mark.long
def test_a_stop_whose_messages_are_lost_is_finished_by_reconcile(up, as_alice, until, tasks):
    app = up()
    do(as_alice, app, ":stop")
    tasks.queue.clear()
    until(lambda: not Application.objects.get(pk=app.pk).run_name)
    assert Tenant.objects.get().ram_inuse == 0


@pytest.mark.long
def test_a_restart_refuses_no_request(up, as_alice, until, ask):
    app = up()
    process = process_of(app)
    with Clients(ask, app) as clients:
        assert do(as_alice, app, ":restart")["rollout"]["by"] == "alice"
        until(lambda: settled(app) and Application.objects.get(pk=app.pk).run_name != app.run_name)
    assert set(clients.answers) == {(200, '{"y":[2.0]}')}
    app.refresh_from_db()
    assert (app.state, app.failures, process_of(app) != process, live_runs()) == ("ready", 0, True, [app.run_name])
    assert Tenant.objects.get().ram_inuse == 400


def test_the_model_changes_without_a_refused_request_and_addresses_stay(up, as_alice, models, until, ask):
    app = up()
    tensor = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    with Clients(ask, app) as clients:
        do(as_alice, app, "/rollout", model_name="addtwo")
        until(lambda: settled(app) and Application.objects.get(pk=app.pk).model.name == "addtwo")
        until(lambda: clients.answers[-1][1] == '{"y":[3.0]}')
    assert set(clients.answers) == {(200, '{"y":[2.0]}'), (200, '{"y":[3.0]}')}
    for name in ("adder", "addtwo"):  # clients know the first; the contract promises the second
        response = ask(app, f"v2/models/{name}/infer", tensor)
        assert (response.status_code, response.json()["outputs"][0]["data"]) == (200, [3])
    shown = as_alice.call("get", f"users/alice/apps/{app.name}").json()
    assert (shown["model_name"], shown["rollout"]) == ("addtwo", None)


@pytest.mark.long
def test_a_model_that_does_not_load_changes_nothing_and_can_be_dismissed(up, as_alice, models, until, ask):
    app = up()
    do(as_alice, app, "/rollout", model_name="broken")
    until(lambda: Rollout.objects.filter(app=app, phase="failed").exists())
    shown = as_alice.call("get", f"users/alice/apps/{app.name}").json()
    assert (shown["model_name"], "no weights" in shown["rollout"]["reason"]) == ("adder", True)
    assert ask(app).text == '{"y":[2.0]}'
    assert as_alice.call("delete", f"users/alice/apps/{app.name}/rollout").json()["rollout"] is None
    assert Tenant.objects.get().ram_inuse == 400
    do(as_alice, app, "/rollout", model_name="addtwo")  # and it is not in the way of the next
    until(lambda: settled(app) and Application.objects.get(pk=app.pk).model.name == "addtwo")


@pytest.mark.long
def test_a_failed_restart_is_tried_again(up, as_alice, until):
    app = up()
    program = storage.model_dir("alice", "adder") / "predictor.py"
    program.write_text(BROKEN)
    do(as_alice, app, ":restart")
    until(lambda: Rollout.objects.filter(app=app, phase="failed").exists())
    program.write_text(ADDER)
    do(as_alice, app, "/rollout")
    until(lambda: settled(app) and not Rollout.objects.exists())
    assert Application.objects.get(pk=app.pk).run_name != app.run_name


@pytest.mark.long
def test_without_room_for_two_it_waits_until_it_may_restart(up, as_alice, models, until, ask):
    app = up()
    Tenant.objects.update(ram=500)
    rollout = do(as_alice, app, "/rollout", model_name="addtwo")["rollout"]
    assert (rollout["phase"], "no room for a second run" in rollout["reason"]) == ("waiting", True)
    do(as_alice, app, "/rollout", may_restart=True)
    until(lambda: settled(app) and Application.objects.get(pk=app.pk).state == "ready")
    assert Application.objects.get(pk=app.pk).model.name == "addtwo"
    assert Tenant.objects.get().ram_inuse == 400


@pytest.mark.parametrize("moment", ["both", *(later(name) for name in ("old", "new", "after"))])
def test_a_kill_at_any_moment_of_a_change_leaves_one_serving_version(up, as_alice, models, until, tasks, ask, moment):
    app = up()
    do(as_alice, app, "/rollout", model_name="addtwo")
    if moment == "after":
        until(lambda: Application.objects.get(pk=app.pk).model.name == "addtwo")
        until(lambda: process_of(Application.objects.get(pk=app.pk)))
    else:
        until(lambda: Rollout.objects.get(app=app).run_name in live_runs())
    now, rollout = Application.objects.get(pk=app.pk), Rollout.objects.get(app=app)
    names = {"old": [now.run_name], "new": [rollout.run_name], "both": [now.run_name, rollout.run_name]}
    for name in names.get(moment, [now.run_name]):
        until(lambda name=name: has_process(name))
        os.kill(process_of(Application(run_name=name)), signal.SIGKILL)
    tasks.queue.clear()  # and whatever was on its way is lost
    until(lambda: settled(app) and Application.objects.get(pk=app.pk).state == "ready" and len(live_runs()) == 1)
    now = Application.objects.get(pk=app.pk)
    assert live_runs() == [now.run_name]
    until(lambda: ask(now).text == {"adder": '{"y":[2.0]}', "addtwo": '{"y":[3.0]}'}[now.model.name])
    assert Tenant.objects.get().ram_inuse == 400


@pytest.mark.long
def test_stopping_while_it_moves_stops_both_runs(up, as_alice, models, until):
    app = up()
    do(as_alice, app, "/rollout", model_name="addtwo")
    until(lambda: Rollout.objects.get(app=app).run_name in live_runs())
    do(as_alice, app, ":stop")
    until(lambda: not live_runs() and not Rollout.objects.exists() and Tenant.objects.get().ram_inuse == 0)
    moved = do(as_alice, app, "/rollout", model_name="addtwo")  # one that is stopped has the model at once
    assert (moved["model_name"], moved["state"]) == ("addtwo", "error")


@pytest.mark.long
def test_what_does_not_fit_now_is_queued_and_says_who_uses_the_resources(up, deploy, as_alice, until, alice, bob):
    app = up()
    Tenant.objects.update(ram=700)
    tcc.try_(id="job:1", applier="jm", request_type="request", tenant="default", owner="bob", ram=200)
    second = as_alice.call(
        "post", "users/alice/apps", {"name": next(NAMES), "model_name": "adder", "ram": 400, "cpu": 0.1}
    )
    assert second.status_code == 201
    row = second.json()
    assert (row["state"], row["queued"], row["reason"]) == ("creating", True, "queued: not enough free resources")
    queue = as_alice.call("get", f"users/alice/apps/{row['name']}/queue").json()
    assert (queue["position"], queue["missing"], queue["by_limit"]) == (1, {"ram": 300}, False)
    assert [(holder["name"], holder["user"], holder["ram"]) for holder in queue["holders"]] == [
        (app.name, "alice", 400),
        ("", "", 200),
    ]
    assert "cpu: requested" in as_alice.refused(
        "post", "users/alice/apps", {"name": "large", "model_name": "adder", "cpu": 10, "ram": 100}
    )
    do(as_alice, app, ":stop")
    until(lambda: Application.objects.get(name=row["name"]).state == "ready")
    assert Application.objects.get(name=row["name"]).reason == ""


def test_a_queued_application_is_served_before_the_next_job(deploy, as_alice, alice, tasks, default_tenant):
    Tenant.objects.update(ram=500)
    tcc.try_(id="job:0", applier="jm", request_type="request", tenant="default", owner="alice", ram=500)
    app = deploy(next(NAMES))
    job = Job.objects.create(user=alice, tenant=alice.tenant, name="fit", entry="x.py", cpu=0.1, ram=400)
    tcc.release(id="job:0", applier="jm")
    assert jobs.reserve_next() == []
    app.refresh_from_db()
    job.refresh_from_db()
    assert (app.reserved, job.reserved) == (True, False)


@pytest.mark.long
def test_failures_and_uptime_are_seen_over_restarts(up, as_alice, until):
    app = up()
    os.kill(process_of(app), signal.SIGKILL)
    until(
        lambda: Application.objects.get(pk=app.pk).attempt == 2 and Application.objects.get(pk=app.pk).state == "ready"
    )
    rows = as_alice.call("get", f"users/alice/apps/{app.name}/runs").json()
    assert [(row["outcome"], row["model_name"]) for row in rows] == [("", "adder"), ("failed", "adder")]
    assert rows[1]["uptime_s"] > 0
    assert "SIGKILL" in rows[1]["reason"]
    seen = as_alice.call("get", f"users/alice/apps/{app.name}/uptime").json()
    assert (seen["failures"], 0 < seen["share"] < 1, seen["up_s"] < seen["wanted_s"]) == (1, True, True)


@pytest.mark.long
def test_the_time_while_it_was_stopped_does_not_count(up, as_alice, until):
    app = up()
    do(as_alice, app, ":stop")
    until(lambda: not Application.objects.get(pk=app.pk).run_name)
    hour = timedelta(hours=1)
    later = runs.uptime(runs.latest(app), timezone.now() + hour)
    assert later.wanted_s < 600
    assert later.failures == 0


def test_only_the_latest_runs_are_kept_and_the_one_that_is_up(up, monkeypatch):
    monkeypatch.setattr(runs, "KEPT", 3)
    app = up()
    for number in range(5):
        runs.begin(app, f"app-{app.pk}-{number + 10}", app.model)
    names = [f"app-{app.pk}-{number}" for number in (14, 13, 12)]
    assert [row.name for row in runs.latest(app)] == [*names, app.run_name]
    assert AppRun.objects.filter(app=app).count() == 4


def test_another_user_changes_nothing(up, as_bob):
    app = up()
    for verb in (":stop", ":start", ":restart", "/rollout"):
        missing = as_bob.refused("put", f"users/alice/apps/none{verb}")
        assert as_bob.refused("put", f"users/alice/apps/{app.name}{verb}") == missing
    reconcile.run()
    assert Application.objects.get(pk=app.pk).state == "ready"
