"""Guests of a workspace: invited by its owner, let in once they have accepted, and out when the invitation ends."""

from __future__ import annotations

import pytest
import requests
import websocket

from accounts import lifecycle as accounts
from accounts import named_tokens
from accounts.models import Notice
from accounts.tenancy import members
from conftest import Api
from kernel.models import StateChange
from mlp.tests.page_world import visible_text
from mlp.tests.page_world import visitor as page_visitor
from mlp.tests.tiers import few
from resources import tenants
from resources.models import Tenant
from workspaces.models import Guest, Workspace

from .conftest import is_closed, open_socket

pytestmark = pytest.mark.django_db(transaction=True)


def of(row, guest: str = "") -> str:
    return f"users/alice/workspaces/{row.name}/guests" + (f"/{guest}" if guest else "")


@pytest.fixture
def invite(lab, as_alice):
    """Return a function that invites a user, who accepts on the page."""

    def let(browser, who: str, accepts: bool = True) -> None:
        answer = as_alice.call("put", of(lab, who))
        assert (answer.status_code, answer.json()["user"], answer.json()["accepted"]) == (200, who, None)
        if accepts:
            page = f"/workspaces/of/alice/{lab.name}"
            assert browser.platform.post(f"{page}/answer", {"do": "accept"}).status_code == 302

    return let


def test_a_guest_enters_once_they_have_accepted(lab, bob, visitor, invite, as_alice, as_bob):
    his = visitor(bob)
    invite(his, "bob", accepts=False)
    notice = Notice.objects.get(user=bob, kind="workspace")
    assert (notice.event, notice.link) == ("invited", f"/workspaces/of/alice/{lab.name}")
    shown = visible_text(his.platform.get(notice.link))
    assert "you act as alice" in shown
    assert "Its pages can also act in your own workspaces" in shown
    # A link alone leads to the invitation, not into the workspace.
    assert "you act as alice" in his.page(f"{lab.path}/lab").text
    assert not his.login_of(lab)
    assert his.at(f"{lab.path}/api/x").status_code == 401
    his.platform.post(f"{notice.link}/answer", {"do": "accept"})
    assert his.page(f"{lab.path}/lab").status_code == 200
    assert his.at(f"{lab.path}/api/x").json()["path"] == f"{lab.path}/api/x"
    link = open_socket(his, f"{lab.path}/ws")
    link.send("hello")
    assert link.recv() == "HELLO"
    link.close()
    (listed,) = as_alice.call("get", of(lab)).json()
    assert (listed["user"], listed["accepted"] is not None) == ("bob", True)
    (mine,) = as_bob.call("get", "users/bob/workspace_invitations").json()
    assert (mine["owner"], mine["name"], mine["address"]) == ("alice", lab.name, notice.link)
    assert lab.name in visible_text(his.platform.get("/workspaces"))
    history = StateChange.objects.filter(kind="workspace", name=lab.name).values_list("transition", "by")
    assert list(history[:2]) == [("accept", "bob"), ("invite", "alice")]


