"""Workspaces are created, stopped, started and deleted over REST; their runs are real ones of a stand-in."""

from __future__ import annotations

import pytest

import runners
from kernel import storage
from resources.models import Tenant
from workspaces import place
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)


def used() -> float:
    return float(Tenant.objects.get(name="default").cpu_used)


def call(as_alice, row: Workspace, verb: str):
    return as_alice.call("put", f"users/alice/workspaces/{row.name}:{verb}")


def test_it_keeps_its_files_when_it_is_stopped_and_started_again(service, create, settle, as_alice, until, visitor,
                                                                 alice):  # fmt: skip
    row = settle(create(title="My lab"))
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
