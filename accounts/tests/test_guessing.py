"""Guessing passwords slows the guesser, not the owner: at the log-in page, the admin's form and the token call."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.contrib.auth import hashers
from django.db import connections
from django.db.models import F
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts import logins, throttle
from accounts.models import LoginAddress, Notice, Throttle
from conftest import PASSWORD, Api
from kernel import broker
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few

from .logins import CAFE, FREE, GUESSER, HOME, LOGINS, admin, at, entered, page, token

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("long_waits")]


# --- the guesser ---------------------------------------------------------------------------------------------------
@LOGINS
def test_a_guesser_at_one_address_is_slowed_down(owner, log_in):
    for _ in range(FREE):
        assert "too many" not in log_in("wrong", GUESSER).content.decode()
    assert "too many failed logins; try again in 60 s" in log_in(PASSWORD, GUESSER).content.decode()


@LOGINS
def test_guessers_at_many_addresses_are_slowed_down_together(owner, log_in):
    free = FREE * logins.OF_AN_ACCOUNT
    for number in range(free):
        assert "too many" not in log_in("wrong", f"198.51.100.{number}").content.decode()
    assert not entered(log_in(PASSWORD, "192.0.2.200"))


def test_one_who_tries_many_accounts_is_slowed_down(alice, bob):
    for number in range(FREE * logins.OF_A_NETWORK):
        assert token("wrong", GUESSER, username="user" + "abcdefghij"[number % 10] * (number // 10 + 1)).json()
    assert "too many" in token(PASSWORD, GUESSER, username="bob").json()["msg"]
    assert entered(token(PASSWORD, HOME, username="bob"))


def test_the_addresses_of_one_ipv6_client_count_as_one(alice):
    for number in range(FREE):
        token("wrong", f"2001:db8:1:2::{number + 1:x}")
    assert "too many" in token(PASSWORD, "2001:db8:1:2:ffff::9").json()["msg"]
    assert entered(token(PASSWORD, "2001:db8:1:3::1"))


def test_an_ipv4_client_is_the_same_in_ipv6_notation(alice):
    for _ in range(FREE):
        token("wrong", f"::ffff:{GUESSER}")
    assert "too many" in token(PASSWORD, GUESSER).json()["msg"]


def test_waits_grow_and_failures_are_forgotten(alice):
    for _ in range(FREE):
        token("wrong", GUESSER)
    Throttle.objects.update(until=timezone.now())
    assert "wrong" in token("wrong", GUESSER).json()["msg"]
    assert "119" in (wait := token("wrong", GUESSER).json()["msg"]) or "120" in wait
    Throttle.objects.update(until=timezone.now(), at=timezone.now() - timedelta(seconds=logins.FORGET_S * 3))
    for _ in range(2):
        assert "wrong" in token("wrong", GUESSER).json()["msg"], "three of the four are forgotten"
    assert "too many" in token("wrong", GUESSER).json()["msg"]


def test_a_clock_that_is_set_back_prolongs_no_wait(alice):
    for _ in range(FREE):
        token("wrong", GUESSER)
    Throttle.objects.update(until=F("until") + timedelta(hours=1), at=F("at") + timedelta(hours=1))
    assert "try again in 60 s" in token(PASSWORD, GUESSER).json()["msg"]


def test_the_limits_survive_a_restart_of_valkey(alice):
    for _ in range(FREE):
        token("wrong", GUESSER)
    broker.broker().client.flushdb()
    assert "too many" in token(PASSWORD, GUESSER).json()["msg"]


@pytest.mark.django_db(transaction=True)
def test_guesses_at_the_same_time_are_counted_before_they_are_checked(alice):
    def guess(_number: int) -> str:
        try:
            return token("wrong", GUESSER).json()["msg"]
        finally:
            connections.close_all()

    with ThreadPoolExecutor(throttle.AT_ONCE) as pool:
        answers = list(pool.map(guess, range(12)))
    assert sum("wrong" in answer for answer in answers) == FREE


@pytest.mark.django_db(transaction=True)
def test_strangers_that_try_at_the_same_time_leave_threads_to_others(alice, bob, monkeypatch):
    """Each check takes long on purpose; with all threads at it, nobody else would be answered."""
    assert entered(token(PASSWORD, HOME))
    entries, free = threading.Semaphore(0), threading.Event()
    real = hashers.MD5PasswordHasher.encode

    def slow(self, password, salt):
        if password == "wrong":
            entries.release()
            assert free.wait(LIMIT_S)
        return real(self, password, salt)

    monkeypatch.setattr(hashers.MD5PasswordHasher, "encode", slow)

    def guess(number: int) -> None:
        try:
            token("wrong", f"198.51.100.{number}", username="invented")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(throttle.AT_ONCE) as pool:
        guesses = [pool.submit(guess, number) for number in range(throttle.AT_ONCE)]
        assert all(entries.acquire(timeout=LIMIT_S) for _ in guesses)
        refused = token(PASSWORD, GUESSER, username="bob")
        assert "too many log-ins at the moment" in refused.json()["msg"]
        assert refused["Retry-After"] == str(throttle.BUSY_S)
        body = {"username": "carol", "password": PASSWORD}
        assert "at the moment" in Api().refused("post", "users", body, **at(GUESSER))
        assert entered(token(PASSWORD, HOME)), "the owner is no stranger"
        free.set()
    assert entered(token(PASSWORD, GUESSER, username="bob")), "nothing was counted"


# --- the owner -----------------------------------------------------------------------------------------------------
def besiege() -> None:
    """Let guessers at many addresses, among them the owner's cafe, use up what all strangers have together."""
    for number in range(FREE * logins.OF_AN_ACCOUNT):
        token("wrong", CAFE if number < FREE else f"198.51.100.{number}")
    assert "too many" in token("wrong", "192.0.2.1").json()["msg"]


