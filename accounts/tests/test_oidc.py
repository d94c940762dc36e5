"""Sign-in at a real provider of OpenID Connect: new users, groups, connected accounts, and every wrong answer."""

from __future__ import annotations

import html
import time

import pytest
from django.contrib.sessions.models import Session

from accounts import lifecycle, sessions
from accounts.models import Identity, Preference, State, User
from accounts.signin import oidc
from conftest import PASSWORD
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from resources.models import Tenant

from .logins import HOME, page
from .provider import Browser, Corp, install

pytestmark = pytest.mark.django_db
ANNA = {"sub": "s1", "preferred_username": "Anna.Müller2@corp.example", "email": "anna@corp.example",
        "email_verified": True, "groups": ["ml", "staff"]}  # fmt: skip


@pytest.fixture(scope="module")
def server():
    install()
    running = Corp()
    yield running
    running.close()


@pytest.fixture
def corp(server, settings):
    oidc.forget()
    settings.OIDC_PROVIDERS = (server.settings(),)
    server.says(ANNA)
    return server


def prove(client) -> None:
    assert client.post("/account/security", {"current": PASSWORD}).status_code == 302


def test_somebody_new_gets_an_account_and_finds_it_again(corp):
    browser = Browser()
    response = browser.sign_in("/signin/corp?next=/jobs")
    assert (response.status_code, response["Location"]) == (302, "/jobs")
    assert browser.name == "annamuller"
    user = User.objects.get(username="annamuller")
    assert not user.has_usable_password()
    assert Preference.objects.get(user=user).email == "anna@corp.example"
    corp.says({**ANNA, "preferred_username": "renamed"})
    again = Browser()
    again.sign_in()
    assert again.name == "annamuller", "the subject counts, not the name"
    assert User.objects.count() == 1
    assert len(sessions.visits_of(user)) == 2


@pytest.mark.parametrize(
    "target", few(["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"], 2)
)
def test_a_sign_in_leads_to_this_host_only(corp, target):
    assert Browser().sign_in(f"/signin/corp?next={target}")["Location"] == "/index"


def test_the_log_in_page_offers_it_beside_the_password(corp, client, alice):
    assert "Log in with Corp" in client.get("/regist_login").content.decode()
    assert page(PASSWORD, HOME).status_code == 302


def test_groups_give_a_tenant_and_administrators_and_take_them_back(corp, settings):
    Tenant.objects.create(name="research", cpu=1, gpu=0, ram=100, rom=1)
    settings.OIDC_PROVIDERS = (
        corp.settings(administrators=("staff",), tenants=(("ml", "research", "member"),), allowed=("ml", "other")),
    )
    browser = Browser()
    browser.sign_in()
    user = User.objects.get(username="annamuller")
    assert (user.is_staff, user.tenant.name) == (True, "research")
    corp.says({**ANNA, "groups": ["ml"]})
    Browser().sign_in()
    user.refresh_from_db()
    assert not user.is_staff
    corp.says({**ANNA, "groups": []})
    refused = Browser()
    refused.sign_in()
    assert "in none of the groups" in refused.told()
    assert browser.name == "", "the sessions of somebody who left the groups end"


def test_an_administrator_made_here_is_not_taken_back_by_groups(corp, settings):
    Browser().sign_in()
    lifecycle.set_staff(username="annamuller", staff=True, by="test")
    settings.OIDC_PROVIDERS = (corp.settings(administrators=("staff",)),)
    Browser().sign_in()
    corp.says({**ANNA, "groups": []})
    Browser().sign_in()
    assert User.objects.get(username="annamuller").is_staff


URL = "https://ml.example.com/groups"


@pytest.mark.parametrize(
    ("claim", "claims"),
    few(
        [
            (URL, {URL: ["ml"]}),
            ("realm_access.roles", {"realm_access": {"roles": ["ml"]}}),
            ("resource_access.my.client.roles", {"resource_access": {"my.client": {"roles": ["ml"]}}}),
            ("roles", {"roles": {"ml": {"12": "corp.example"}, "other": {}}}),
            ("groups", {"groups": ["x", None, 7, {"name": "y"}, "ml"]}),
            ("groups", {"groups": "ml"}),
        ],
        3,
    ),
)
def test_groups_are_found_wherever_the_provider_writes_them(corp, settings, claim, claims):
    settings.OIDC_PROVIDERS = (corp.settings(allowed=("ML",))._replace(groups_claim=claim),)
    corp.says({**{name: value for name, value in ANNA.items() if name != "groups"}, **claims})
    browser = Browser()
    browser.sign_in()
    assert browser.name == "annamuller"