def test_a_guest_has_what_is_in_it_and_nothing_else_of_its_owner(lab, bob, create, settle, visitor, invite, as_bob,
                                                                 service):  # fmt: skip
    other, his = settle(create()), visitor(bob)
    invite(his, "bob")
    assert his.page(f"{lab.path}/lab").status_code == 200
    assert his.page(f"/alice/{other.name}/lab").status_code == 404
    assert his.at(f"/alice/{other.name}/api/x").status_code == 401
    for method, path in (("get", ""), ("put", ":stop"), ("delete", ""), ("get", "/log"), ("get", "/guests"),
                         ("put", "/guests/carol")):  # fmt: skip
        assert as_bob.call(method, f"users/alice/workspaces/{lab.name}{path}").status_code == 403, path
    for page in (f"/workspaces/{lab.name}", f"/workspaces/{lab.name}/log", f"/u/alice/workspaces/{lab.name}"):
        assert his.platform.get(page).status_code == 404
    for path in ("change", "delete", "guests", "notebook"):
        assert his.platform.post(f"/workspaces/{lab.name}/{path}", {"do": "stop"}).status_code == 404
    token = accounts.token_of(bob)  # SSH is its owner's
    answer = requests.get(f"{his.origin}{lab.path}/-ssh", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 401


ENDS = ("removed", "left", "out of the tenant", "viewer", "deactivated", "logged out", "policy")


@pytest.mark.parametrize("end", few(ENDS, 1, 1))
def test_what_ends_an_invitation_closes_the_door_and_the_websockets(end, lab, bob, visitor, invite, as_alice, until,
                                                                    as_staff, alice):  # fmt: skip
    his, hers = visitor(bob), visitor(alice)
    tenants.create(name="elsewhere", by="test", cpu=1, gpu=0, rom=0, ram=0)
    members.put(tenant="elsewhere", user="bob", role="member", by="test")
    invite(his, "bob")
    links = []
    for browser in (his, hers):
        browser.page(f"{lab.path}/lab")
        links.append(open_socket(browser, f"{lab.path}/ws"))
    page = f"/workspaces/of/alice/{lab.name}"
    {
        "removed": lambda: as_alice.call("delete", of(lab, "bob")),
        "left": lambda: his.platform.post(f"{page}/answer", {"do": "remove"}),
        "out of the tenant": lambda: members.remove(tenant="default", user="bob", by="test"),
        "viewer": lambda: members.put(tenant="default", user="bob", role="viewer", by="test"),
        "deactivated": lambda: accounts.deregister(username="bob", by="test"),
        "logged out": lambda: his.platform.post("/logout"),
        "policy": lambda: Tenant.objects.filter(name="default").update(allows_workspaces=False),
    }[end]()
    until(lambda: his.at(f"{lab.path}/api/x").status_code == 401)
    if end != "policy":  # which is noticed when the log-ins are looked at, within a minute
        until(lambda: is_closed(links[0]))
    links[1].send("here")
    assert links[1].recv() == "HERE"
    with pytest.raises(websocket.WebSocketBadStatusException):
        open_socket(his, f"{lab.path}/ws")
    assert Guest.objects.exists() == (end in ("logged out", "policy"))
    if end == "out of the tenant":  # and it does not come back with the membership
        members.put(tenant="default", user="bob", role="member", by="test")
        assert his.at(f"{lab.path}/api/x").status_code == 401
    if end == "removed":
        assert Notice.objects.filter(user=bob, kind="workspace", event="removed").exists()


def test_only_its_owner_invites_and_only_who_submits_to_its_tenant(lab, bob, as_alice, as_bob, as_staff, make_user,
                                                                   api, alice):  # fmt: skip
    nobody = "guest: no active user of this name can submit to the tenant default"
    tenants.create(name="elsewhere", by="test", cpu=1, gpu=0, rom=0, ram=0)
    make_user("olga")
    members.put(tenant="elsewhere", user="olga", role="member", by="test")
    members.remove(tenant="default", user="olga", by="test")
    make_user("vera")
    members.put(tenant="default", user="vera", role="viewer", by="test")
    make_user("dora")
    accounts.deregister(username="dora", by="test")
    for who in ("olga", "vera", "dora", "nobody"):
        assert as_alice.refused("put", of(lab, who), None) == nobody
    assert as_alice.refused("put", of(lab, "alice"), None) == "guest: must be another user"
    assert "only the owner of a workspace invites guests" in as_staff.refused("put", of(lab, "oscar"), None)
    assert as_bob.call("put", of(lab, "bob")).status_code == 403
    assert as_alice.call("put", "users/alice/workspaces/none/guests/bob").status_code == 403
    assert as_alice.call("delete", of(lab, "bob")).status_code == 403
    narrow = {scope: named_tokens.create(user=alice, name=scope, scope=scope, by="alice")[1]
              for scope in ("read", "submit")}  # fmt: skip
    for text in narrow.values():
        assert Api(text).call("put", of(lab, "bob")).status_code == 403
    Tenant.objects.filter(name="default").update(allows_workspaces=False)
    assert as_alice.refused("put", of(lab, "bob"), None) == "tenant: workspaces are not allowed in the tenant default"
    assert not Guest.objects.exists()


@pytest.mark.long
def test_who_is_invited_again_has_to_accept_again(lab, bob, visitor, invite, as_alice, until):
    his = visitor(bob)
    invite(his, "bob")
    assert his.page(f"{lab.path}/lab").status_code == 200
    as_alice.call("delete", of(lab, "bob"))
    until(lambda: his.at(f"{lab.path}/x").status_code == 401)
    invite(his, "bob", accepts=False)
    assert his.at(f"{lab.path}/x").status_code == 401  # with the cookie that it had
    assert "Accept" in visible_text(his.platform.get(f"/workspaces/of/alice/{lab.name}"))


def test_in_the_trash_it_is_nobodys_and_restored_it_is_the_guests_again(alice, bob, as_alice, as_bob):
    row = Workspace.objects.create(user=alice, tenant=alice.tenant, name="desk", cpu=0.1, ram=400, state="stopped")
    assert as_alice.call("put", of(row, "bob")).status_code == 200
    mine, hers = "users/bob/workspace_invitations", "users/alice/workspaces/desk"
    as_alice.call("delete", f"{hers}?trash=1")
    assert as_bob.call("get", mine).json() == []
    his = page_visitor(bob)
    assert his.get("/workspaces/of/alice/desk").status_code == 404
    assert his.post("/workspaces/of/alice/desk/answer", {"do": "accept"}).status_code == 404
    assert "is in the trash" in as_alice.refused("put", of(row, "carol"), None)
    as_alice.call("put", "users/alice/trash:restore", {"kind": "workspace", "name": "desk"})
    assert [entry["name"] for entry in as_bob.call("get", mine).json()] == ["desk"]
    shown = visible_text(his.post("/workspaces/of/alice/desk/answer", {"do": "accept"}, follow=True))
    assert "It does not run. Only alice can start it." in shown


def test_the_page_invites_and_removes(lab, alice, bob, visitor):
    hers, page = visitor(alice).platform, f"/workspaces/{lab.name}"
    assert "A guest can do everything here that you can do" in visible_text(hers.get(page))
    shown = visible_text(hers.post(f"{page}/guests", {"do": "invite", "guest": "bob"}, follow=True))
    assert "bob is invited." in shown
    again = hers.post(f"{page}/guests", {"do": "invite", "guest": "bob"}, follow=True)
    assert Notice.objects.filter(user=bob).count() == 1, visible_text(again)
    assert "must be 1 to 50" in visible_text(hers.post(f"{page}/guests", {"do": "invite", "guest": "B!"}, follow=True))
    hers.post(f"{page}/guests", {"do": "remove", "guest": "bob"})
    assert not Guest.objects.exists()
    assert visitor(bob).platform.get(f"/workspaces/of/alice/{lab.name}").status_code == 404


@pytest.mark.long
def test_a_stolen_login_of_a_guest_is_nobody_elses(lab, bob, make_user, visitor, invite):
    """A guest's code is for the browser that asked for it, as an owner's is."""
    his, thief = visitor(bob), visitor(make_user("mallory"))
    invite(his, "bob")
    first = his.at(f"{lab.path}/lab", headers={"Accept": "text/html"})
    query = first.headers["Location"].partition("/workspaces/")[2]
    sent = his.get(f"{his.service.url}/workspaces/{query}", allow_redirects=False)
    code = "/alice/" + sent.headers["Location"].partition("/alice/")[2]
    thief.at(f"{lab.path}/lab", headers={"Accept": "text/html"})
    assert thief.at(code, headers={"Accept": "text/html"}).status_code == 403
    assert thief.page(f"{lab.path}/lab").status_code == 404
    assert thief.platform.post(f"/workspaces/of/alice/{lab.name}/answer", {"do": "accept"}).status_code == 404


def test_a_program_accepts_and_leaves_in_its_own_users_name_only(alice, bob, as_alice, as_bob, as_staff):
    row = Workspace.objects.create(user=alice, tenant=alice.tenant, name="desk", cpu=0.1, ram=400, state="stopped")
    mine = "users/bob/workspace_invitations/alice/desk"
    assert "workspace" in as_bob.refused("put", f"{mine}:accept", None)  # nobody has invited him
    as_alice.call("put", of(row, "bob"))
    refusal = as_staff.refused("put", f"{mine}:accept", None)
    assert refusal == "user: only the invited user accepts an invitation"
    assert as_alice.call("put", f"{mine}:accept").status_code == 403
    submits = named_tokens.create(user=bob, name="ci", scope="submit", by="bob")[1]
    assert Api(submits).call("put", f"{mine}:accept").status_code == 403
    assert Guest.objects.get().accepted is None
    accepted = as_bob.call("put", f"{mine}:accept").json()
    assert (accepted["owner"], accepted["name"], accepted["accepted"] is not None) == ("alice", "desk", True)
    assert as_bob.call("put", f"{mine}:accept").json() == accepted  # a repetition
    history = StateChange.objects.filter(kind="workspace", name="desk", transition="accept")
    assert [change.by for change in history] == ["bob"]
    assert as_alice.call("delete", mine).status_code == 403
    assert as_bob.call("delete", mine).status_code == 200
    assert "guest" in as_bob.refused("delete", mine)
    assert not Guest.objects.exists()


@pytest.mark.parametrize("end", ["trash", "policy"])
def test_where_an_invitation_is_not_in_force_it_is_not_accepted_but_declined(end, alice, bob, as_alice, as_bob):
    row = Workspace.objects.create(user=alice, tenant=alice.tenant, name="desk", cpu=0.1, ram=400, state="stopped")
    as_alice.call("put", of(row, "bob"))
    if end == "trash":
        as_alice.call("delete", "users/alice/workspaces/desk?trash=1")
    else:
        Tenant.objects.filter(name="default").update(allows_workspaces=False)
    mine = "users/bob/workspace_invitations/alice/desk"
    assert as_bob.call("get", "users/bob/workspace_invitations").json() == []
    assert "workspace" in as_bob.refused("put", f"{mine}:accept", None)
    assert Guest.objects.get().accepted is None
    assert as_bob.call("put", "users/alice/trash:restore", {"kind": "workspace", "name": "desk"}).status_code == 403
    assert as_bob.call("delete", mine).status_code == 200
    assert not Guest.objects.exists()