@LOGINS
def test_the_owner_logs_in_from_a_usual_address_while_others_guess(owner, log_in):
    assert entered(token(PASSWORD, HOME))
    besiege()
    assert entered(log_in(PASSWORD, HOME))


@pytest.mark.parametrize("first", few([page, admin], 1))
@pytest.mark.parametrize("log_in", [page, admin])
def test_the_owners_browser_logs_in_from_anywhere_while_others_guess(owner, first, log_in):
    browser = Client()
    assert entered(first(PASSWORD, HOME, browser))
    browser.post("/logout")
    besiege()
    assert not entered(log_in(PASSWORD, CAFE)), "another browser at that place is a stranger's"
    assert entered(log_in(PASSWORD, CAFE, browser)), "also where a guesser is"


@pytest.mark.long
def test_the_browser_that_registered_is_known(default_tenant):
    browser = Client()
    form = {"username": "alice", "password": PASSWORD, "action": "register"}
    assert browser.post("/regist_login", form, **at(HOME)).status_code == 302
    browser.post("/logout")
    besiege()
    assert entered(page(PASSWORD, CAFE, browser))


@pytest.mark.long
def test_the_session_and_the_token_are_not_affected(as_alice, alice):
    session = Client()
    session.force_login(alice)
    besiege()
    assert session.get("/api/v1/users/alice/token").status_code == 200
    assert as_alice.call("get", "users/alice/token").status_code == 200


@LOGINS
def test_the_owner_is_slowed_down_for_their_own_failures_only(owner, log_in):
    browser = Client()
    page(PASSWORD, HOME, browser)
    browser.post("/logout")
    for _ in range(FREE):
        log_in("typing error", HOME, browser)
    assert not entered(log_in(PASSWORD, HOME, browser))


def test_a_device_cookie_is_good_for_its_own_accounts_only(alice, bob):
    browser = Client()
    assert entered(page(PASSWORD, HOME, browser, "bob"))
    browser.post("/logout")
    besiege()
    assert not entered(page(PASSWORD, CAFE, browser, "alice"))
    cookie = browser.cookies["device"].value
    assert browser.cookies["device"]["httponly"]
    assert browser.cookies["device"]["samesite"] == "Lax"
    for forged in (cookie[:-1] + ("a" if cookie[-1] != "a" else "b"), "e30:x:y", "\xe9", "x" * 5000):
        stranger = Client()
        stranger.cookies["device"] = forged
        for _ in range(FREE):
            page("wrong", "192.0.2.77", stranger, "bob")
        assert not entered(page(PASSWORD, "192.0.2.77", stranger, "bob"))
        Throttle.objects.all().delete()


@pytest.mark.long
def test_a_browser_of_several_users_knows_all_of_them(alice, bob):
    browser = Client()
    for username in ("alice", "bob"):
        page(PASSWORD, HOME, browser, username)
        browser.post("/logout")
    LoginAddress.objects.all().delete()
    besiege()
    assert entered(page(PASSWORD, CAFE, browser, "alice"))


@pytest.mark.long
def test_an_administrator_sets_a_password_and_strangers_failures_are_forgotten(alice, staff_client):
    besiege()
    form = {"password": "another long horse", "again": "another long horse", "confirmed": "yes"}
    staff_client.post(reverse("admin:accounts_user_verb", args=[alice.pk, "password"]), form)
    assert entered(token("another long horse", "192.0.2.1"))


def test_the_owner_sees_the_failures_at_the_next_log_in(alice):
    for _ in range(2):
        page("typing error", HOME)
    browser = Client()
    page(PASSWORD, HOME, browser)
    assert not Notice.objects.exists(), "typing errors"
    for address in (GUESSER, GUESSER, CAFE):
        token("wrong", address)
    assert not Notice.objects.exists()
    browser.post("/logout")
    page(PASSWORD, HOME, browser)
    notice = Notice.objects.get(user=alice)
    assert notice.reason == f"3 failed log-ins with your username, from {GUESSER}, {CAFE}"
    assert GUESSER in browser.get("/notifications").content.decode()
    page(PASSWORD, HOME, browser)
    assert Notice.objects.count() == 1


def test_the_owner_is_notified_at_once_when_strangers_have_used_up_their_attempts(alice):
    besiege()
    assert f"{FREE * logins.OF_AN_ACCOUNT} failed log-ins" in Notice.objects.get(user=alice).reason


# --- the address ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "header", ["HTTP_X_FORWARDED_FOR", "HTTP_X_REAL_IP", "HTTP_FORWARDED", "HTTP_CLIENT_IP", "HTTP_TRUE_CLIENT_IP"]
)
@pytest.mark.parametrize("key", few([None, "", "guessed", "\xff"], 1))
def test_an_address_that_the_client_claims_is_not_believed(alice, header, key):
    for number in range(FREE):
        Api().call("get", "users/alice/token", **claim(header, key, f"192.0.2.{number}", "wrong"))
    answer = Api().call("get", "users/alice/token", **claim(header, key, "192.0.2.250", PASSWORD))
    assert "too many" in answer.json()["msg"]


def claim(header: str, key: str | None, address: str, password: str) -> dict:
    pair = base64.b64encode(f"alice:{password}".encode()).decode()
    proof = {} if key is None else {"HTTP_X_GATEWAY_KEY": key}
    return {header: address, "HTTP_AUTHORIZATION": f"Basic {pair}", "REMOTE_ADDR": "127.0.0.1", **proof}
