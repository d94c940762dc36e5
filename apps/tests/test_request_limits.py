"""Limits of requests a minute, of keys and of addresses: at the gateway, over several processes of it."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from redis.exceptions import ConnectionError

from accounts.throttle import gateway_key
from apps import callers, keys, request_limits, routing
from apps.models import Application
from conftest import Api
from datasets.webdav.gate import internal_key
from kernel.broker import broker
from kernel.errors import Refused
from kernel.tests.nats_tools import until
from mlp.tests.page_world import visible_text, visitor

from .conftest import bearer_of
from .test_gateway import echo
from .test_keys import ask, make

__all__ = ["ask", "echo", "make"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def none_counted():
    for key in broker().client.scan_iter(request_limits.KEY.format(subject="*")):
        broker().client.delete(key)


@pytest.fixture
def public(echo):
    """Alice's application, public, with two requests a minute for each address."""
    Application.objects.filter(pk=echo.pk).update(public=True)
    callers.set_access(user=echo.user, name=echo.name, by="alice", address_rate=2)
    return echo


def routed(name: str, address: str, **more: str) -> int:
    """Return the status of a routing request, as nginx sends it for a client of that address."""
    meta = {"HTTP_X_APP_USER": "alice", "HTTP_X_APP_NAME": name, "HTTP_X_INTERNAL_KEY": internal_key()}
    meta |= {"HTTP_X_REAL_IP": address, "HTTP_X_GATEWAY_KEY": gateway_key()}
    [(status, _text)] = routing.answers(routing.ROUTE, meta | more)
    return status


