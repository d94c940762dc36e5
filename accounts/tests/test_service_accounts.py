"""Service accounts: users without a way to log in, whose tokens and end are their owner's."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts import lifecycle, named_tokens, service_accounts, tokens
from accounts.models import Notice, State, User
from accounts.tenancy import members
from conftest import Api
from kernel.errors import Refused
from mlp.tests.page_world import visitor
from mlp.tests.tiers import few
from resources.models import Tenant

pytestmark = pytest.mark.django_db

HOME = "users/alice/service_accounts"


@pytest.fixture
def builder(alice) -> User:
    return service_accounts.create(owner=alice, name="builder", by="alice")


def a_token(account: User, scope: str = "submit") -> str:
    return named_tokens.create(user=account, name="ci", scope=scope, by="alice")[1]


def test_its_owner_makes_it_and_its_tokens_by_rest(alice, as_alice):
    response = as_alice.call("post", HOME, {"name": "builder"})
    assert response.status_code == 201
    assert (response.json()["name"], response.json()["state"]) == ("builder", "Actived")
    assert [account["name"] for account in as_alice.call("get", HOME).json()] == ["builder"]
    answer = as_alice.call("post", f"{HOME}/builder/tokens", {"name": "ci", "scope": "submit"})
    assert answer.status_code == 201
    program = Api(answer.json()["token"])
    assert program.call("get", "users/builder/jobs").json() == []
    assert program.refused("get", "users/alice/jobs")
    assert [token["name"] for token in as_alice.call("get", f"{HOME}/builder/tokens").json()] == ["ci"]
    assert as_alice.call("delete", f"{HOME}/builder/tokens/ci").status_code == 200
    assert program.refused("get", "users/builder/jobs") == "token: not valid"
    assert as_alice.call("get", f"{HOME}/builder").json()["name"] == "builder"


def test_it_works_in_its_owners_tenant_and_follows_it(alice, builder):
    assert builder.tenant_id == alice.tenant_id
    other = Tenant.objects.create(name="research", cpu=1, gpu=0, ram=1000, rom=0)
    members.put(tenant="research", user="alice", role="admin", by="test")
    members.make_default(user=alice, tenant="research", by="alice")
    builder.refresh_from_db()
    assert builder.tenant_id == other.pk
    alice.refresh_from_db()
    tester = service_accounts.create(owner=alice, name="tester", by="alice")
    assert tester.tenant_id == other.pk
    assert not tester.memberships.exists()
    assert set(tester.roles().values()) == {"member"}  # even where the owner is an administrator


def test_there_is_no_way_to_log_in(builder):
    for password in ("", "builder", "correct horse battery"):
        response = Client().post("/regist_login", {"username": "builder", "password": password, "action": "login"})
        assert response.status_code != 302
    assert not builder.has_usable_password()
    with pytest.raises(Refused, match="no password"):
        lifecycle.change_password(user=builder, password="correct horse battery", by="admin")


def test_it_is_never_an_administrator(builder):
    with pytest.raises(Refused, match="cannot be an administrator"):
        lifecycle.set_staff(username="builder", staff=True, by="admin")


def test_it_has_no_service_accounts(builder):
    with pytest.raises(Refused, match="cannot have"):
        service_accounts.create(owner=builder, name="tester", by="builder")


@pytest.mark.parametrize("scope", ["full", "submit", "read"])
def test_no_named_token_makes_or_ends_one(alice, builder, scope):
    for user in (alice, builder):
        client, name = Api(a_token(user, scope)), user.username
        for method, path in (("post", ""), ("get", ""), ("delete", "/builder"), ("post", "/builder/tokens")):
            message = client.refused(method, f"users/{name}/service_accounts{path}", {"name": "x"})
            assert message.startswith("token: this token is only for")
    builder.refresh_from_db()
    assert builder.is_active


def test_another_users_is_as_one_that_does_not_exist(builder, bob, as_bob):
    a_token(builder)
    for method, path in (("get", ""), ("delete", ""), ("get", "/tokens"), ("delete", "/tokens/ci")):
        words = as_bob.refused(method, f"users/bob/service_accounts/builder{path}")
        assert words == as_bob.refused(method, f"users/bob/service_accounts/nobody{path}")
    builder.refresh_from_db()
    assert builder.is_active


def test_it_ends_by_its_owner_and_again(builder, as_alice):
    token = a_token(builder)
    assert tokens.user_holder(token, narrow=True).username == "builder"
    for _ in range(2):
        assert as_alice.call("delete", f"{HOME}/builder").json()["state"] == "NotActive"
    assert tokens.user_holder(token, narrow=True) is None
    assert as_alice.refused("post", f"{HOME}/builder/tokens", {"name": "new"})


def test_it_ends_with_its_owner_and_stays_ended(alice, builder):
    token = a_token(builder)
    ended = []

    def note(user, **kwargs):
        ended.append(user.username)

    lifecycle.deregistered.connect(note)
    try:
        lifecycle.deregister(username="alice", by="admin")
    finally:
        lifecycle.deregistered.disconnect(note)
    assert ended == ["builder", "alice"]
    assert tokens.user_holder(token, narrow=True) is None
    with pytest.raises(Refused, match="owner"):
        lifecycle.activate(username="builder", by="admin")
    lifecycle.activate(username="alice", by="admin")
    assert User.objects.get(username="builder").state == State.NOT_ACTIVE
    assert tokens.user_holder(token, narrow=True) is None


def test_its_owner_is_notified_of_its_tokens(alice, builder):
    a_token(builder)
    notice = Notice.objects.filter(user=alice, name="builder").get()
    assert "ci" in str(notice.reason)
    assert not Notice.objects.filter(user=builder).exists()


@pytest.mark.parametrize("name", few(["", "Builder", "a b", "x" * 51, "alice", "builder"], 3))
def test_what_is_wrong_with_a_name_is_said(builder, as_alice, name):
    assert as_alice.refused("post", HOME, {"name": name}).startswith("name:")


def test_there_is_a_most(alice, builder, as_alice, monkeypatch):
    monkeypatch.setattr(service_accounts, "MAX", 1)
    assert "most" in as_alice.refused("post", HOME, {"name": "tester"})


class TestPages:
    def test_it_is_made_given_a_token_and_ended(self, alice):
        client = visitor(alice)
        assert client.post("/account/service", {"name": "builder"}).status_code == 302
        assert b"builder" in client.get("/account/service").content
        form = {"account": "builder", "name": "ci", "scope": "read", "days": "30"}
        response = client.post("/account/tokens", form)
        assert response.status_code == 200
        [row] = User.objects.get(username="builder").tokens.filter(kind="named")
        assert tokens.derive(row) in response.content.decode()
        assert not alice.tokens.filter(kind="named").exists()
        back = client.post("/account/tokens/revoke", {"account": "builder", "name": "ci"})
        assert back["Location"] == "/account/tokens?account=builder"
        assert not User.objects.get(username="builder").tokens.filter(kind="named").exists()
        client.post("/account/service/end", {"name": "builder"})
        assert User.objects.get(username="builder").state == State.NOT_ACTIVE

    def test_another_users_tokens_are_not_there(self, builder, bob):
        client = visitor(bob)
        assert client.get("/account/tokens?account=builder").status_code == 404
        form = {"account": "builder", "name": "ci", "scope": "read"}
        assert client.post("/account/tokens", form).status_code == 404
        client.post("/account/service/end", {"name": "builder"})
        builder.refresh_from_db()
        assert builder.is_active

    def test_a_wrong_name_is_said_at_the_field(self, alice):
        answer = visitor(alice).post("/account/service", {"name": "Builder"})
        assert answer.status_code == 403
        assert b"name-error" in answer.content
