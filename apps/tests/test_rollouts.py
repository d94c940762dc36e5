"""An application that follows an alias: it moves to another version without a refused request."""

from __future__ import annotations

import threading

import pytest
import requests

import runners
from apps import launching, reconcile, switching
from apps.models import Application, Rollout
from kernel import storage
from kernel.models import history_of
from models_app.registry import registered
from resources import tcc
from resources.models import Tenant

from .conftest import bearer_of, settled

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.long
def test_the_alias_moves_and_no_request_is_refused(front, followed, alice, churn, until, default_tenant):
    app = followed()
    answers, stop = [], threading.Event()

    def hammer() -> None:
        with requests.Session() as session:
            while not stop.is_set():
                answer = session.post(f"{front}/alice/{app.name}/predict", json={"x": [1]}, headers=bearer_of(alice))
                answers.append((answer.status_code, answer.text))

    threads = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        registered.set_alias(alice, "churn", "champion", 2, "test")
        before = app.run_name
        until(lambda: Application.objects.get(pk=app.pk).model.name == "churnvb")
        assert before in runners.get().names()  # it answers those whose address is still remembered
        until(lambda: settled(app) and before not in runners.get().names())
        until(lambda: answers[-1][1] == '{"y":[3.0]}')
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert {status for status, _text in answers} == {200}
    assert {text for _status, text in answers} == {'{"y":[2.0]}', '{"y":[3.0]}'}
    app.refresh_from_db()
    assert (app.state, app.slot, app.failures) == ("ready", 1, 0)
    assert "churnvb" in history_of(app)[0].reason
    default_tenant.refresh_from_db()
    assert float(default_tenant.cpu_inuse) == pytest.approx(0.1)  # only one run is counted
    assert tcc.allocated(default_tenant)["ram"] == default_tenant.ram_inuse == 400


@pytest.mark.long
def test_a_version_that_does_not_start_changes_nothing(front, followed, as_alice, alice, churn, until):
    app = followed()
    registered.set_alias(alice, "churn", "champion", 3, "test")
    until(lambda: Rollout.objects.filter(app=app, phase="failed").exists())
    shown = as_alice.call("get", f"users/alice/apps/{app.name}").json()
    assert (shown["model_name"], shown["rollout"]["model_name"]) == ("churnva", "churnvc")
    assert "no weights" in shown["rollout"]["reason"]
    reconcile.run()
    assert settled(app)  # it is not tried again by itself
    address = f"{front}/alice/{app.name}/predict"
    assert requests.post(address, json={"x": [1]}, headers=bearer_of(alice), timeout=60).json() == {"y": [2.0]}
    registered.set_alias(alice, "churn", "champion", 1, "test")
    assert as_alice.call("put", f"users/alice/apps/{app.name}/rollout").json()["rollout"] is None


@pytest.mark.long
def test_without_room_it_waits_or_restarts_where_that_is_allowed(followed, as_alice, alice, churn, until):
    app = followed()
    Tenant.objects.update(ram=500)
    registered.set_alias(alice, "churn", "champion", 2, "test")
    until(lambda: Rollout.objects.filter(app=app, phase="waiting").exists())
    assert "no room for a second run" in Rollout.objects.get(app=app).reason
    assert Application.objects.get(pk=app.pk).model.name == "churnva"
    Application.objects.filter(pk=app.pk).update(may_restart=True)
    Rollout.objects.update(not_before=None)
    until(lambda: settled(app) and Application.objects.get(pk=app.pk).state == "ready")
    app.refresh_from_db()
    assert (app.model.name, app.attempt) == ("churnvb", 2)
    assert Tenant.objects.get().ram_inuse == 400


@pytest.mark.long
def test_a_rollout_that_was_interrupted_is_finished_by_reconcile(followed, alice, churn, until, tasks):
    app = followed()
    registered.set_alias(alice, "churn", "champion", 2, "test")
    tasks.queue.clear()  # every message is lost
    until(lambda: settled(app) and Application.objects.get(pk=app.pk).model.name == "churnvb")


@pytest.mark.long
def test_an_application_is_deleted_while_it_moves(followed, as_alice, alice, churn, until):
    app = followed()
    registered.set_alias(alice, "churn", "champion", 2, "test")
    until(lambda: Rollout.objects.filter(app=app, phase="starting").exists())
    assert as_alice.call("delete", f"users/alice/apps/{app.name}").status_code == 200
    until(lambda: not Application.objects.filter(pk=app.pk).exists())
    assert not Rollout.objects.exists()
    assert [name for name in runners.get().names() if name.startswith("app-")] == []
    assert Tenant.objects.get().ram_inuse == 0


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"follows": "models:/churn@none"}, "no alias models:/churn@none"),
        ({"follows": "models:/churn@champion", "model_name": "churnva"}, "either model_name or follows"),
        ({}, "model_name"),
    ],
)
def test_what_cannot_be_followed(as_alice, churn, tasks, body, problem):
    assert problem in as_alice.refused("post", "users/alice/apps", {"name": "calc", **body})


def test_a_folder_of_logs_that_the_application_has_replaced_by_a_link_is_not_followed(deploy, alice, monkeypatch):
    """The old run may do so at any moment; the log of the new one was removed by its path."""
    app = deploy()
    other = storage.root() / "apps" / "bob" / "theirs" / "log"
    other.mkdir(parents=True)
    (other / "next.log").write_text("of another user")
    folder = launching.folder(app)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log").symlink_to(other)
    rollout = Rollout.objects.create(app=app, model=app.model, phase="starting", run_name=f"app-{app.pk}-9")

    def refuse(coming):
        raise ValueError("far enough")

    monkeypatch.setattr(launching, "spec_of", refuse)
    switching.step(rollout.pk, follow=False)
    rollout.refresh_from_db()
    assert "far enough" in rollout.reason
    assert (other / "next.log").read_text() == "of another user"
