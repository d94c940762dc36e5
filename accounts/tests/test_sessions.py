"""Sessions and frames: no session fixation, no session outlives its end, no framing, no open redirect."""

from __future__ import annotations

import gc
import importlib.util

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.test import Client

from conftest import PASSWORD
from mlp.tests.page_world import visitor
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db

PLANTED = "plantedplantedplantedplantedplan"
PAGES = [
    ("/regist_login", {"username": "alice", "password": PASSWORD, "action": "login"}),
    ("/regist_login", {"username": "carol", "password": PASSWORD, "action": "register"}),
    ("/admin/login/", {"username": "oscar", "password": PASSWORD}),
]


@pytest.mark.parametrize(("page", "fields"), PAGES)
def test_a_planted_session_is_never_used(alice, staff, page, fields):
    client = Client()
    client.cookies["sessionid"] = PLANTED
    assert client.post(page, fields).status_code == 302
    assert client.cookies["sessionid"].value != PLANTED
    stranger = Client()
    stranger.cookies["sessionid"] = PLANTED
    assert stranger.get("/index").status_code == 302
    assert not Session.objects.filter(session_key=PLANTED).exists()


@pytest.mark.parametrize(("page", "fields"), PAGES)
def test_login_replaces_the_session(alice, staff, page, fields):
    client = Client()
    session = client.session  # somebody has opened one, and knows its key
    session["note"] = "before"
    session.save()
    before = session.session_key
    client.cookies["sessionid"] = before
    assert client.post(page, fields).status_code == 302
    assert client.cookies["sessionid"].value != before
    stranger = Client()
    stranger.cookies["sessionid"] = before
    assert stranger.get("/index").status_code == 302


@pytest.mark.parametrize("way", ["/logout", "/admin/logout/"])
def test_after_logout_the_session_key_is_invalid(staff, way):
    client = visitor(staff)
    key = client.cookies["sessionid"].value
    client.post(way)
    stranger = Client()
    stranger.cookies["sessionid"] = key
    assert stranger.get("/index").status_code == 302
    assert stranger.get("/admin/").status_code == 302


def test_csrf_tokens_from_before_the_login_are_invalid(alice):
    client = Client(enforce_csrf_checks=True)
    client.get("/regist_login")
    planted = client.cookies["csrftoken"].value
    fields = {"username": "alice", "password": PASSWORD, "action": "login", "csrfmiddlewaretoken": planted}
    assert client.post("/regist_login", fields).status_code == 302
    assert client.cookies["csrftoken"].value != planted
    assert client.post("/logout", {"csrfmiddlewaretoken": planted}).status_code == 403


def test_the_session_cookie_is_http_only_and_same_site(alice):
    client = Client()
    client.post("/regist_login", {"username": "alice", "password": PASSWORD, "action": "login"})
    cookie = client.cookies["sessionid"]
    assert cookie["httponly"]
    assert cookie["samesite"] in {"Lax", "Strict"}
    assert bool(cookie["secure"]) == settings.SESSION_COOKIE_SECURE


@pytest.fixture
def under_tls(settings, monkeypatch):
    """Use the settings of a platform whose users reach it by https."""
    monkeypatch.setenv("MLP_URL", "https://mlp.example.org")
    spec = importlib.util.spec_from_file_location("settings_under_tls", settings.BASE_DIR / "mlp" / "settings.py")
    read = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(read)
    gc.enable()  # which the settings disable until a process has started
    names = ("SESSION_COOKIE_NAME", "CSRF_COOKIE_NAME", "SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE")
    for name in (*names, "SECURE_PROXY_SSL_HEADER"):
        setattr(settings, name, getattr(read, name))


def test_under_tls_no_other_host_and_no_plain_http_can_set_the_cookies(under_tls, alice):
    """Browsers accept names with this prefix only with these attributes."""
    client = Client(headers={"X-Forwarded-Proto": "https"})
    client.post("/regist_login", {"username": "alice", "password": PASSWORD, "action": "login"})
    client.get("/index")
    for name in ("__Host-sessionid", "__Host-csrftoken", "__Host-device"):
        cookie = client.cookies[name]
        assert (bool(cookie["secure"]), cookie["path"], cookie["domain"]) == (True, "/", "")
    key = client.cookies["__Host-sessionid"].value
    for name, status in (("__Host-sessionid", 200), ("sessionid", 302)):
        other = Client(headers={"X-Forwarded-Proto": "https"})
        other.cookies[name] = key
        assert other.get("/index").status_code == status


@pytest.mark.parametrize("address", few(["/index", "/regist_login", "/admin/", "/admin/login/", "/admin/jobs/job/",
                                     "/api/v1/docs", "/nothing", "/aiops", "/models", "/apps"], 4))  # fmt: skip
def test_no_page_can_be_framed(staff, address):
    client = Client() if "login" in address else visitor(staff)
    response = client.get(address)
    assert response["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in response["Content-Security-Policy"]


@pytest.mark.parametrize(
    "target", few(["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"], 2)
)
def test_the_admin_redirects_to_no_other_site(client, staff, make_user, target):
    fields = {"username": "oscar", "password": PASSWORD, "next": target}
    assert "evil" not in client.post("/admin/login/", fields)["Location"]
    waiting = make_user("carol", active=False)
    answer = client.post(f"/admin/accounts/user/{waiting.pk}/do/activate/", {"next": target})
    assert answer.status_code == 302
    assert "evil" not in answer["Location"]
    assert not answer["Location"].startswith("javascript")
