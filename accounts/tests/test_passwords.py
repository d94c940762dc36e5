"""A forgotten password: the link by e-mail, once and for an hour; nothing is told about who has an account."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import pytest
from django.conf import settings
from django.contrib.auth.tokens import default_token_generator
from django.core import mail
from django.test import Client

from accounts import sessions, throttle
from accounts.models import Preference, User
from conftest import PASSWORD

from .logins import HOME, at, page

pytestmark = pytest.mark.django_db
NEW = "another long horse"


@pytest.fixture
def mails(settings, tasks, alice):
    settings.EMAIL_HOST = "mail.example"
    Preference.objects.create(user=alice, email="alice@corp.example")
    return tasks


def ask(username: str = "alice", **headers):
    return Client().post("/password", {"username": username}, **at(HOME, **headers))


def link(tasks, **headers) -> str:
    ask(**headers)
    tasks.run()
    message = mail.outbox[-1]
    assert message.to == ["alice@corp.example"]
    return re.search(rf"{settings.GATEWAY_URL}(/password/\S+)", message.body).group(1)


def test_the_link_sets_a_new_password_once_and_ends_all_sessions(mails, alice):
    old = Client()
    page(PASSWORD, HOME, old)
    address, client = link(mails), Client()
    assert "New password of alice" in client.get(address).content.decode()
    assert client.post(address, {"password": "short"}).status_code == 403
    assert client.post(address, {"password": NEW})["Location"] == "/regist_login"
    assert sessions.visits_of(alice) == []
    assert page(NEW, HOME).status_code == 302
    assert page(PASSWORD, HOME).status_code == 403
    assert client.post(address, {"password": PASSWORD})["Location"] == "/password"
    assert page(PASSWORD, HOME).status_code == 403


def test_no_request_leads_the_link_elsewhere(mails, settings):
    """A stranger asks in the name of alice, and names another host: the link in her e-mail would give it the key."""
    claims = {"HTTP_X_FORWARDED_HOST": "evil.example", "HTTP_FORWARDED": "host=evil.example"}
    settings.ALLOWED_HOSTS = ["*"]
    for settings.GATEWAY_URL_GIVEN in (False, True):
        for headers in ({"HTTP_HOST": "evil.example"}, claims):
            assert link(mails, **headers).startswith("/password/")
            assert "evil" not in mail.outbox[-1].body


def test_the_link_works_for_an_hour(mails, monkeypatch):
    address = link(mails)
    monkeypatch.setattr(default_token_generator, "_now", lambda: datetime.now() + timedelta(minutes=61))
    assert Client().get(address)["Location"] == "/password"


def test_a_changed_link_is_refused(mails, bob):
    address = link(mails)
    user, _, token = address.removeprefix("/password/").partition("/")
    for wrong in (f"/password/{bob.pk}/{token}", f"/password/{user}/{token[:-1]}", "/password/x/y", "/password/9/y"):
        assert Client().get(wrong).status_code == 302


def test_the_answer_tells_nothing_about_accounts(mails, bob, make_user):
    User.objects.filter(pk=make_user("carol").pk).update(password="!")
    Preference.objects.create(user=User.objects.get(username="carol"), email="carol@corp.example")
    answers = {(answer.status_code, answer["Location"]) for answer in map(ask, ["alice", "bob", "carol", "nobody"])}
    assert answers == {(302, "/regist_login")}
    mails.run()
    assert [message.to for message in mail.outbox] == [["alice@corp.example"]]


def test_the_number_of_e_mails_is_limited(mails):
    for _ in range(throttle.RESETS_OF_ONE):
        assert ask().status_code == 302
    assert ask().status_code == 403


def test_without_mail_there_is_no_such_page(client, alice):
    assert client.get("/password").status_code == 404
    assert "Forgotten your password" not in client.get("/regist_login").content.decode()


def test_one_session_is_ended_from_another(alice, bob):
    first, second, other = Client(), Client(), Client()
    page(PASSWORD, HOME, first)
    page(PASSWORD, HOME, second)
    other.force_login(bob)
    visit = sessions.visits_of(alice)[-1]
    other.post("/account/sessions/end", {"session": visit.pk})
    assert first.get("/account").status_code == 200
    second.post("/account/sessions/end", {"session": visit.pk})
    assert first.get("/account").status_code == 302
    assert second.get("/account").status_code == 200


def test_a_stolen_session_cannot_lead_the_link_elsewhere(mails, alice):
    client = Client()
    page(PASSWORD, HOME, client)
    session = client.session
    session[sessions.FRESH] -= sessions.FRESH_S + 1
    session.save()
    elsewhere = {"email": "mallory@evil.example"}
    answer = client.post("/settings", elsewhere)
    assert answer.status_code == 403
    assert "only after you confirm your password" in answer.content.decode()
    assert Preference.objects.get(user=alice).email == "alice@corp.example"
    assert client.post("/settings", {"email": "alice@corp.example", "theme": "dark"}).status_code == 302
    assert client.post("/account/security", {"current": PASSWORD}).status_code == 302
    assert client.post("/settings", elsewhere).status_code == 302
    assert Preference.objects.get(user=alice).email == "mallory@evil.example"
