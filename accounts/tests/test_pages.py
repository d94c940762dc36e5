"""Registration, login, logout and the account page in the browser."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import urljoin

import pytest
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.models import Session
from django.utils import timezone

from accounts import lifecycle, throttle
from accounts.models import User
from conftest import PASSWORD
from kernel.pages import safe_next
from mlp.tests.page_world import EVIL, markup, visible_text, visitor
from mlp.tests.tiers import few

pytestmark = pytest.mark.django_db

ADDRESSES = ["/regist_login", "/regist_login.jsp"]
ELSEWHERE = [
    "//evil.example/x",
    "///evil.example",
    "https://evil.example/",
    "http:///evil.example",
    "https:evil.example",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,x",
    "\\\\evil.example",
    "/\\evil.example",
    "\\/evil.example",
    "/\t/evil.example",
    " //evil.example",
    "\x00//evil.example",
    "//testserver@evil.example",
    "http://testserver:pass@evil.example/",
    "nowhere",
    "logout",
    "..",
    "",
]


def form(username="alice", password=PASSWORD, action="login", **more) -> dict:
    return {"username": username, "password": password, "action": action, **more}


def read_by_a_browser(location: str) -> str:
    """Return where a browser goes, which takes backslashes for slashes and leaves out tabs and line breaks."""
    return urljoin("http://testserver/account", re.sub(r"[\t\r\n]", "", location).replace("\\", "/").strip())


def logged_in(client) -> str:
    """Return the username of the session, or ""."""
    pk = client.session.get(SESSION_KEY)
    return User.objects.get(pk=pk).username if pk else ""


class TestLogIn:
    @pytest.mark.parametrize("address", ADDRESSES)
    def test_the_form_is_there(self, address):
        response = visitor().get(address)
        assert response.status_code == 200
        names = [attrs.get("name") for tag, attrs in markup(response).tags if tag in {"input", "button"}]
        assert {"username", "password", "action", "csrfmiddlewaretoken"} <= set(names)
        assert "no-store" in response["Cache-Control"]

    @pytest.mark.parametrize("address", ADDRESSES)
    def test_registration_leads_to_the_index(self, alice, address):
        client = visitor()
        response = client.post(address, form())
        assert (response.status_code, response["Location"]) == (302, "/index")
        assert logged_in(client) == "alice"

    def test_a_logged_in_user_is_redirected_to_the_index(self, alice):
        assert visitor(alice).get("/regist_login")["Location"] == "/index"

    @pytest.mark.parametrize(
        ("username", "password"),
        few(
            [
                ("alice", "not hers"),
                ("alice", ""),
                ("nobody", PASSWORD),
                ("", ""),
                ("ALICE", PASSWORD),
                ("a\x00", PASSWORD),
            ],
            3,
        ),
    )
    def test_wrong_credentials_get_one_generic_message(self, alice, username, password):
        client = visitor()
        response = client.post("/regist_login", form(username, password))
        assert response.status_code == 403
        assert "wrong username or password" in visible_text(response)
        assert logged_in(client) == ""
        assert password == "" or password not in response.content.decode()

    def test_entered_values_are_kept_and_escaped(self, alice):
        response = visitor().post("/regist_login", form(EVIL, "wrong", next="/jobs"))
        page = markup(response)
        assert page.values["username"] == EVIL
        assert page.values["next"] == "/jobs"
        assert page.inline == []
        assert not page.values.get("password")

    def test_password_guessing_is_rate_limited(self, alice, settings, monkeypatch):
        settings.LOGIN_FAILURES_BEFORE_SLOWDOWN = 3
        monkeypatch.setattr(throttle, "FIRST_S", 60)
        client = visitor()
        for _ in range(4):
            client.post("/regist_login", form(password="wrong"))
        response = client.post("/regist_login", form())
        assert response.status_code == 403
        assert "too many failed logins" in visible_text(response)
        assert logged_in(client) == ""

    def test_an_inactive_user_sees_why_login_is_refused(self, make_user):
        make_user("carol", active=False)
        client = visitor()
        response = client.post("/regist_login", form("carol"))
        assert response.status_code == 403
        assert "not active" in visible_text(response)
        assert logged_in(client) == ""

    def test_login_creates_a_new_session_key(self, alice):
        client = visitor()
        session = client.session
        session["planted"] = "by somebody else"
        session.save()
        client.cookies["sessionid"] = before = session.session_key
        client.post("/regist_login", form())
        assert client.cookies["sessionid"].value != before
        assert logged_in(client) == "alice"
        stranger = visitor()
        stranger.cookies["sessionid"] = before
        assert stranger.get("/index").status_code == 302

    def test_the_session_cookie_is_http_only(self, alice):
        client = visitor()
        client.post("/regist_login", form())
        assert client.cookies["sessionid"]["httponly"]
        assert client.cookies["sessionid"]["samesite"] == "Lax"


class TestRedirect:
    @pytest.mark.parametrize("target", ["/jobs", "/jobs/fit?x=1&y=2", "/datasets#main"])
    def test_login_redirects_to_the_next_address(self, alice, target):
        assert visitor().post("/regist_login", form(next=target))["Location"] == target

    @pytest.mark.parametrize("target", few(ELSEWHERE, 6))
    def test_login_never_redirects_to_another_site(self, alice, target):
        assert visitor().post("/regist_login", form(next=target))["Location"] == "/index"
        assert visitor(alice).get("/regist_login", {"next": target})["Location"] == "/index"
        response = visitor(alice).post("/account/token", {"next": target})
        assert response["Location"] == "/account"

    @pytest.mark.parametrize("target", few(ELSEWHERE, 6))
    @pytest.mark.parametrize("path", ["/set_language", "/logout"])
    def test_a_language_and_a_logout_never_redirect_to_another_site(self, alice, path, target):
        named = {"next": target, "language": "zh-hans"}
        for method in ("post", "get"):
            sent = getattr(visitor(alice), method)(path, named, HTTP_REFERER=target.strip("\0 "))
            assert read_by_a_browser(sent.get("Location", "/")).startswith("http://testserver/")

    def test_a_line_break_adds_no_header(self, alice):
        response = visitor().post("/regist_login", form(next="/jobs\r\nX-Planted: 1"))
        assert response.status_code in {302, 400}
        assert "X-Planted" not in response

    def test_the_next_address_survives_a_failed_login(self, alice):
        response = visitor().get("/jobs/fit?a=1&b=2", follow=True)
        assert response.redirect_chain == [("/regist_login?next=/jobs/fit%3Fa%3D1%26b%3D2", 302)]
        assert markup(response).values["next"] == "/jobs/fit?a=1&b=2"

    def test_without_a_next_address_the_default_is_used(self, rf):
        assert safe_next(rf.get("/"), "/there") == "/there"


class TestRegister:
    @pytest.mark.parametrize("address", ADDRESSES)
    def test_it_logs_in_and_ends_at_the_index(self, default_tenant, address):
        client = visitor()
        response = client.post(address, form("carol", action="register"))
        assert (response.status_code, response["Location"]) == (302, "/index")
        assert logged_in(client) == "carol"
        assert "carol" in visible_text(client.get("/index"))

    @pytest.mark.parametrize(
        ("username", "password", "words"),
        few(
            [
                ("alice", PASSWORD, "is already taken"),
                ("Carol", PASSWORD, "letters a to z"),
                ("", PASSWORD, "letters a to z"),
                (EVIL, PASSWORD, "letters a to z"),
                ("c\x00", PASSWORD.upper(), ""),
                ("carol", "short", "8 to 128 characters"),
                ("carol", "x" * 129, "8 to 128 characters"),
                ("carol", "12345678901", "numeric"),
                ("carol", "password", "too common"),
                ("carolina", "carolinas", "similar"),
            ],
            4,
        ),
    )
    def test_wrong_fields(self, alice, username, password, words):
        client = visitor()
        response = client.post("/regist_login", form(username, password, "register"))
        if "\x00" in username:  # cannot be typed: what is left of it may well be taken
            assert response.status_code in {302, 403}
            return
        assert response.status_code == 403
        assert words in visible_text(response)
        assert markup(response).values["username"] == username
        assert markup(response).inline == []
        assert password not in [attrs.get("value") for _tag, attrs in markup(response).tags]
        assert list(User.objects.values_list("username", flat=True)) == ["alice"]
        assert logged_in(client) == ""

    def test_registering_a_taken_name_does_not_log_in(self, alice):
        """Also not with the right password: the button said "register"."""
        client = visitor()
        assert client.post("/regist_login", form(action="register")).status_code == 403
        assert logged_in(client) == ""

    def test_with_approval_a_new_user_cannot_log_in_yet(self, default_tenant, settings):
        settings.REGISTRATION_NEEDS_APPROVAL = True
        client = visitor()
        response = client.post("/regist_login", form("carol", action="register"), follow=True)
        assert response.status_code == 200
        assert "An administrator" in visible_text(response)
        assert logged_in(client) == ""
        lifecycle.activate(username="carol", by="test")
        client.post("/regist_login", form("carol"))
        assert logged_in(client) == "carol"

    def test_registrations_are_limited_by_address(self, default_tenant, settings):
        settings.REGISTRATIONS_PER_HOUR = 1
        visitor().post("/regist_login", form("carol", action="register"))
        response = visitor().post("/regist_login", form("dora", action="register"))
        assert response.status_code == 403
        assert "too many registrations" in visible_text(response)
        assert not User.objects.filter(username="dora").exists()


class TestLogOut:
    def test_only_by_post(self, alice):
        client = visitor(alice)
        assert client.get("/logout").status_code == 405
        assert logged_in(client) == "alice"

    def test_logout_ends_the_session(self, alice):
        client = visitor(alice)
        key = client.cookies["sessionid"].value
        assert client.post("/logout")["Location"] == "/regist_login"
        old = visitor()
        old.cookies["sessionid"] = key
        assert old.get("/index").status_code == 302


class TestAccount:
    def test_the_page_shows_the_same_token_as_rest(self, alice):
        response = visitor(alice).get("/account")
        assert lifecycle.token_of(alice) in response.content.decode()
        assert "no-store" in response["Cache-Control"]

    def test_a_new_token_revokes_the_old_one(self, alice, api):
        old = lifecycle.token_of(alice)
        client = visitor(alice)
        page = client.post("/account/token", {"next": "/account"}, follow=True)
        new = lifecycle.token_of(alice)
        assert new != old
        assert new in page.content.decode()
        assert old not in page.content.decode()
        assert api(old).call("get", "users/alice/token").status_code == 403
        assert api(new).call("get", "users/alice/token").status_code == 200

    @pytest.mark.parametrize("address", ["/account/token"])
    def test_only_by_post(self, alice, address):
        assert visitor(alice).get(address).status_code == 405

    def test_a_new_password_ends_the_other_sessions(self, alice):
        here, there = visitor(alice), visitor(alice)
        response = here.post("/account/password", {"current": PASSWORD, "password": "another good one"}, follow=True)
        assert response.redirect_chain == [("/account", 302)]
        assert "Your password is changed" in visible_text(response)
        assert here.get("/index").status_code == 200
        assert there.get("/index").status_code == 302
        fresh = visitor()
        assert fresh.post("/regist_login", form()).status_code == 403
        assert fresh.post("/regist_login", form(password="another good one")).status_code == 302

    @pytest.mark.parametrize(
        ("current", "password", "words"),
        few(
            [
                ("wrong", "another good one", "not your current password"),
                ("", "another good one", "not your current password"),
                (PASSWORD, "short", "8 to 128 characters"),
                (PASSWORD, "", "8 to 128 characters"),
                (PASSWORD, "12345678901", "numeric"),
            ],
            2,
        ),
    )
    def test_wrong_passwords(self, alice, current, password, words):
        response = visitor(alice).post("/account/password", {"current": current, "password": password}, follow=True)
        assert words in visible_text(response)
        assert current == "" or current not in response.content.decode().replace(lifecycle.token_of(alice), "")
        alice.refresh_from_db()
        assert alice.check_password(PASSWORD)

    @pytest.mark.parametrize("typed", few(["", "Alice", "bob", EVIL], 2))
    def test_deactivation_asks_for_confirmation(self, alice, typed):
        response = visitor(alice).post("/account/deregister", {"confirm": typed}, follow=True)
        assert "Type your username to confirm" in visible_text(response)
        assert markup(response).inline == []
        alice.refresh_from_db()
        assert alice.is_active

    def test_deactivation_ends_sessions_and_tokens(self, alice, api):
        token, here, there = lifecycle.token_of(alice), visitor(alice), visitor(alice)
        response = here.post("/account/deregister", {"confirm": "alice"}, follow=True)
        assert response.redirect_chain == [("/regist_login", 302)]
        assert "Your account is deactivated" in visible_text(response)
        alice.refresh_from_db()
        assert not alice.is_active
        assert [client.get("/index").status_code for client in (here, there)] == [302, 302]
        assert api(token).call("get", "users/alice/token").status_code == 403
        assert visitor().post("/regist_login", form()).status_code == 403
        assert visitor().post("/regist_login", form(action="register")).status_code == 403


class TestLimitsOfASession:
    @pytest.mark.parametrize(("staff", "lasts_s"), [(False, 1000), (True, 300)])
    def test_it_ends_at_a_fixed_time_whatever_is_done_in_it(self, make_user, settings, staff, lasts_s):
        settings.SESSION_COOKIE_AGE, settings.ADMIN_SESSION_S = 1000, 300
        make_user("carol", is_staff=staff)
        client, begun = visitor(), timezone.now()
        client.post("/regist_login", form("carol"))
        ends = Session.objects.get().expire_date
        assert begun <= ends - timedelta(seconds=lasts_s) <= timezone.now()
        assert lasts_s - 60 < int(client.cookies["sessionid"]["max-age"]) <= lasts_s
        client.post("/datasets/new", {"name": "digits", "size": "5", "mark": "m"})  # is remembered in the session
        client.post("/account/password", {"current": PASSWORD, "password": "another long horse"})
        assert Session.objects.get().expire_date == ends

    def test_an_expired_session_is_none(self, alice):
        client = visitor()
        client.post("/regist_login", form())
        assert client.get("/account").status_code == 200
        Session.objects.update(expire_date=timezone.now())
        assert client.get("/account").status_code == 302


def test_an_operator_may_require_longer_passwords(alice, settings):
    settings.PASSWORD_MIN_LENGTH = 15
    client = visitor()
    assert "15 to 128 characters" in visible_text(client.get("/regist_login"))
    response = client.post("/regist_login", form("carol", "x7-Vq2-Lp9-Ts", action="register"))
    assert "15 to 128 characters" in visible_text(response)
    client.post("/regist_login", form())
    assert logged_in(client) == "alice", "existing passwords stay valid"
    assert 'minlength="15"' in client.get("/account").content.decode()


def test_the_owner_is_notified_of_changed_credentials(alice, staff, caplog):
    caplog.set_level("INFO")
    lifecycle.change_password(user=alice, password="another long horse", by="operator:oscar")
    lifecycle.rotate_token(user=alice, by="alice")
    page = visible_text(visitor(User.objects.get(pk=alice.pk)).get("/notifications"))
    assert "Your password was changed by oscar." in page
    assert "Your API token was replaced by alice." in page
    assert "alice: Your password was changed" in caplog.text
    assert "another long horse" not in caplog.text
