"""Workspaces come back from a backup: one in the trash with its files and guests, and an invitation nobody answered."""

from __future__ import annotations

import time

import pytest

from mlp.tests.attack.world import Person
from mlp.tests.patience import LIMIT_S

from .test_whole import Kept

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.begins(0)]


def at_rest(person: Person, name: str) -> None:
    """Create a workspace and stop it: it is not needed that JupyterLab runs."""
    person.done("post", "workspaces", {"name": name, "title": f"My {name}", "cpu": 0.1, "ram": 400})
    person.call("put", f"workspaces/{name}:stop")
    until(lambda: person.done("get", f"workspaces/{name}")["state"] in ("stopped", "error"))


def until(is_so) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_trash_guests_and_files_of_workspaces_come_back(tmp_path):
    platform, place = Kept(tmp_path / "root"), str(tmp_path / "backups")
    platform.start()
    try:
        alice, bob = Person(platform, "alice"), Person(platform, "bob")
        for name in ("desk", "open"):
            at_rest(alice, name)
            alice.done("put", f"workspaces/{name}/guests/bob")
        bob.done("put", "workspace_invitations/alice/desk:accept")
        file = "workspaces/alice/desk/home/kept.ipynb"
        (platform.root / file).parent.mkdir(parents=True, exist_ok=True)
        (platform.root / file).write_bytes(b"{}" * 500_000)
        alice.done("delete", "workspaces/desk?trash=1")
        until(lambda: alice.done("get", "trash")[0]["size"] is not None)
        (trashed,) = alice.done("get", "trash")
        guests = {name: alice.done("get", f"workspaces/{name}/guests") for name in ("desk", "open")}
        said = platform.must("backup", place) + platform.must("backup", "verify", place)
        assert "restores completely" in said
        assert "the books add up" in said
    finally:
        platform.stop()
    back = platform.elsewhere(tmp_path / "back")
    assert "restored" in back.must("restore", place)
    assert (back.root / file).read_bytes() == b"{}" * 500_000
    back.start()
    try:
        (found,) = alice.done("get", "trash")  # with the token that she had
        assert found == trashed
        assert {name: alice.done("get", f"workspaces/{name}/guests") for name in guests} == guests
        assert [row["name"] for row in bob.done("get", "workspace_invitations")] == ["open"]  # not what is in the trash
        alice.done("put", "trash:restore", {"kind": "workspace", "name": "desk"})
        desk = alice.done("get", "workspaces/desk")
        assert (desk["title"], desk["trashed"], desk["state"] in ("stopped", "error")) == ("My desk", None, True)
        invitations = {row["name"]: row["accepted"] is not None for row in bob.done("get", "workspace_invitations")}
        assert invitations == {"desk": True, "open": False}
        assert "is consistent" in back.must("books")
    finally:
        back.stop()
