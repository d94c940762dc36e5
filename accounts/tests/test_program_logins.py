"""Programs that a user lets act in their name, by a code typed on a page."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test import Client

from accounts import program_logins
from accounts.models import Throttle, Token
from conftest import Api

pytestmark = pytest.mark.django_db

PAGE = "/account/program"
BEGIN = "program_logins"


@pytest.fixture
def alice_page(alice):
    client = Client(enforce_csrf_checks=False)
    client.force_login(alice)
    return client


@pytest.fixture
def begun(as_anonymous):
    """Return the answer of a program's begin."""
    return as_anonymous.call("post", BEGIN, {"program": "mlp-laptop"}).json()


@pytest.fixture
def fetch(as_anonymous):
    """Return a function that asks for the token as the program does."""

    def ask(begun: dict, **other):
        given = {**begun, **other}
        return as_anonymous.call("post", f"{BEGIN}/{given['code']}", {"secret": given["secret"]})

    return ask


def test_a_program_gets_the_token_that_is_allowed(begun, fetch, alice_page):
    assert re.fullmatch(r"[B-Z]{4}-[B-Z]{4}", begun["code"])
    assert begun["url"].endswith(PAGE)
    assert begun["code"] not in begun["url"]
    assert fetch(begun).json() == {"state": "waiting", "user": "", "token": ""}
    asked = alice_page.post(PAGE, {"code": f" {begun['code'].lower().replace('-', ' ')} "}).content.decode()
    assert "mlp-laptop" in asked
    assert "127.0.0.1" in asked
    assert not Token.objects.filter(name__startswith="mlp-laptop").exists()
    done = alice_page.post(PAGE, {"code": begun["code"], "do": "allow", "scope": "read", "days": "30"})
    assert "is logged in as you" in done.content.decode()
    answer = fetch(begun).json()
    assert (answer["state"], answer["user"]) == ("allowed", "alice")
    assert fetch(begun).json() == answer, "an answer that was lost is asked for again"
    program = Api(answer["token"])
    assert program.call("get", "users/alice/jobs").status_code == 200
    assert program.call("post", "users/alice/jobs", {}).status_code == 403
    token = Token.objects.get(name=f"mlp-laptop-{begun['code'][:4].lower()}")
    assert (token.user.username, token.scope, round((token.expires - token.created) / timedelta(days=1))) == (
        "alice",
        "read",
        30,
    )


def test_without_its_secret_nobody_gets_it(begun, fetch, alice_page):
    alice_page.post(PAGE, {"code": begun["code"], "do": "allow", "scope": "full", "days": "7"})
    refusals = [fetch(begun, secret="x" * 43), fetch(begun, secret=""), fetch(begun, code="BCDF-GHJK"),
                fetch(begun, code="*"), fetch(begun, code="x" * 300)]  # fmt: skip
    assert [answer.status_code for answer in refusals] == [403] * 5
    assert all("mlp_n" not in answer.content.decode() for answer in refusals)


def test_what_is_denied_or_forgotten_gives_nothing(begun, fetch, alice_page):
    assert "is not logged in" in alice_page.post(PAGE, {"code": begun["code"], "do": "deny"}).content.decode()
    assert fetch(begun).json() == {"state": "denied", "user": "", "token": ""}
    again = alice_page.post(PAGE, {"code": begun["code"], "do": "allow", "scope": "full", "days": ""})
    assert (again.status_code, "is not valid, or has expired" in again.content.decode()) == (403, True)
    cache.clear()
    assert fetch(begun).status_code == 403
    assert not Token.objects.filter(name__startswith="mlp-laptop").exists()


def test_a_token_that_was_revoked_is_not_answered(begun, fetch, alice_page):
    alice_page.post(PAGE, {"code": begun["code"], "do": "allow", "scope": "full", "days": "7"})
    name = f"mlp-laptop-{begun['code'][:4].lower()}"
    alice_page.post("/account/tokens/revoke", {"name": name})
    assert fetch(begun).json()["state"] == "denied"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scope": "dataset"}, "must be one of"),
        ({"scope": "full", "days": "x"}, "must be a whole number"),
        ({"scope": "full", "days": "4000"}, "must be from 1 to 3650"),
    ],
)
def test_what_the_form_does_not_offer_is_refused(begun, fetch, alice_page, given, said):
    answer = alice_page.post(PAGE, {"code": begun["code"], "do": "allow", "days": "7", **given})
    assert (answer.status_code, said in answer.content.decode()) == (403, True)
    assert fetch(begun).json()["state"] == "waiting"


def test_only_who_is_logged_in_by_a_browser_confirms(begun, client, as_alice):
    assert client.post(PAGE, {"code": begun["code"], "do": "allow", "scope": "full"}).url.startswith(
        "/regist_login?next="
    )
    assert as_alice.call("post", BEGIN, {"program": "<b>"}).status_code == 403


def test_codes_and_programs_are_limited(as_anonymous, alice_page, monkeypatch):
    monkeypatch.setattr("accounts.throttle.CODES_PER_HOUR", 2)
    monkeypatch.setattr("accounts.throttle.PROGRAMS_PER_HOUR", 2)
    forms = [{}, {"do": "allow"}, {"do": "x"}, {"do": "deny"}, {}]
    typed = [alice_page.post(PAGE, {"code": "BCDFGHJK", **form}).content.decode() for form in forms]
    assert ["too many log-ins" in page for page in typed] == [False, False, True, True, True]
    asked = [as_anonymous.call("post", BEGIN, {"program": "x"}) for _ in range(3)]
    assert [answer.status_code for answer in asked] == [201, 201, 403]
    assert int(asked[-1].headers["Retry-After"]) > 0
    assert Throttle.objects.count() == 2
    assert asked[0].json()["expires_s"] == program_logins.LASTS_S
