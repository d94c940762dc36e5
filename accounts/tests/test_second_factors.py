"""Second factors over HTTP: apps and recovery codes, each once; who must have one; what a password may still do."""

from __future__ import annotations

import re
import time

import pyotp
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts import lifecycle
from accounts.models import Factor, Notice, RecoveryCode
from accounts.signin import entering, factors
from conftest import PASSWORD, Api
from kernel.pages import address
from mlp.tests.tiers import few

from .logins import FREE, HOME, admin, at, entered, page, token

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("long_waits")]


def code_of(secret: str, later: int = 0) -> str:
    return pyotp.TOTP(secret).at(int(timezone.now().timestamp()) + 30 * later)


def set_up(client: Client) -> tuple[str, list[str]]:
    """Add an app by the page, and return its key and the recovery codes."""
    text = client.get("/account/security").content.decode()
    secret = re.search(r"<code>([A-Z2-7 ]+)</code>", text).group(1).replace(" ", "")
    text = client.post("/account/security/app", {"code": code_of(secret, -1), "name": "Phone"}).content.decode()
    codes = re.findall(r"(?m)(?:^|>)([a-z2-9]{5}-[a-z2-9]{5})$", text)
    assert len(codes) == 10
    return secret, codes


@pytest.fixture
def secured(alice):
    """Return alice's key and recovery codes."""
    client = Client()
    page(PASSWORD, HOME, client)
    return set_up(client)


def begun(password=PASSWORD, log_in=page, **options) -> Client:
    client = Client(raise_request_exception=False)
    response = log_in(password, HOME, client, **options)
    assert (response.status_code, response["Location"]) == (302, "/second_factor")
    return client


def name_in(client: Client) -> str:
    return client.get("/account").status_code == 200


@pytest.mark.parametrize("log_in", [page, admin])
def test_the_password_alone_logs_nobody_in(secured, staff, alice, log_in):
    lifecycle.set_staff(username="alice", staff=True, by="test")
    client = begun(log_in=log_in)
    assert not name_in(client)
    assert client.get("/api/v1/users/alice/token").status_code == 403
    response = client.post("/second_factor", {"code": code_of(secured[0])}, **at(HOME))
    assert response["Location"] == ("/admin/" if log_in is admin else "/index")
    assert name_in(client)


def test_a_code_works_once(secured):
    code = code_of(secured[0])
    assert begun().post("/second_factor", {"code": code})["Location"] == "/index"
    again = begun().post("/second_factor", {"code": code})
    assert again.status_code == 403
    assert "has been used" in again.content.decode()


def test_a_recovery_code_works_once_and_its_owner_is_notified(secured, alice):
    code = secured[1][3]
    assert begun().post("/second_factor", {"code": code.upper()}).status_code == 302
    assert begun().post("/second_factor", {"code": code}).status_code == 403
    assert RecoveryCode.objects.count() == 9
    assert "9 are left" in Notice.objects.filter(user=alice).latest("pk").reason


def test_codes_cannot_be_guessed(secured, alice):
    attacker = begun()
    attacker.cookies.pop("device", None)
    for _ in range(FREE):
        assert attacker.post("/second_factor", {"code": "000000"}).status_code == 403
    assert "too many failed logins" in attacker.post("/second_factor", {"code": code_of(secured[0])}).content.decode()
    assert not name_in(attacker)


def test_the_second_step_takes_ten_minutes_at_most_and_ends_with_the_password(secured, alice, monkeypatch):
    late, changed = begun(), begun()
    lifecycle.change_password(user=alice, password="another long horse", by="test")
    assert changed.get("/second_factor")["Location"] == "/regist_login"
    now = time.time()
    monkeypatch.setattr(entering.time, "time", lambda: now + entering.WAIT_S + 1)
    assert late.get("/second_factor")["Location"] == "/regist_login"


def test_the_token_call_with_a_password_says_that_a_token_is_needed(secured, alice, settings, bob):
    response = token(PASSWORD, HOME)
    assert response.status_code == 403
    assert "second factor" in response.json()["msg"]
    assert Api(lifecycle.token_of(alice)).call("get", "users/alice/token").status_code == 200
    assert entered(token(PASSWORD, HOME, username="bob"))
    settings.SECOND_FACTOR = "everybody"
    assert "second factor" in token(PASSWORD, HOME, username="bob").json()["msg"]
    assert Api(lifecycle.token_of(bob)).call("get", "users/bob/jobs").status_code == 200


