"""Keys of applications: made, shown once, used at the application gateway and nowhere else, counted, revoked."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import requests
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts import named_tokens, tokens
from apps import keys, lifecycle, trash
from apps.models import AppKey, AppKeyUse, Application
from conftest import Api
from kernel.errors import Refused
from kernel.tests.nats_tools import until
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.tiers import few

from .conftest import NAMES, bearer_of
from .test_gateway import echo

__all__ = ["echo"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def make(echo):
    """Return a function that makes a key of alice's application and returns its text."""

    def create_key(name: str = "shop", app: Application = echo, **fields) -> str:
        return keys.create(app=app, name=name, by="alice", **fields)[1]

    return create_key


@pytest.fixture
def ask(front, echo):
    """Return a function that sends a request to the application and returns its answer."""

    def send(key: str = "", *, name: str = echo.name, **headers) -> requests.Response:
        headers = {field.replace("_", "-"): value for field, value in headers.items()}
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        return requests.get(f"{front}/alice/{name}/v2", headers=headers)

    return send


# --- life ------------------------------------------------------------------------------------------------------------
def test_it_is_made_listed_used_and_revoked_by_rest(alice, as_alice, echo, ask):
    path = f"users/alice/apps/{echo.name}/keys"
    answer = as_alice.call("post", path, {"name": "shop", "days": 30})
    assert answer.status_code == 201
    key = answer.json()["key"]
    assert re.fullmatch(r"mlp_a[0-9a-z]+_[A-Za-z0-9_-]{43}", key)
    [listed] = as_alice.call("get", path).json()
    assert (listed["name"], listed["by"], listed["used"], listed["requests"]) == ("shop", "alice", None, 0)
    assert all(key not in as_alice.call("get", one).content.decode() for one in (path, f"{path}/shop"))
    assert ask(key).status_code == 200
    assert ask(X_Api_Key=key).status_code == 200
    assert as_alice.call("delete", f"{path}/shop").status_code == 200
    assert [ask(key).status_code, ask(X_Api_Key=key).status_code] == [401, 401]
    assert as_alice.call("delete", f"{path}/shop").status_code == 403
    told = visible_text(visitor(alice).get("/notifications"))
    assert f"alice made the key shop of the application {echo.name}." in told
    assert f"alice revoked the key shop of the application {echo.name}." in told


@pytest.mark.parametrize(
    ("field", "body"),
    few([("name", {"name": ""}), ("name", {"name": "-x"}), ("name", {"name": "a b"}), ("name", {"name": "x" * 51}),
         ("days", {"days": 0}), ("days", {"days": 3651}), ("days", {"days": "7"}), ("rights", {"rights": 1})], 4),
)  # fmt: skip
def test_what_is_wrong_is_named(as_alice, echo, field, body):
    path = f"users/alice/apps/{echo.name}/keys"
    assert as_alice.refused("post", path, {"name": "shop", **body}).startswith(f"{field}:")
    assert as_alice.call("get", path).json() == []


def test_a_name_is_taken_once_by_each_application(alice, echo, make):
    make(), make(app=put(Application, alice, "other", "ready"))
    with pytest.raises(Refused, match="name: the application already has a key named shop"):
        make()


def test_there_is_a_most(make, monkeypatch):
    monkeypatch.setattr(keys, "MAX", 1)
    make("one")
    with pytest.raises(Refused, match="the application has 1 key, the most that are allowed"):
        make("two")


def test_others_neither_see_nor_make_nor_revoke_them(bob, as_alice, echo, make):
    make()
    path, stranger = f"users/alice/apps/{echo.name}/keys", Api(accounts.token_of(bob))
    calls = [("get", path), ("get", f"{path}/shop"), ("delete", f"{path}/shop"), ("post", path, {"name": "mine"})]
    assert {stranger.call(*call).status_code for call in calls} == {403}
    assert visitor(bob).get(f"/apps/{echo.name}/access").status_code == 404
    assert [one["name"] for one in as_alice.call("get", path).json()] == ["shop"]


def test_no_named_token_makes_one(alice, echo):
    text = named_tokens.create(user=alice, name="ci", by="alice")[1]
    assert "this token is only for" in Api(text).refused("post", f"users/alice/apps/{echo.name}/keys", {"name": "x"})


