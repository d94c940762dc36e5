"""With `*` in MLP_WORKSPACE_URL each user's workspaces have an origin of their own, and answer at no other."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from django.test import Client

from datasets.webdav.gate import internal_key
from mlp.operators.tests.admin_world import put
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db

OWN, OTHERS = "alice.lab.example.org:8443", "bob.lab.example.org:8443"


@pytest.fixture(autouse=True)
def names(settings):
    settings.WORKSPACE_URL = "https://*.lab.example.org:8443"
    settings.GATEWAY_URL, settings.ALLOWED_HOSTS = "https://mlp.example.org", [".example.org", "testserver"]


@pytest.fixture
def logged_in():
    """Return a function that returns a browser in which a user has logged in at the platform."""

    def of(user) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return of


@pytest.fixture
def lab(alice):
    row = put(Workspace, alice, "lab", "ready")
    Workspace.objects.update(run_name="run", address="unix:/nowhere")
    return row


def asked(client: Client, verb: str, host: str, query: str = "", **headers):
    """Ask as the workspaces' gateway does, for a browser that opens a page."""
    given = {"X-Internal-Key": internal_key(), "X-Workspace-User": "alice", "X-Workspace-Name": "lab",
             "X-Workspace-Method": "GET", "X-Workspace-Uri": "/alice/lab/lab", "Accept": "text/html"}  # fmt: skip
    return client.get(f"/internal/workspaces/{verb}{query}", headers={**given, "Host": host, **headers})


def test_a_workspace_answers_at_its_owners_name_only(lab, alice, logged_in, as_alice):
    shown = as_alice.call("get", "users/alice/workspaces/lab").json()["url"]
    assert shown == f"https://{OWN}/alice/lab/lab"
    browser = Client()
    sent = asked(browser, "refusal", OWN)
    assert sent["Location"].startswith("https://mlp.example.org/workspaces/of/alice/lab/enter?mark=")
    page = urlsplit(sent["Location"])
    back = logged_in(alice).get(f"{page.path}?{page.query}", headers={"Host": "mlp.example.org"})
    assert back["Location"].startswith(f"https://{OWN}/alice/lab/-enter?code=")
    query = "?" + urlsplit(back["Location"]).query
    assert asked(browser, "enter", OTHERS, query).status_code == 403
    entered = asked(browser, "enter", OWN, query)
    assert (entered.status_code, entered["Location"]) == (302, "/alice/lab/lab")
    cookie = browser.cookies["workspace"]
    assert (cookie["path"], cookie["httponly"], cookie["samesite"], cookie["domain"]) == (
        "/alice/lab/", True, "Lax", "")  # fmt: skip
    here = asked(browser, "route", OWN)
    assert (here.status_code, here["X-Workspace-Base"]) == (204, "http://unix:/nowhere:")
    for host in (OTHERS, "lab.example.org:8443", "alice.lab.example.org", "mlp.example.org"):
        assert asked(browser, "route", host).status_code == 403
        assert asked(browser, "refusal", host).status_code == 404


def test_only_nginx_may_ask(lab):
    for verb in ("route", "refusal", "enter"):
        assert asked(Client(), verb, OWN, **{"X-Internal-Key": "x"}).status_code == 404


def test_a_page_gives_no_code_without_the_mark_of_a_browser(lab, alice, bob, logged_in):
    host = {"Host": "mlp.example.org"}
    for mark in ("", "x", "0" * 63, "0" * 64 + "%0a"):
        sent = logged_in(alice).get(f"/workspaces/lab/enter?mark={mark}", headers=host)
        assert sent["Location"] == f"https://{OWN}/alice/lab/lab"
    assert logged_in(bob).get(f"/workspaces/lab/enter?mark={'0' * 64}", headers=host).status_code == 404
