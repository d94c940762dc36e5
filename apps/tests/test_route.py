"""nginx's routing request before each call of an application: cheap, and only for callers who may reach it."""

from __future__ import annotations

import io
import time
from types import SimpleNamespace

import pytest
from django.test import Client

from accounts import lifecycle as accounts
from accounts import named_tokens
from apps import launching, lifecycle, places
from apps.models import Application
from datasets.webdav.gate import internal_key
from mlp.wsgi import application

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def app(adder):
    return Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name="calc", port=31000, state="ready", reserved=False,
        address="127.0.0.1:31000",
    )  # fmt: skip


def asked(token: str = "", cookie: str = "", key: str | None = None, **headers) -> tuple[int, str | None]:
    """Return (status, X-App-Base) for a routing request, as the web server passes it in."""
    environ = {
        "PATH_INFO": "/internal/apps/route", "REQUEST_METHOD": "GET", "HTTP_X_APP_USER": "alice",
        "HTTP_X_APP_NAME": "calc", "HTTP_X_INTERNAL_KEY": internal_key() if key is None else key,
        "wsgi.input": io.BytesIO(), "SERVER_NAME": "testserver", "SERVER_PORT": "80", "wsgi.url_scheme": "http",
        "HTTP_HOST": "testserver",
    }  # fmt: skip
    environ |= {"HTTP_AUTHORIZATION": f"Bearer {token}"} if token else {}
    environ |= {"HTTP_COOKIE": cookie} if cookie else {}
    environ |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    response = {}

    def start_response(status, headers):
        response.update(headers, status=int(status[:3]))

    b"".join(application(environ, start_response))
    return response["status"], response.get("X-App-Base")


def test_only_the_owner_staff_and_the_owners_session_are_routed(app, alice, bob, staff, client):
    there = (204, "http://127.0.0.1:31000")
    assert asked(accounts.token_of(alice)) == asked(accounts.token_of(staff)) == there
    assert asked()[0] == asked(accounts.token_of(bob))[0] == asked("mlp_u1_x")[0] == 403
    assert asked(accounts.token_of(alice), key="")[0] == 404
    for user, status in ((alice, 204), (bob, 403)):
        client.force_login(user)
        assert asked(cookie=f"sessionid={client.cookies['sessionid'].value}")[0] == status
    Application.objects.update(public=True)
    places._places.clear()
    assert asked() == there


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 204),
        ({"sec_fetch_site": "none"}, 204),
        ({"sec_fetch_site": "same-origin"}, 204),
        ({"sec_fetch_site": "same-site"}, 204),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "same-origin", "origin": "null"}, 403),
    ],
)
def test_a_session_is_accepted_from_the_platforms_own_site_only(app, alice, client, headers, status):
    client.force_login(alice)
    cookie = f"sessionid={client.cookies['sessionid'].value}"
    assert asked(cookie=cookie, **headers)[0] == status
    assert asked(accounts.token_of(alice), **headers)[0] == 204  # no other site knows a token


def test_a_session_does_not_replace_an_invalid_token(app, alice, client):
    client.force_login(alice)
    cookie = f"sessionid={client.cookies['sessionid'].value}"
    assert asked("mlp_u1_x", cookie=cookie)[0] == 403


def test_the_database_is_queried_at_most_once_a_second(app, alice, django_assert_num_queries, monkeypatch):
    token = accounts.token_of(alice)
    clock = [time.monotonic()]
    monkeypatch.setattr(places, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    assert asked(token)[0] == 204
    with django_assert_num_queries(0):
        assert asked(token)[0] == 204
    clock[0] += lifecycle.PLACE_REMEMBERED_S
    Application.objects.update(state="creating")
    assert asked(token)[0] == 403


def test_a_revoked_token_is_refused_though_the_route_is_cached(app, alice):
    token = accounts.token_of(alice)
    assert asked(token)[0] == 204
    accounts.rotate_token(user=alice, by="test")
    assert asked(token)[0] == 403


@pytest.mark.long
def test_its_port_is_not_reused_while_the_route_may_be_cached(app, alice, tasks, monkeypatch):
    monkeypatch.setattr(lifecycle, "PLACE_REMEMBERED_S", 3.0)
    began = time.monotonic()
    assert Client(headers={"Authorization": f"Bearer {accounts.token_of(alice)}"}).delete(
        "/api/v1/users/alice/apps/calc"
    )
    launching.erase(app.pk)
    assert Application.objects.filter(port=31000).exists()
    while tasks.queue:
        tasks.run_once()
        time.sleep(0.05)  # the real queue waits longer before each look
    assert not Application.objects.exists()
    assert time.monotonic() - began >= lifecycle.PLACE_REMEMBERED_S - 0.01


def test_a_named_token_may_call_its_application_only(app, alice, bob, staff):
    def status(user, scope: str, target: str = "") -> int:
        named = named_tokens.create(user=user, name=f"{scope}-{target}x", scope=scope, target=target, by="test")
        return asked(named[1])[0]

    assert [status(alice, "full"), status(alice, "application", app.name)] == [204, 204]
    assert {status(alice, "application", "other"), status(alice, "read"), status(alice, "submit")} == {403}
    assert {status(bob, "application", app.name), status(staff, "application", app.name)} == {403}