@pytest.mark.long
@pytest.mark.parametrize("groups", few([{"x": {}}, [1, 2], 5, None, True, [[]], [], ""], 3))
def test_a_claim_that_no_rule_needs_keeps_nobody_out(corp, settings, groups):
    corp.says({**ANNA, "groups": groups})
    browser = Browser()
    browser.sign_in()
    assert browser.name == "annamuller"
    settings.OIDC_PROVIDERS = (corp.settings(allowed=("ml",)),)
    refused = Browser()
    refused.sign_in()
    assert not refused.name


def test_a_tenant_that_does_not_exist_is_named(corp, settings):
    settings.OIDC_PROVIDERS = (corp.settings(tenants=(("ml", "nowhere", "member"),)),)
    browser = Browser()
    browser.sign_in()
    assert "the tenant nowhere, which does not exist" in browser.told()
    assert not User.objects.exists()
    assert not Identity.objects.exists()


def test_a_local_account_of_the_same_name_is_not_taken_over(corp, alice):
    corp.says({**ANNA, "preferred_username": "alice", "email": "alice@corp.example"})
    Preference.objects.create(user=alice, email="alice@corp.example")
    browser = Browser()
    browser.sign_in()
    assert "belongs to an account with a password" in browser.told()
    assert browser.name == ""
    assert not Identity.objects.exists()


@pytest.mark.long
def test_two_people_of_one_name_get_two_accounts(corp):
    Browser().sign_in()
    corp.says({**ANNA, "sub": "s2"})
    second = Browser()
    second.sign_in()
    assert second.name == "annamullerb"


def test_the_owner_connects_an_account_and_ends_the_connection(corp, alice, bob, client):
    client.force_login(alice)
    browser = Browser(client)
    assert client.post("/signin/corp/connect")["Location"] == "/account/security", "the log-in is not recent"
    prove(client)
    assert "/signin/corp" in client.post("/signin/corp/connect").content.decode()
    browser.sign_in()
    assert Identity.objects.get().user == alice
    assert "You can log in with Corp" in browser.told("/account")
    other = Browser()
    other.sign_in()
    assert other.name == "alice"
    third = Browser()
    third.client.force_login(bob)
    prove(third.client)
    third.client.post("/signin/corp/connect")
    third.sign_in()
    assert "belongs to another user here" in third.told("/account")
    client.post("/account/disconnect", {"identity": Identity.objects.get().pk})
    assert not Identity.objects.exists()


def test_the_only_way_to_log_in_stays(corp):
    browser = Browser()
    browser.sign_in()
    browser.client.post("/account/disconnect", {"identity": Identity.objects.get().pk})
    assert "the only way to log in" in browser.told("/account")
    assert Identity.objects.exists()


def test_one_cannot_end_the_connection_of_another(corp, alice, client):
    Browser().sign_in()
    client.force_login(alice)
    client.post("/account/disconnect", {"identity": Identity.objects.get().pk})
    assert Identity.objects.exists()


def test_without_creation_only_connected_accounts_sign_in(corp, settings):
    settings.OIDC_PROVIDERS = (corp.settings(create=False),)
    browser = Browser()
    browser.sign_in()
    assert "there is no account for" in browser.told()
    assert not User.objects.exists()


def test_a_new_user_waits_for_approval_where_that_is_demanded(corp, settings):
    settings.REGISTRATION_NEEDS_APPROVAL = True
    browser = Browser()
    browser.sign_in()
    assert "not active" in browser.told()
    assert User.objects.get(username="annamuller").state == State.NOT_ACTIVE


def test_a_deactivated_user_does_not_come_back_by_the_provider(corp):
    Browser().sign_in()
    lifecycle.deregister(username="annamuller", by="test")
    browser = Browser()
    browser.sign_in()
    assert "not active" in browser.told()
    assert browser.name == ""


