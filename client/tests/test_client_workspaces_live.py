"""The client's verbs on workspaces that need none that runs: guests, invitations, sizes and the trash."""

from __future__ import annotations

import pytest

from workspaces.models import Guest, Workspace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def hers(client_of, service, alice, alice_data):
    Workspace.objects.create(user=alice, tenant=alice.tenant, name="desk", cpu=0.1, ram=400, state="stopped", size=2048)
    return client_of(service.url, alice_data.token)


@pytest.fixture
def his(client_of, service, hers, bob_data):
    client = client_of(service.url, bob_data.token)
    return client


@pytest.mark.long
def test_a_guest_is_invited_accepts_and_leaves(hers, his):
    assert "bob is invited to desk" in hers.run("workspace", "guest", "add", "desk", "bob").stderr
    heading, row = hers.run("workspace", "guest", "ls", "desk").stdout.splitlines()
    assert (heading.split(), row.split()[0], row.split()[-1]) == (["USER", "AGE", "STATE"], "bob", "invited")
    (mine,) = his.json("workspace", "invitations")
    assert (mine["owner"], mine["name"], mine["accepted"]) == ("alice", "desk", None)
    done = his.run("workspace", "accept", "alice/desk")
    assert "you act as alice" in done.stderr
    page = f"{his.environment['MLP_URL']}/workspaces/of/alice/desk"
    assert done.stdout.strip() == page
    assert his.run("workspace", "invitations").stdout.splitlines()[1].split() == ["alice/desk", "accepted", page]
    assert hers.json("workspace", "guest", "ls", "desk")[0]["accepted"]
    assert his.json("workspace", "leave", "alice/desk") == {"owner": "alice", "name": "desk"}
    assert his.json("workspace", "invitations") == hers.json("workspace", "guest", "ls", "desk") == []
    hers.run("workspace", "guest", "add", "desk", "bob")
    assert hers.json("workspace", "guest", "rm", "desk", "bob") == {"user": "bob"}
    assert not Guest.objects.exists()


@pytest.mark.long
def test_wrong_names_are_refused_with_one_line(hers, his):
    assert "can submit to the tenant" in hers.refused("workspace", "guest", "add", "desk", "nobody", code=4)
    assert "guest" in hers.refused("workspace", "guest", "rm", "desk", "bob", code=4)
    assert "workspace" in hers.refused("workspace", "guest", "ls", "none", code=4)
    for wrong in ("desk", "alice/", "/desk", "alice/desk/more"):
        assert hers.refused("workspace", "accept", wrong, code=2) == f"{wrong}: OWNER/WORKSPACE is needed"
    assert "workspace" in his.refused("workspace", "accept", "alice/desk", code=4)
    said = hers.refused("workspace", "guest", "ls", "desk", "--", "x", code=2)
    assert said == "workspace guest ls takes no arguments after --"
    his.environment["LANG"] = "zh_CN.UTF-8"
    assert "应为 所有者/工作区" in his.refused("workspace", "leave", "desk", code=2)


def test_a_workspace_goes_to_the_trash_with_its_files(hers):
    heading, row = hers.run("workspace", "ls").stdout.splitlines()
    assert "SIZE" in heading.split()
    assert "2.0 KiB" in row
    row = hers.json("workspace", "rm", "desk", "--trash")
    assert row["trashed"]
    assert hers.json("workspace", "ls") == []
    assert Workspace.objects.get().trashed is not None
    assert "in the trash" in hers.run("workspace", "rm", "desk", "--trash").stderr  # it is there: nothing changes
    assert hers.json("workspace", "guest", "ls", "desk") == []
    Workspace.objects.update(trashed=None, state="ready")
    assert "stop it before you delete it" in hers.refused("workspace", "rm", "desk", "--trash", code=4)


def test_the_words_are_completed(hers):
    def offered(*words: str) -> list[str]:
        return hers.run("completion", "words", str(len(words)), "--", "mlp", *words).stdout.split()

    assert offered("workspace", "guest", "") == ["add", "ls", "rm"]
    assert offered("workspace", "guest", "add", "") == ["desk"]
