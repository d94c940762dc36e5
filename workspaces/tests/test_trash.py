"""A workspace in the trash: its files are kept, it does not run, and it comes back as it was."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from accounts import lifecycle as accounts
from kernel.errors import Refused
from kernel.models import StateChange
from kernel.trash import TRASH
from mlp.tests.page_world import visible_text
from mlp.tests.page_world import visitor as page_visitor
from workspaces import notebooks, place
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)


def rest(row: Workspace, verb: str = "") -> str:
    return f"users/alice/workspaces/{row.name}{verb}"


@pytest.fixture
def at_rest(alice, home):
    """A stopped workspace with a file."""
    row = Workspace.objects.create(user=alice, tenant=alice.tenant, name="desk", title="My desk", cpu=0.1, ram=400,
                                   state="stopped")  # fmt: skip
    kept = place.folder(row) / place.HOME / "kept.ipynb"
    kept.parent.mkdir(parents=True)
    kept.write_text("{}")
    return row


def in_trash(as_alice) -> list[str]:
    return [entry["name"] for entry in as_alice.call("get", "users/alice/trash").json()]


def test_it_comes_back_with_its_files_and_starts(service, create, settle, as_alice, until, alice, visitor):
    row = settle(create())
    refusal = as_alice.refused("delete", rest(row, "?trash=1"))
    assert "the workspace is ready; stop it before you delete it" in refusal
    (place.folder(row) / "home" / "kept.ipynb").write_text("{}")
    as_alice.call("put", rest(row, ":stop"))
    settle(row, "stopped")
    assert as_alice.call("delete", rest(row, "?trash=1")).json()["trashed"]
    assert in_trash(as_alice) == [row.name]
    assert f"the workspace {row.name} is in the trash; restore it first" in as_alice.refused(
        "put", rest(row, ":start"), None
    )
    mine = visitor(alice)
    assert mine.at(f"/alice/{row.name}/lab").status_code in (401, 503)
    restored = as_alice.call("put", "users/alice/trash:restore", {"kind": "workspace", "name": row.name})
    assert restored.status_code == 200
    as_alice.call("put", rest(row, ":start"))
    settle(row)
    mine.page(f"/alice/{row.name}/lab")
    assert "kept.ipynb" in mine.at(f"/alice/{row.name}/home").json()["files"]


def test_its_name_is_taken_and_it_runs_no_notebook(as_alice, alice, at_rest, tasks):
    as_alice.call("delete", rest(at_rest, "?trash=1"))
    refusal = as_alice.refused("post", "users/alice/workspaces", {"name": "desk", "cpu": 0.1, "ram": 400})
    assert refusal == "name: you already have a workspace named desk; it is in the trash"
    at_rest.refresh_from_db()
    with pytest.raises(Refused, match="is in the trash"):
        notebooks.submit(at_rest, "kept.ipynb", [], by="alice")
    page = page_visitor(alice)
    assert "My desk" not in visible_text(page.get("/workspaces"))
    assert "It is in the trash and will be deleted on" in visible_text(page.get("/workspaces/desk"))
    assert "My desk" in visible_text(page.get("/trash"))


def test_a_purge_removes_its_files_and_its_row(as_alice, at_rest, until):
    first = as_alice.call("delete", rest(at_rest, "?trash=1")).json()["trashed"]
    assert as_alice.call("delete", rest(at_rest, "?trash=1")).json()["trashed"] == first  # its days do not begin again
    until(lambda: in_trash(as_alice) == ["desk"])
    assert place.folder(at_rest).exists()
    old = timezone.now() - timedelta(days=settings.TRASH_DAYS, minutes=1)
    Workspace.objects.update(trashed=old)
    until(lambda: not Workspace.objects.exists())
    assert not place.folder(at_rest).exists()


def test_that_of_a_deactivated_user_goes_at_once(as_alice, alice, at_rest, until):
    as_alice.call("delete", rest(at_rest, "?trash=1"))
    accounts.deregister(username="alice", by="test")
    until(lambda: not Workspace.objects.exists())
    assert not place.folder(at_rest).exists()
    assert StateChange.objects.filter(kind="workspace", name="desk", transition=TRASH).exists()
