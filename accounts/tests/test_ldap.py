"""Log-ins with the password of a real directory (slapd), under TLS: users, groups, wrong passwords, no directory."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts import lifecycle
from accounts.models import Identity, User
from conftest import PASSWORD
from kernel.environment import Secret
from mlp.tests.tiers import few

from .logins import FREE, GUESSER, HOME, admin, page, token
from .slapd import BASE, GROUPS, Slapd, need

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("long_waits")]
ANNA, WORD = "anna.m2", "directory password"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    need()
    running = Slapd(tmp_path_factory.mktemp("slapd"))
    yield running
    running.close()


@pytest.fixture
def corp(server, settings, default_tenant):
    settings.LDAP_DIRECTORY = server.settings()
    return server


def text(response) -> str:
    return response.content.decode()


WAYS = {
    "StartTLS": {},
    "LDAPS": {"tls": "ldaps", "port": "tls_port"},
    "no TLS": {"tls": ""},
    "direct": {"user_dn": f"uid={{username}},ou=people,{BASE}", "bind_dn": "", "user_base": ""},
}


@pytest.mark.parametrize("way", few(WAYS, 2))
def test_somebody_of_the_directory_logs_in(corp, settings, way):
    changes = {name: getattr(corp, value) if value == "tls_port" else value for name, value in WAYS[way].items()}
    settings.LDAP_DIRECTORY = corp.settings(**changes)
    assert page(WORD, HOME, username=ANNA).status_code == 302
    assert page(WORD, HOME, username=ANNA.upper()).status_code == 302
    user = User.objects.get(username="annam")
    assert not user.has_usable_password()
    assert User.objects.count() == 1
    assert page("wrong", HOME, username=ANNA).status_code == 403


@pytest.mark.parametrize("name", ["*", "anna.m2)(uid=*", "anna*", "nobody", "a" * 300])
def test_a_name_is_no_filter(corp, name):
    assert page(WORD, HOME, username=name).status_code == 403
    assert not User.objects.exists()


def test_an_empty_password_is_never_tried(corp):
    assert page("", HOME, username=ANNA).status_code == 403
    assert not User.objects.exists()


def test_groups_decide_and_are_read_at_each_log_in(corp, settings):
    settings.LDAP_DIRECTORY = corp.settings(rules={"administrators": ("ML",), "allowed": (f"cn=ml,ou=groups,{BASE}",)})
    client = Client()
    assert admin(WORD, HOME, client, username=ANNA)["Location"] == "/admin/"
    assert User.objects.get().is_staff
    settings.LDAP_DIRECTORY = corp.settings(rules={"allowed": ("others",)})
    assert "in none of the groups" in text(page(WORD, HOME, username=ANNA))
    assert not User.objects.get().is_staff
    assert client.get("/account").status_code == 302, "the open session has ended"


@pytest.mark.parametrize("name", few(GROUPS, 1))
def test_a_group_may_have_any_name(corp, settings, name):
    written = [name, f"CN = {GROUPS[name]} , OU=groups,{BASE.upper()}", f"cn={GROUPS[name]},ou=groups,{BASE}"]
    for allowed in written:
        settings.LDAP_DIRECTORY = corp.settings(rules={"allowed": (allowed,)})
        assert page(WORD, HOME, username=ANNA).status_code == 302, allowed
    for other in (name + "x", f"cn={GROUPS[name]}x,ou=groups,{BASE}", f"cn={GROUPS[name]},ou=others,{BASE}"):
        settings.LDAP_DIRECTORY = corp.settings(rules={"allowed": (other,)})
        assert "in none of the groups" in text(page(WORD, HOME, username=ANNA))


def test_a_local_account_is_not_taken_over(corp, make_user):
    make_user("annam")
    assert "belongs to an account with a password" in text(page(WORD, HOME, username=ANNA))
    assert not Identity.objects.exists()
    assert page(PASSWORD, HOME, username="annam").status_code == 302


def test_the_token_call_takes_the_directorys_password(corp):
    page(WORD, HOME, username=ANNA)
    assert token(WORD, HOME, username="annam").status_code == 403, "the name of the directory is another"
    assert not User.objects.get(username="annam").has_usable_password()


def test_a_deactivated_user_does_not_come_back(corp):
    page(WORD, HOME, username=ANNA)
    lifecycle.deregister(username="annam", by="test")
    assert "not active" in text(page(WORD, HOME, username=ANNA))


def test_guesses_are_limited(corp):
    for _ in range(FREE):
        assert page("wrong", GUESSER, username=ANNA).status_code == 403
    assert "too many failed logins" in text(page(WORD, GUESSER, username=ANNA))


NOT_THERE = {
    "port": ({"port": 1}, "cannot be reached"),
    "certificate": ({"ca_file": ""}, "(TLS)"),
    "bind": ({"bind_password": Secret("wrong")}, "MLP_LDAP_BIND_DN"),
    "filter": ({"user_filter": "(uid={username}"}, "filter"),
}


@pytest.mark.parametrize("case", few(NOT_THERE, 2))
def test_a_directory_that_cannot_answer_is_named_and_local_passwords_work(corp, settings, alice, case):
    changes, words = NOT_THERE[case]
    settings.LDAP_DIRECTORY = corp.settings(**changes)
    for _ in range(FREE + 1):  # no attempt of the user's
        assert words in text(page(WORD, HOME, username=ANNA))
    assert page(PASSWORD, HOME).status_code == 302
    assert User.objects.count() == 1


def test_the_log_in_form_takes_the_directorys_names(corp, client, settings):
    assert "pattern=" not in text(client.get("/regist_login"))
    settings.LDAP_DIRECTORY = None
    assert "pattern=" in text(client.get("/regist_login"))
