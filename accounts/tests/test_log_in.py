"""What a log-in by password leaves behind: no difference in time, few rows, no password in a log, no fault."""

from __future__ import annotations

import base64
import logging
from datetime import timedelta

import pytest
from django.contrib.auth import hashers
from django.test import Client
from django.utils import timezone

from accounts import lifecycle, logins, reconcile, throttle
from accounts.models import LoginAddress, Throttle, User
from conftest import PASSWORD

from .logins import FREE, GUESSER, HOME, LOGINS, admin, at, entered, page, token

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("long_waits")]


@LOGINS
@pytest.mark.parametrize("username", ["alice", "nobody"])
def test_as_much_is_computed_for_an_unknown_user(alice, settings, log_in, username):
    class Counting(hashers.MD5PasswordHasher):
        computed = 0

        def encode(self, password, salt):
            Counting.computed += 1
            return super().encode(password, salt)

    settings.PASSWORD_HASHERS = [f"{__name__}.Counting"]
    globals()["Counting"] = Counting
    log_in("wrong", GUESSER, username=username)
    assert Counting.computed == 1


def test_invented_names_are_remembered_no_longer_than_their_failures(alice):
    token("wrong", GUESSER, username="invented")
    assert not User.objects.filter(username="invented").exists()
    assert not LoginAddress.objects.exists()
    assert Throttle.objects.count() == FREE
    Throttle.objects.update(at=timezone.now() - throttle.KEPT - timedelta(seconds=1))
    reconcile._tidied = 0.0
    reconcile.run()
    assert not Throttle.objects.exists()


def test_a_refused_attempt_computes_and_stores_nothing(alice, monkeypatch):
    for _ in range(FREE):
        token("wrong", GUESSER)
    before = list(Throttle.objects.order_by("pk").values())
    monkeypatch.setattr(hashers, "verify_password", lambda *args, **options: pytest.fail("the password was checked"))
    assert "too many" in token(PASSWORD, GUESSER).json()["msg"]
    assert list(Throttle.objects.order_by("pk").values()) == before


def test_a_wrong_token_of_the_data_service_is_no_attempt_to_log_in(alice):
    pair = base64.b64encode(b"alice:mlp_u1_guess").decode()
    for _ in range(FREE * 20):
        answer = Client().get("/internal/data/verb", HTTP_AUTHORIZATION=f"Basic {pair}", **at(HOME))
        assert answer.status_code in {401, 404}
    assert entered(token(PASSWORD, HOME))


def test_the_current_password_cannot_be_guessed_in_a_stolen_session(alice):
    thief = Client()
    thief.force_login(alice)
    form = {"current": "wrong", "password": "another long horse"}
    for _ in range(FREE):
        assert "not your current password" in thief.post("/account/password", form).content.decode()
    form["current"] = PASSWORD
    assert "too many failed logins" in thief.post("/account/password", form).content.decode()
    assert entered(token(PASSWORD, HOME)), "the owner's log-in is not affected"


@LOGINS
def test_log_ins_and_failures_are_logged_without_the_password(owner, log_in, caplog):
    caplog.set_level(logging.INFO)
    log_in("secret guess", GUESSER)
    log_in(PASSWORD, HOME)
    assert f"log-in of alice from {GUESSER} failed" in caplog.text
    assert f"log-in of alice from {HOME}" in caplog.text
    assert "secret guess" not in caplog.text
    assert PASSWORD not in caplog.text


# --- an account that changes during a log-in -------------------------------------------------------------------------
@pytest.mark.parametrize("log_in", [page, admin])
def test_a_log_in_during_deactivation_is_refused_and_no_fault(owner, log_in, monkeypatch):
    real = logins.check

    def check(request, username, password):
        user = real(request, username, password)
        lifecycle.deregister(username=username, by="test")
        return user

    monkeypatch.setattr(logins, "check", check)
    browser = Client(raise_request_exception=False)
    assert log_in(PASSWORD, HOME, browser).status_code == 302
    assert browser.get("/account").status_code == 302, "not logged in"
    lifecycle.activate(username="alice", by="test")
    assert browser.get("/account").status_code == 302


def test_a_password_that_changes_during_a_log_in_stays_changed(alice, settings):
    """A hash of an older release is replaced at a log-in; that must not bring the old password back."""
    settings.PASSWORD_HASHERS = [
        "django.contrib.auth.hashers.MD5PasswordHasher",
        "django.contrib.auth.hashers.ScryptPasswordHasher",
    ]
    User.objects.filter(pk=alice.pk).update(password=hashers.make_password(PASSWORD, hasher="scrypt"))
    reader = User.objects.get(pk=alice.pk)
    lifecycle.change_password(user=alice, password="another long horse", by="alice")
    assert reader.check_password(PASSWORD)
    assert User.objects.get(pk=alice.pk).check_password("another long horse")
    User.objects.filter(pk=alice.pk).update(password=hashers.make_password(PASSWORD, hasher="scrypt"))
    assert User.objects.get(pk=alice.pk).check_password(PASSWORD)
    assert User.objects.get(pk=alice.pk).password.startswith("md5$")
