"""The life cycle of applications through REST, as real runs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import runners
from accounts.models import Notice
from apps import launching, proof
from apps.models import PORTS, Application
from kernel import outbound, sockets, storage
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from resources import tcc
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)


def in_use() -> dict:
    tenant = Tenant.objects.get(name="default")
    assert {kind: getattr(tenant, f"{kind}_inuse") for kind in tcc.KINDS} == tcc.allocated(tenant)
    return {"cpu": float(tenant.cpu_inuse), "ram": tenant.ram_inuse}


def ask(app: Application, path: str, body: dict | None = None) -> dict:
    status, answer = outbound.exchange(
        sockets.parse(app.address), "POST" if body else "GET", path, body and json.dumps(body).encode(),
        proof.headers(app.run_name), limit_s=LIMIT_S, most=1 << 20,
    )  # fmt: skip
    assert status == 200, answer
    return json.loads(answer)


def infer(app: Application, values: list) -> list:
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(values)], "data": values}
    return ask(app, f"/v2/models/{app.served_name}/infer", {"inputs": [tensor]})["outputs"][0]["data"]


def process_of(app: Application) -> int:
    """Return the serving process, found by its command line and the mark of its run."""
    spec = json.loads((runners.get().folder / app.run_name / "spec.json").read_bytes())
    mark = f"MLP_RUN_ID={spec['run_id']}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                ours = mark in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if ours and any(word.endswith(b"/server.py") for word in words[:4]):
                return int(entry.name)
    raise AssertionError("the application has no process")


def supervisor_of(app: Application) -> int:
    """Return the process that supervises the run and made its socket."""
    return json.loads((runners.get().folder / app.run_name / "begun.json").read_bytes())["shim"]


def test_it_starts_answers_and_is_deleted_completely(as_alice, deploy, ready, until, settings):
    app = deploy()
    assert app.state == "creating"
    assert app.port in PORTS
    assert in_use() == {"cpu": 0.1, "ram": 400}
    ready(app)
    assert infer(app, [1, 2.5]) == [2, 3.5]
    log = as_alice.call("get", "users/alice/apps/calc/log")
    assert b"serving adder (predictor)" in log.content
    assert app.address.startswith(f"unix:{settings.SOCKETS}/run-")
    assert log["X-Next-Offset"] == str(len(log.content))
    assert as_alice.call("get", f"users/alice/apps/calc/log?offset={len(log.content)}").content == b""
    assert as_alice.refused("delete", "users/alice/models/adder").startswith("state: the application calc uses")
    assert as_alice.call("delete", "users/alice/apps/calc").json()["state"] == "deleting"
    until(lambda: not Application.objects.exists())
    assert in_use() == {"cpu": 0, "ram": 0}
    assert runners.get().names() == []
    assert list(settings.SOCKETS.glob("run-*")) == []
    assert as_alice.call("delete", "users/alice/models/adder").status_code == 200


def test_a_killed_process_is_restarted_and_others_are_not_affected(deploy, ready, until):
    app, other = deploy(), deploy("other")
    ready(app)
    ready(other)
    before = process_of(other)
    for attempt, victim in ((2, process_of), (3, supervisor_of)):
        os.kill(victim(app), signal.SIGKILL)

        def is_back(attempt: int = attempt) -> bool:
            app.refresh_from_db()
            return app.attempt == attempt and app.state == "ready"

        until(is_back)
        assert infer(app, [1]) == [2]
    assert process_of(other) == before
    assert app.failures == 2


@pytest.mark.long
def test_a_stop_of_the_platform_is_not_counted_as_a_failure(deploy, ready, until):
    app = ready(deploy())
    runners.get().stop_all(5)  # as the platform does when it ends

    def is_back() -> bool:
        app.refresh_from_db()
        return app.attempt == 2 and app.state == "ready"

    until(is_back)
    assert (app.failures, app.reason) == (0, "")
    assert not Notice.objects.exists()
    assert infer(app, [1]) == [2]


def test_an_application_that_always_fails_ends_in_error_with_the_reason(
    deploy, adder, until, settings, as_alice, monkeypatch
):
    settings.APP_MAX_FAILURES = 2
    monkeypatch.setattr("apps.lifecycle.BACKOFF_S", (0,))
    app = deploy()
    monkeypatch.setattr("apps.launching.PROGRAM", Path("/nowhere/loading.py"))
    monkeypatch.setattr("apps.launching.LOADERS", ())

    def failed() -> bool:
        app.refresh_from_db()
        return app.state == "error"

    until(failed)
    assert app.reason.startswith("stopped after 2 failures: ")
    assert "loading.py" in app.reason
    assert in_use() == {"cpu": 0, "ram": 0}
    assert as_alice.call("delete", "users/alice/apps/calc").status_code == 200
    until(lambda: not Application.objects.exists() and runners.get().names() == [])


def test_lost_messages_are_recovered(deploy, tasks, ready):
    app = deploy()
    tasks.queue.clear()
    ready(app)
    assert infer(app, [0]) == [1]


@pytest.mark.long
def test_deactivation_releases_everything(as_alice, deploy, ready, until):
    ready(deploy())
    assert as_alice.call("put", "users/alice").status_code == 200
    until(lambda: not Application.objects.exists())
    assert in_use() == {"cpu": 0, "ram": 0}


@pytest.mark.parametrize(
    ("change", "field"),
    few(
        [
            ({"model_name": "none"}, "model_name:"),
            ({"cpu": 0.05}, "cpu:"),
            ({"ram": "400"}, "ram:"),
            ({"public": 1}, "public:"),
            ({"gpu": 3}, "gpu:"),
            ({"port": 31000}, "port:"),
            ({"name": "A"}, "name:"),
        ],
        3,
    ),
)
def test_an_invalid_request_is_refused_and_stores_nothing(as_alice, adder, change, field):
    body = {"name": "calc", "model_name": "adder", **change}
    assert as_alice.refused("post", "users/alice/apps", body).startswith(field)
    assert not Application.objects.exists()


def test_names_are_unique_and_others_see_nothing(as_alice, as_bob, deploy):
    deploy()
    assert as_alice.refused("post", "users/alice/apps", {"name": "calc", "model_name": "adder"}).startswith("name:")
    assert as_alice.refused("delete", "users/alice/apps/calc").startswith("state:")
    assert as_bob.refused("get", "users/alice/apps/calc") == as_bob.refused("get", "users/alice/apps/none")
    assert [row["name"] for row in as_alice.call("get", "users/alice/apps?state=creating").json()] == ["calc"]


def test_a_symlink_instead_of_the_log_discloses_no_file(adder, deploy, until, settings, tmp_path):
    """The end of the log becomes the reason, which the owner reads."""
    settings.APP_MAX_FAILURES = 1
    secret = tmp_path / "secret"
    secret.write_text("of the platform")
    text = f"import os; os.remove('log/app.log'); os.symlink({str(secret)!r}, 'log/app.log'); raise SystemExit(3)"
    (storage.model_dir("alice", "adder") / "predictor.py").write_text(text)
    deploy()
    until(lambda: Application.objects.get().state == "error")
    assert "of the platform" not in Application.objects.get().reason


@pytest.mark.long
def test_an_operator_restarts_it(deploy, ready, until, staff_client):
    app = ready(deploy())
    address = f"/admin/apps/application/{app.pk}/do/restart/"
    assert staff_client.post(address, {"confirmed": "yes"}).status_code == 302
    until(lambda: Application.objects.filter(run_name=f"app-{app.pk}-2", state="ready").exists())
    app.refresh_from_db()
    assert (app.failures, app.reason) == (0, "")
    assert "restarted" in staff_client.get(f"/admin/apps/application/{app.pk}/change/").content.decode()
    Application.objects.update(run_name="another")
    launching.stop(app.pk, app.run_name)  # a late message ends no other run
    assert runners.get().poll(f"app-{app.pk}-2").state == "running"
    assert not Application.objects.get().stopped
