"""The fast answer to nginx's routing request: the same as that of the web processes, but for sessions."""

from __future__ import annotations

import asyncio

import pytest
from psycopg import OperationalError

from accounts import lifecycle as accounts
from accounts import named_tokens
from apps import gateway_access, places, proof, routing
from apps.models import Application
from datasets.webdav.gate import internal_key
from mlp.tests.patience import LIMIT_S

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def app(adder):
    return Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name="calc", port=31000, state="ready", reserved=False,
        address="127.0.0.1:31000", run_name="app-1-1",
    )  # fmt: skip


def asked(token: str = "", **more: str) -> tuple[int, str]:
    """Return the status of a routing request for alice's application, and the head of the response."""
    meta = {"HTTP_X_APP_USER": "alice", "HTTP_X_APP_NAME": "calc", "HTTP_X_INTERNAL_KEY": internal_key()}
    meta |= {"HTTP_AUTHORIZATION": f"Bearer {token}"} if token else {}
    [(status, text)] = routing.answers(routing.ROUTE, meta | more)
    assert text.startswith(f"HTTP/1.1 {status} ".encode())
    return status, text.decode()


def test_the_owner_and_staff_are_routed_with_the_secret_of_the_run(app, alice, bob, staff):
    for user in (alice, staff):
        status, head = asked(accounts.token_of(user))
        assert status == 204
        assert "X-App-Base: http://127.0.0.1:31000\r\n" in head
        assert f"{proof.HEADER}: {proof.secret('app-1-1')}\r\n" in head
    assert asked(accounts.token_of(bob))[0] == asked("mlp_u1_x")[0] == asked()[0] == 403
    assert asked(accounts.token_of(alice), HTTP_X_APP_NAME="other")[0] == 403


def test_only_nginx_is_answered(app, alice):
    assert asked(accounts.token_of(alice), HTTP_X_INTERNAL_KEY="guessed")[0] == 404
    assert routing.answers("/internal/apps/refusal", {"HTTP_X_INTERNAL_KEY": internal_key()})[0][0] == 404


def test_everybody_is_routed_to_a_public_application(app, bob):
    Application.objects.update(public=True)
    assert [asked()[0], asked(accounts.token_of(bob))[0], asked("mlp_u1_x")[0]] == [204, 204, 204]


def test_a_token_is_refused_from_its_revocation_on(app, alice):
    token = accounts.token_of(alice)
    assert asked(token)[0] == 204
    accounts.rotate_token(user=alice, by="test")
    assert asked(token)[0] == 403


def test_a_named_token_may_call_its_application_only(app, alice):
    def status(scope: str, target: str = "") -> int:
        return asked(named_tokens.create(user=alice, name=f"{scope}x", scope=scope, target=target, by="test")[1])[0]

    assert [status("application", "calc"), status("read"), status("submit")] == [204, 403, 403]


def test_a_fault_is_answered_and_the_next_request_served(app, alice, monkeypatch):
    def away(*_):
        raise OperationalError("the database is unavailable")

    token = accounts.token_of(alice)
    with monkeypatch.context() as patched:
        patched.setattr(gateway_access, "place_of", away)
        status, head = asked(token)
    assert status == 503
    assert "Retry-After: 2\r\n" in head
    assert asked(token)[0] == 204


class Link:
    """A connection of nginx to the listener."""

    begun = 0.0

    def __init__(self):
        self.transport, self.answers = self, []

    def is_closing(self) -> bool:
        return False

    def write(self, text: bytes) -> None:
        self.answers.append(text)


def test_an_application_that_is_called_is_looked_up_again_before_the_next_request(app, alice, monkeypatch):
    monkeypatch.setattr(routing, "RENEW_S", 0.01)
    headers = {"HTTP_X_APP_USER": "alice", "HTTP_X_APP_NAME": "calc", "HTTP_X_INTERNAL_KEY": internal_key()}
    headers["HTTP_AUTHORIZATION"] = f"Bearer {accounts.token_of(alice)}"

    async def calls() -> None:
        listener, link = routing.Listener(), Link()
        listener.take(link, routing.ROUTE, headers)
        while not link.answers:
            await asyncio.sleep(0.005)
        Application.objects.update(run_name="app-1-2")
        while places.place_of("alice", "calc").targets[0].run_name != "app-1-2":
            await asyncio.sleep(0.005)
        monkeypatch.setattr(routing, "CALLED_S", 0.0)
        while listener.renewing:  # nobody calls any more
            await asyncio.sleep(0.005)
        assert not listener.called

    monkeypatch.setattr(places, "PLACE_REMEMBERED_S", 300.0)  # only the timer looks again
    asyncio.run(asyncio.wait_for(calls(), LIMIT_S))