def test_the_log_out_ends_the_session_at_the_provider(corp):
    browser = Browser()
    browser.sign_in()
    left = html.unescape(browser.client.post("/logout").content.decode())
    there = left.split('content="0; url=')[1].split('"')[0]
    assert there.startswith(f"{corp.issuer}/session/end?")
    assert "id_token_hint=" in there
    assert browser.there.get(there, timeout=LIMIT_S).status_code == 200
    assert browser.name == ""
    assert not Session.objects.exists()


WRONG = {
    "issuer": ({"claims": {"iss": "https://evil.example"}}, "wrong iss"),
    "audience": ({"claims": {"aud": "another"}}, "wrong a"),
    "nonce": ({"claims": {"nonce": "another"}}, "wrong nonce"),
    "no nonce": ({"claims": {"nonce": None}}, "has no claim nonce"),
    "no subject": ({"claims": {"sub": None}}, "has no claim sub"),
    "signature": ({"key": True}, "not signed with a key of the provider"),
    "unsigned": ({"none": True}, "not signed with a key of the provider"),
    "no id token": ({"no_id_token": True}, "no ID token"),
    "expired": ({"claims": {"exp": 1}}, "the clock"),
    "error 500": ({"status": 500}, "Corp"),
    "html": ({"html": True}, "Corp"),
    "refusal": ({"error": "access_denied"}, "access_denied"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_answer_is_named_and_creates_nothing(corp, wrong):
    answer, words = WRONG[wrong]
    browser = Browser()
    corp.says(ANNA, **answer)
    response = browser.sign_in()
    assert (response.status_code, response["Location"]) == (302, "/regist_login")
    assert words in browser.told()
    assert browser.name == ""
    assert not User.objects.exists()
    assert not Identity.objects.exists()


@pytest.mark.parametrize("minutes", [10, -10])
def test_a_clock_that_is_ten_minutes_wrong_is_named(corp, minutes):
    at = int(time.time()) + 60 * minutes
    corp.says(ANNA, claims={"iat": at, "exp": at + 300})
    browser = Browser()
    browser.sign_in()
    assert "the clock of this server or of the provider is" in browser.told()


def test_a_missing_claim_is_named(corp):
    corp.says({"sub": "s9"})
    browser = Browser()
    browser.sign_in()
    assert "no claim preferred_username" in browser.told()


def test_a_name_without_letters_is_refused(corp):
    corp.says({**ANNA, "preferred_username": "42"})
    browser = Browser()
    browser.sign_in()
    assert "has no letter a to z" in browser.told()


def test_another_issuer_than_the_configured_one_is_refused(corp):
    corp.says(ANNA, issuer="https://evil.example")
    browser = Browser()
    browser.sign_in()
    assert "its issuer is https://evil.example" in browser.told()


def test_an_answer_with_another_state_or_a_second_time_is_refused(corp):
    browser, other = Browser(), Browser()
    answer = browser.leave()
    assert other.client.get(answer).status_code == 302
    assert "(state)" in other.told()
    browser.client.get(answer)
    assert browser.name == "annamuller"
    third = Browser()
    third.client.get(answer)
    assert third.name == ""


@pytest.mark.long
def test_a_rotated_key_is_fetched(corp):
    Browser().sign_in()
    corp.says(ANNA, rotate="second")
    browser = Browser()
    browser.sign_in()
    assert browser.name == "annamuller"


@pytest.mark.long
def test_a_provider_that_is_down_or_silent_is_named_and_passwords_work(corp, settings, monkeypatch, alice):
    monkeypatch.setattr(oidc, "TIMEOUT_S", (0.5, 0.5))
    oidc.forget()
    corp.says(ANNA, silent=True)
    browser = Browser()
    browser.sign_in()
    assert "does not answer in time" in browser.told()
    oidc.forget()
    settings.OIDC_PROVIDERS = (corp.settings()._replace(issuer="http://127.0.0.1:1"),)
    browser.sign_in()
    assert "cannot be reached" in browser.told()
    assert page(PASSWORD, HOME).status_code == 302


def test_an_unknown_provider_is_no_page(corp, client):
    assert client.get("/signin/other").status_code == 404
    assert client.get("/signin/other/back").status_code == 404