def test_it_is_made_and_revoked_on_the_page(alice, echo, ask):
    browser, address = visitor(alice), f"/apps/{echo.name}/access"
    response = browser.post(address, {"name": "shop", "days": "30"})
    [key] = re.findall(r"mlp_a[0-9a-z]+_[\w-]{43}", response.content.decode())
    assert response["Cache-Control"].find("no-store") >= 0
    assert ask(key).status_code == 200
    keys.collect()
    page = browser.get(address)
    assert key not in page.content.decode()
    assert "1 request" in visible_text(page)
    again = browser.post(address, {"name": "shop", "days": ""})
    assert (again.status_code, "already has a key named shop" in visible_text(again)) == (403, True)
    assert "1 key" in visible_text(browser.get(f"/apps/{echo.name}"))
    browser.post(f"{address}/revoke", {"name": "shop"})
    assert ask(key).status_code == 401


# --- what it opens ---------------------------------------------------------------------------------------------------
def test_it_opens_its_application_and_nothing_else(service, alice, echo, make, ask, adder):
    key = make()
    other = Application.objects.create(  # which is up, too: the same process answers
        user=alice, tenant=adder.tenant, model=adder, name=next(NAMES), port=31001, state="ready", reserved=False,
        run_name=echo.run_name, address=echo.address,
    )  # fmt: skip
    assert ask(accounts.token_of(alice), name=other.name).status_code == 200
    assert ask(key, name=other.name).status_code == ask(X_Api_Key=key, name=other.name).status_code == 401
    gateway = f"http://127.0.0.1:{service.port}"
    for header in ({"Authorization": f"Bearer {key}"}, {"X-Api-Key": key}):
        for path in ("users/alice/apps", f"users/alice/apps/{other.name}", "users/alice/token", "auth"):
            assert requests.get(f"{gateway}/api/v1/{path}", headers=header).status_code == 403
        restart = requests.put(f"{gateway}/api/v1/users/alice/apps/{other.name}:restart", headers=header)
        assert restart.status_code == 403
        assert requests.get(f"{gateway}/data/alice/digits/x", headers=header).status_code in (401, 403)
        page = requests.get(f"{gateway}/apps/{other.name}", headers=header, allow_redirects=False)
        assert (page.status_code, "regist_login" in page.headers["Location"]) == (302, True)


def test_it_does_not_open_a_later_application_of_the_same_name(echo, make, ask, adder):
    key = make()
    assert ask(key).status_code == 200
    fields = {name: getattr(echo, name) for name in ("name", "port", "run_name", "address")}
    echo.delete()
    Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, state="ready", reserved=False, **fields
    )
    answers = {ask(key).status_code for _ in range(2)}
    while answers == {200}:  # the gateway may remember the earlier one for a second
        answers = {ask(key).status_code}
    assert answers <= {200, 401}
    assert ask(key).status_code == 401


FORGED = ["{}x", "{:.40}", "mlp_a1_", "mlp_a", "mlp_a0_" + "x" * 43, "mlp_a" + "z" * 13 + "_" + "x" * 43]


@pytest.mark.parametrize("change", few(FORGED, 4))
def test_a_forged_one_opens_nothing(make, ask, change):
    forged = change.format(make())
    assert [ask(forged).status_code, ask(X_Api_Key=forged).status_code] == [401, 401]
    assert ask(forged).headers["WWW-Authenticate"] == "Bearer"


def test_headers_of_others_are_left_alone(alice, echo, make, ask):
    """A proxy in front may have keys of its own: only what looks like one of ours counts."""
    token, key = accounts.token_of(alice), make()
    assert ask(token, X_Api_Key="somebody-elses").status_code == 200
    assert ask(key, X_Api_Key="somebody-elses").status_code == 200
    assert ask(token, X_Api_Key=f"{key}x").status_code == 401, "a wrong key is not replaced by a token"
    assert ask("mlp_u1_wrong", X_Api_Key=key).status_code == 200


def test_a_session_does_not_replace_a_wrong_key(alice, echo, front, make):
    cookies = {"sessionid": visitor(alice).cookies["sessionid"].value}
    address = f"{front}/alice/{echo.name}/v2"
    assert requests.get(address, cookies=cookies).status_code == 200
    assert requests.get(address, cookies=cookies, headers={"X-Api-Key": f"{make()}x"}).status_code == 401
    assert requests.get(address, cookies=cookies, headers={"X-Api-Key": make("two")}).status_code == 200


def test_the_application_does_not_get_it(echo, make, ask):
    seen = ask(X_Api_Key=make()).json()["headers"]
    assert not {"x-api-key", "authorization", "x-gateway-key"} & set(seen)


