"""The workspaces' gateway: real nginx, platform and runs; the program in them is a stand-in for JupyterLab."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import requests
import websocket
from django.contrib.sessions.models import Session
from django.utils import timezone

from accounts import lifecycle as accounts
from workspaces import entering

from .conftest import NAMES, is_closed, open_socket

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_owner_is_let_in_and_everything_of_it_works(lab, alice, visitor):
    mine = visitor(alice)
    opened = mine.page(f"{lab.path}/lab/tree/a%20b.ipynb?reset")
    assert opened.status_code == 200, opened.text
    asked = opened.json()
    assert asked["path"] == f"{lab.path}/lab/tree/a%20b.ipynb?reset"
    cookie = next(each for each in mine.cookies if each.name == "workspace")
    assert (cookie.path, cookie._rest.get("HttpOnly", "no")) == (f"{lab.path}/", None)
    # Nothing of the platform reaches the program, and nothing of the host is changed by it.
    again = mine.at(f"{lab.path}/api/x")
    assert again.json()["headers"].get("Cookie") == "_xsrf=2|abc"
    assert {each.path for each in again.cookies} <= {f"{lab.path}/"}
    assert "Clear-Site-Data" not in again.headers
    assert again.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert "Authorization" not in mine.at(f"{lab.path}/x", headers={"Authorization": "Bearer mlp_u1"}).json()["headers"]
    # What changes something, a large body, a download with a name as users have them, and a websocket.
    own = {"Origin": mine.origin}
    big = mine.at(f"{lab.path}/api/contents/x", "PUT", data=b"x" * (25 << 20), headers=own).json()
    assert (big["method"], big["body"]) == ("PUT", 25 << 20)
    named = mine.at(f"{lab.path}/files/%E8%AE%AD%E7%BB%83%20%28%2B%26%29%25.csv?download=1")
    assert named.content.decode() == "训练 (+&)%.csv"
    assert mine.at(f"{lab.path}/api/a%2Fb//c").json()["path"] == f"{lab.path}/api/a%2Fb//c"
    link = open_socket(mine, f"{lab.path}/ws")
    link.send("hello")
    assert link.recv() == "HELLO"
    link.close()
    assert mine.at(lab.path).headers["Location"] == f"{lab.path}/"


def test_nobody_else_gets_in(lab, alice, bob, staff, visitor, service, as_bob):
    mine = visitor(alice)
    assert mine.page(f"{lab.path}/lab").status_code == 200
    for stranger in (visitor(bob), visitor(staff), visitor(None)):
        assert stranger.page(f"{lab.path}/lab").status_code in (200, 404)  # the login page, or no such workspace
        assert not stranger.login_of(lab)
        assert stranger.at(f"{lab.path}/api/x").status_code == 401
        assert stranger.at(f"{lab.path}/end", "POST", headers={"Origin": stranger.origin}).status_code == 401
        with pytest.raises(websocket.WebSocketBadStatusException):
            open_socket(stranger, f"{lab.path}/ws")
        page = requests.get(f"{service.url}/workspaces/{lab.name}", cookies=stranger.cookies, allow_redirects=False)
        assert page.status_code in (302, 404)
    for token in (accounts.token_of(bob), accounts.token_of(staff), accounts.token_of(alice)):
        answer = requests.get(f"{mine.origin}{lab.path}/api/x", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401
    assert as_bob.call("get", f"users/alice/workspaces/{lab.name}").status_code == 403
    assert as_bob.call("put", f"users/alice/workspaces/{lab.name}:stop").status_code == 403


@pytest.mark.long
def test_a_login_is_for_one_workspace_of_one_user(lab, create, settle, alice, bob, visitor):
    other = settle(create())
    mine = visitor(alice)
    mine.page(f"{lab.path}/lab")
    login = mine.login_of(lab)
    thief = visitor(bob)
    for path in (f"/alice/{other.name}", f"/bob/{lab.name}"):
        thief.cookies.set("workspace", login, domain="127.0.0.1", path="/")
        assert thief.at(f"{path}/api/x").status_code == 401


def test_a_link_with_somebody_elses_code_lets_nobody_in(lab, alice, bob, visitor, service):
    """An attacker cannot have others open a workspace of theirs, whose pages share an origin with the victim's."""
    attacker, victim = visitor(alice), visitor(bob)
    headers = {"Accept": "text/html"}
    first = attacker.at(f"{lab.path}/lab", headers=headers)
    query = first.headers["Location"].partition("/workspaces/")[2]
    sent = attacker.get(f"{service.url}/workspaces/{query}", headers=headers, allow_redirects=False)
    link = sent.headers["Location"].partition("/alice/")[2]
    victim.at(f"{lab.path}/lab", headers=headers)  # it has a random cookie of its own by now
    refused = victim.at(f"/alice/{link}", headers=headers)
    assert refused.status_code == 403
    assert not victim.login_of(lab)
    assert victim.at(f"{lab.path}/api/x").status_code == 401
    assert attacker.at(f"/alice/{link}", headers=headers).status_code == 403  # it was good for one attempt