# --- keys ------------------------------------------------------------------------------------------------------------
def test_a_key_is_refused_beyond_its_rate_and_told_when_to_try_again(echo, make, ask):
    key, other = make(rate=3), make("other", rate=3)
    assert [ask(key).status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    refused = ask(X_Api_Key=key)
    assert refused.status_code == 429, "however it is sent"
    assert 1 <= int(refused.headers["Retry-After"]) <= 65
    wait = refused.headers["Retry-After"]
    assert refused.json() == {"error": f"Too many requests; try again in {wait} s.", "msg": refused.json()["error"]}
    assert "Too many requests" in ask(key, Accept="text/html").text
    assert "请求过多" in ask(key, **{"Accept-Language": "zh-CN,zh;q=0.9"}).json()["error"]
    assert ask(other).status_code == 200
    keys.collect()
    assert keys.keys_of(echo).get(name="shop").requests == 3, "what was refused is not counted"


def test_of_requests_that_arrive_together_no_more_are_admitted(make, ask):
    """Also where the gateway judges equal ones once."""
    key = make(rate=10)
    with ThreadPoolExecutor(20) as pool:
        statuses = Counter(pool.map(lambda _: ask(key).status_code, range(40)))
    assert statuses == {200: 10, 429: 30}
    meta = {"HTTP_X_APP_USER": "alice", "HTTP_X_APP_NAME": "none", "HTTP_X_INTERNAL_KEY": internal_key()}
    assert [status for status, _text in routing.answers(routing.ROUTE, meta, times=3)] == [403, 403, 403]


def test_processes_of_the_gateway_share_the_count(alice, echo, make, ask):
    """The listener and the web processes, which answer where there is a session, count together."""
    key = make(rate=2)
    session = {"Cookie": f"sessionid={visitor(alice).cookies['sessionid'].value}"}
    statuses = [ask(X_Api_Key=key, **more).status_code for more in ({}, session, {}, session)]
    assert statuses == [200, 200, 429, 429]


def test_a_minute_later_it_is_admitted_again_and_refusals_did_not_count(make):
    """The parts of the minute are moved into the past: nobody waits for the clock."""
    subject = "key:none"
    assert [request_limits.take(subject, 2)[0] for _ in range(9)] == [1, 1, *[0] * 7]
    place, client = request_limits.KEY.format(subject=subject), broker().client

    def move(parts: int) -> None:
        counts = {int(part) - parts: count for part, count in client.hgetall(place).items()}
        client.delete(place)
        client.hset(place, mapping=counts)

    move(11)
    admitted, wait_s = request_limits.take(subject, 2)
    assert (admitted, 1 <= wait_s <= 10) == (0, True)
    move(3)
    assert [request_limits.take(subject, 2)[0] for _ in range(3)] == [1, 1, 0]
    assert client.ttl(place) > 0


def test_in_no_minute_are_there_more_than_the_limit():
    """A window that begins anew each minute would admit twice as many around its end."""
    subject, client = "key:edge", broker().client
    part = int(client.time()[0]) // 5
    client.hset(request_limits.KEY.format(subject=subject), mapping={part - 12: 1, part - 1: 4})
    assert request_limits.take(subject, 6, times=5)[0] == 1


def test_without_valkey_requests_go_on(echo, make, monkeypatch):
    def away(**_):
        raise ConnectionError("away")

    monkeypatch.setattr(request_limits, "_take", lambda: away)
    assert request_limits.take("key:1", 1, times=5) == (5, 0)


@pytest.mark.parametrize("rate", [0, -1, request_limits.MAX + 1, 1.5, "3", True])
def test_a_wrong_rate_is_named(as_alice, echo, rate):
    path = f"users/alice/apps/{echo.name}/keys"
    assert as_alice.refused("post", path, {"name": "shop", "rate": rate}).startswith("rate:")


# --- addresses -------------------------------------------------------------------------------------------------------
def test_a_public_application_limits_each_address(public, alice, make, ask):
    assert [ask().status_code for _ in range(3)] == [200, 200, 429]
    spoofed = {"X_Real_IP": "203.0.113.7", "X_Forwarded_For": "203.0.113.8", "Forwarded": "for=203.0.113.9"}
    assert ask(**spoofed).status_code == 429, "a client does not choose its address"
    assert ask("mlp_u1_wrong").status_code == ask("mlp_a1_wrong").status_code == 429
    key = make()
    assert {ask(key).status_code for _ in range(4)} == {200}, "a key has its own limit"
    assert requests.get(ask().url, headers=bearer_of(alice)).status_code == 200


def test_addresses_count_by_network(public):
    assert [routed(public.name, "203.0.113.7") for _ in range(3)] == [204, 204, 403]
    assert routed(public.name, "203.0.113.8") == 204
    assert [routed(public.name, f"2001:db8::{one}") for one in (1, 2, 3)] == [204, 204, 403]
    assert routed(public.name, "2001:db8:0:1::1") == 204
    assert [routed(public.name, address) for address in ("::ffff:203.0.113.7", "203.0.113.7")] == [403, 403]


def test_the_limit_is_changed_by_rest_and_on_the_page(public, alice, as_alice, ask):
    path = f"users/alice/apps/{public.name}"
    assert as_alice.call("get", path).json()["address_rate"] == 2
    assert as_alice.call("put", f"{path}/access", {"address_rate": None}).json()["address_rate"] is None
    until(lambda: all(ask().status_code == 200 for _ in range(5)))
    browser = visitor(alice)
    assert browser.post(f"/apps/{public.name}/access/change", {"address_rate": "1"}).status_code == 302
    assert as_alice.call("get", path).json()["address_rate"] == 1
    wrong = browser.post(f"/apps/{public.name}/access/change", {"address_rate": "0"})
    assert (wrong.status_code, 'value="0"' in wrong.content.decode()) == (403, True)
    assert f"alice changed the access to the application {public.name}." in visible_text(browser.get("/notifications"))


def test_of_a_private_application_it_is_refused(echo, bob, as_alice):
    path = f"users/alice/apps/{echo.name}/access"
    assert as_alice.refused("put", path, {"address_rate": 5}).startswith("address_rate: is only for a public")
    assert as_alice.refused("put", path, {"rate": 5}).startswith("rate: unknown field")
    assert Api(bearer_of(bob)["Authorization"].split()[1]).call("put", path, {"address_rate": None}).status_code == 403
    with pytest.raises(Refused):
        callers.set_access(user=echo.user, name="none", by="alice", address_rate=None)