def test_a_public_application_answers_with_any_key(echo, make, ask):
    key = make()
    Application.objects.filter(pk=echo.pk).update(public=True)
    keys.revoke(app=echo, name="shop", by="alice")
    assert [ask(key).status_code, ask().status_code] == [200, 200]


# --- its end ---------------------------------------------------------------------------------------------------------
def test_it_ends_at_its_time_also_where_it_is_cached(make, monkeypatch):
    key = make(days=1)
    assert keys.lookup(key) is not None
    later = (timezone.now() + timedelta(days=1, seconds=1)).timestamp()
    monkeypatch.setattr(keys.time, "time", lambda: later)
    assert keys.lookup(key) is None


def test_an_expired_one_is_refused_by_the_gateway(echo, make, ask):
    key = make(days=1)
    AppKey.objects.update(expires=timezone.now())
    assert ask(key).status_code == 401


def test_a_slow_reader_cannot_cache_a_revoked_one(echo, make):
    key = make()
    row = AppKey.objects.get()
    place = keys.CACHE_KEY.format(pk=row.pk)
    old = {"nonce": row.nonce, "app_id": row.app_id, "expires": None}
    keys.revoke(app=echo, name="shop", by="alice")
    tokens.fill(place, old, keys.CACHE_S)
    assert keys.lookup(key) is None


def test_in_the_trash_they_open_nothing_and_once_restored_they_are_the_same(alice, echo, make, ask):
    key = make()
    assert ask(key).status_code == 200
    trash.trash(user=alice, name=echo.name, by="alice")
    until(lambda: ask(key).status_code == 503)  # its address may be remembered for a second
    assert keys.lookup(key).app_id == echo.pk
    with pytest.raises(Refused, match="is in the trash"):
        make("late")


def test_deletion_removes_them(alice, echo, make):
    key = make()
    keys.lookup(key)
    keys.count(AppKey.objects.get().pk, 1)
    lifecycle.delete_app(user=alice, name=echo.name, by="alice")
    with pytest.raises(Refused, match="already being deleted"):
        make("late")
    lifecycle.forget(echo.pk)
    keys.collect()  # counts of a key that is gone are dropped
    assert (AppKey.objects.count(), AppKeyUse.objects.count()) == (0, 0)


# --- use -------------------------------------------------------------------------------------------------------------
def test_every_request_is_counted_also_those_that_arrive_together(as_alice, echo, make, ask):
    key, other = make(), make("other")
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(lambda _: ask(key).status_code, range(40))) == {200}
    ask(other), ask(f"{key}x")
    keys.collect()
    ask(key)
    keys.collect(), keys.collect()
    path = f"users/alice/apps/{echo.name}/keys"
    assert {one["name"]: one["requests"] for one in as_alice.call("get", path).json()} == {"shop": 41, "other": 1}
    days = as_alice.call("get", f"{path}/shop").json()["days"]
    assert len(days) == keys.SHOWN_DAYS
    assert days[-1] == {"day": str(timezone.now().date()), "requests": 41, "prompt_tokens": 0, "completion_tokens": 0}
    assert {day["requests"] for day in days[:-1]} == {0}


def test_its_last_use_and_the_real_address_are_kept(echo, make, ask):
    """What the client says of its address is not believed."""
    ask(make(), X_Real_IP="203.0.113.7", X_Forwarded_For="203.0.113.8", X_Gateway_Key="guess")
    row = AppKey.objects.get()
    assert (row.address, row.used is not None) == ("127.0.0.1", True)


def test_counts_survive_a_fault_of_the_database(echo, make, ask, monkeypatch):
    ask(make())

    def away(_counted):
        raise OSError("away")

    with monkeypatch.context() as patched:
        patched.setattr(keys, "_store", away)
        with pytest.raises(OSError, match="away"):
            keys.collect()
    keys.collect()
    assert keys.keys_of(echo).get().requests == 1


def test_old_counts_are_removed(echo, make, ask):
    ask(make())
    row = AppKey.objects.get()
    AppKeyUse.objects.create(key=row, day=timezone.now().date() - keys.KEPT - timedelta(days=1), requests=5)
    AppKeyUse.objects.create(key=row, day=timezone.now().date() - timedelta(days=40), requests=7)
    keys.collect()
    assert sorted(AppKeyUse.objects.values_list("requests", flat=True)) == [1, 7]
    assert keys.keys_of(echo).get().requests == 1


def test_the_owners_token_still_opens_it(alice, ask, echo, front):
    assert requests.get(f"{front}/alice/{echo.name}/v2", headers=bearer_of(alice)).status_code == 200