def test_a_code_is_good_once_and_leads_to_the_workspace_only(lab, alice, visitor, service):
    mine = visitor(alice)
    first = mine.at(f"{lab.path}/lab", headers={"Accept": "text/html"})
    query = first.headers["Location"].partition("/workspaces/")[2].partition("&next=")[0]
    sent = mine.get(f"{service.url}/workspaces/{query}&next=//evil.example/", allow_redirects=False)
    link = "/alice/" + sent.headers["Location"].partition("/alice/")[2]
    entered = mine.at(link, headers={"Accept": "text/html"})
    assert entered.headers["Location"] == f"{lab.path}/lab"
    assert mine.at(link, headers={"Accept": "text/html"}).status_code == 403
    assert mine.at(f"{lab.path}/api/x").status_code == 200


def test_pages_of_other_origins_cannot_act(lab, alice, visitor):
    mine = visitor(alice)
    mine.page(f"{lab.path}/lab")
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{lab.pk}", "http://localhost"):
        assert mine.at(f"{lab.path}/x", "POST", headers={"Origin": origin}).status_code == 403
        assert mine.at(f"{lab.path}/x", headers={"Origin": origin}).status_code == 403
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            open_socket(mine, f"{lab.path}/ws", origin=origin)
        assert refused.value.status_code == 403
    for site in ("cross-site", "same-site"):  # an image or a frame of another page, also of the platform's own host
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
        assert mine.at(f"{lab.path}/x", headers=headers).status_code == 403
        framed = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
        assert mine.at(f"{lab.path}/x", headers=framed).status_code == 403
        link = {**framed, "Sec-Fetch-Dest": "document"}
        assert mine.at(f"{lab.path}/x", headers=link).status_code == 200


@pytest.mark.long
def test_a_log_out_at_the_platform_ends_the_login(lab, alice, visitor, until):
    mine = visitor(alice)
    mine.page(f"{lab.path}/lab")
    assert mine.at(f"{lab.path}/x").status_code == 200
    Session.objects.all().delete()
    until(lambda: mine.at(f"{lab.path}/x").status_code == 401)  # an answer may be remembered for a second


def test_a_log_out_closes_the_websockets_of_that_browser_only(lab, alice, visitor, until):
    left, stays = visitor(alice), visitor(alice)
    links = []
    for browser in (left, stays):
        browser.page(f"{lab.path}/lab")
        links.append(open_socket(browser, f"{lab.path}/ws", header=["X-Workspace-Login: forged"]))
    assert left.platform.post("/logout").status_code == 302
    until(lambda: is_closed(links[0]))
    links[1].send("here")
    assert links[1].recv() == "HERE"
    links[1].close()


def test_a_session_that_expires_closes_its_websockets(lab, alice, visitor, until):
    mine = visitor(alice)
    mine.page(f"{lab.path}/lab")
    link = open_socket(mine, f"{lab.path}/ws")
    said = {"busy": False, "last": time.time(), "logins": [entering.digest(mine.login_of(lab)), "token:x", "?", 1]}
    mine.at(f"{lab.path}/write/activity", "PUT", json=said, headers={"Origin": mine.origin})
    Session.objects.update(expire_date=timezone.now() - timedelta(days=1))
    until(lambda: is_closed(link))


def test_the_platforms_session_does_not_let_a_workspaces_page_act_on_the_platform(lab, alice, visitor, service):
    """A workspace's scripts share the host, and with it cookies that scripts may read; not the origin."""
    mine = visitor(alice)
    mine.page(f"{lab.path}/lab")
    page = mine.get(f"{service.url}/workspaces/{lab.name}")
    token = page.text.partition('name="csrfmiddlewaretoken" value="')[2].partition('"')[0]
    assert token
    body = {"csrfmiddlewaretoken": token, "do": "stop"}
    address = f"{service.url}/workspaces/{lab.name}/change"
    assert mine.post(address, body, headers={"Origin": mine.origin}, allow_redirects=False).status_code == 403
    lab.refresh_from_db()
    assert lab.state == "ready"


@pytest.mark.long
def test_a_page_waits_while_the_workspace_starts_and_says_when_it_does_not_run(service, create, alice, visitor, settle,
                                                                               as_alice):  # fmt: skip
    row = create()
    mine = visitor(alice)
    starting = mine.page(f"/alice/{row.name}/lab")
    assert (starting.status_code, starting.headers["Retry-After"]) == (503, "2")
    assert "starting" in starting.text
    settle(row)
    assert mine.page(f"/alice/{row.name}/lab").status_code == 200
    assert as_alice.call("put", f"users/alice/workspaces/{row.name}:stop").status_code == 200
    settle(row, "stopped")
    stopped = mine.at(f"/alice/{row.name}/api/x")
    assert (stopped.status_code, "does not run" in stopped.json()["msg"]) == (503, True)
    assert requests.get(f"{mine.origin}/").status_code == 404
    nothing = visitor(alice).page(f"/alice/{next(NAMES)}/lab")
    assert nothing.status_code == 404