def test_where_one_is_required_the_log_in_sets_it_up(alice, bob, settings):
    settings.SECOND_FACTOR = "everybody"
    client = Client()
    assert page(PASSWORD, HOME, client)["Location"] == "/account/security"
    assert not name_in(client)
    assert client.post("/account/security/remove", {"factor": 1}).status_code == 302
    secret, _codes = set_up(client)
    assert name_in(client)
    client.post("/logout")
    page(PASSWORD, HOME, client)
    assert client.post("/second_factor", {"code": code_of(secret)})["Location"] == "/index"
    row = Factor.objects.get()
    client.post("/account/security/remove", {"factor": row.pk})
    assert Factor.objects.exists(), "the last one stays while one is required"


def test_only_administrators_may_be_asked(alice, staff, settings):
    settings.SECOND_FACTOR = "administrators"
    assert page(PASSWORD, HOME)["Location"] == "/index"
    assert page(PASSWORD, HOME, username="oscar")["Location"] == "/account/security"
    assert admin(PASSWORD, HOME, username="oscar")["Location"] == "/account/security"


def test_sessions_from_before_the_requirement_end(alice, settings):
    client = Client(raise_request_exception=False)
    client.force_login(alice)
    assert name_in(client)
    settings.SECOND_FACTOR = "everybody"
    assert client.get("/api/v1/users/alice/jobs").status_code == 403
    assert "A second factor is required now" in client.get("/regist_login").content.decode()


@pytest.mark.long
def test_a_session_that_is_old_has_to_give_the_password(secured, alice):
    client = Client()
    client.force_login(alice)
    row = Factor.objects.get()
    client.post("/account/security/remove", {"factor": row.pk})
    client.post("/account/security/codes")
    assert Factor.objects.exists()
    assert "Current password" in client.get("/account/security").content.decode()
    assert client.post("/account/security", {"current": "wrong"}).status_code == 403
    assert client.post("/account/security", {"current": PASSWORD})["Location"] == "/account/security"
    client.post("/account/security/remove", {"factor": row.pk})
    assert not Factor.objects.exists()
    assert not RecoveryCode.objects.exists()
    assert page(PASSWORD, HOME)["Location"] == "/index"


def test_one_cannot_remove_the_factor_of_another(secured, bob):
    client = Client()
    page(PASSWORD, HOME, client, username="bob")
    client.post("/account/security/remove", {"factor": Factor.objects.get().pk})
    assert Factor.objects.exists()


def test_an_administrator_removes_them_for_who_has_lost_them(secured, alice, staff_client):
    staff_client.post(reverse("admin:accounts_user_verb", args=[alice.pk, "factors"]), {"confirmed": "yes"})
    assert page(PASSWORD, HOME)["Location"] == "/index"


def test_the_key_and_the_codes_are_not_stored_as_they_are(secured):
    row = Factor.objects.get()
    assert secured[0] not in row.secret
    assert not set(RecoveryCode.objects.values_list("digest", flat=True)) & {
        code.replace("-", "") for code in secured[1]
    }


@pytest.mark.parametrize(
    "body", few(["", "[]", "{", '{"credential": 1}', '{"credential": {"id": "a"}}', '{"credential": null}'], 2)
)
def test_an_answer_that_is_no_passkey_is_refused(alice, client, body):
    client.post("/second_factor/passkey", "{}", content_type="application/json")
    response = client.post("/second_factor/passkey", body, content_type="application/json")
    assert response.status_code in ({200} if body == "" else {403})
    assert not name_in(client)


def test_passkeys_need_a_name_and_https(rf):
    assert not factors.passkeys_work("http://127.0.0.1:30001")
    assert not factors.passkeys_work("https://[::1]:1")
    assert not factors.passkeys_work("http://ml.example")
    assert factors.passkeys_work("https://ml.example")
    assert factors.passkeys_work(address(rf.get("/", HTTP_HOST="localhost:1")))
