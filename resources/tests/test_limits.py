"""Limits of users over REST: staff set them, a user sees the one that applies."""

from __future__ import annotations

import pytest

from kernel import stored
from kernel.errors import Refused
from mlp.tests.tiers import few
from resources import tcc
from resources.limits import OverLimit
from resources.models import Tenant, UserLimit

PATH = "tenants/default/limits"
NONE = {"tenant": "default", "cpu": None, "gpu": None, "ram": None, "rom": None, "database": None, "outputs": None}


@pytest.fixture
def put(as_staff, alice, bob):
    def call(user: str, **fields) -> dict:
        response = as_staff.call("put", f"{PATH}/{user}", fields)
        assert response.status_code == 200, response.content
        return response.json()

    return call


def ask(number: int, owner: str = "alice", **amounts):
    return tcc.try_(id=f"job:{number}", applier="jm", request_type="request", owner=owner, **amounts)


def test_there_are_no_limits_at_first(as_alice, as_staff):
    assert as_alice.call("get", f"{PATH}/alice").json() == {**NONE, "user": "alice"}
    assert as_staff.call("get", f"{PATH}/*").json() == {**NONE, "user": "*"}
    assert as_staff.call("get", PATH).json() == []


def test_a_put_changes_only_the_given_fields(put):
    assert put("alice", cpu=2.5, gpu=1) == {**NONE, "user": "alice", "cpu": 2.5, "gpu": 1}
    assert put("alice", cpu=None, rom=0) == {**NONE, "user": "alice", "gpu": 1, "rom": 0}


def test_the_database_is_limited_by_the_default_tenant_below_the_setting(put, as_alice, alice, settings, monkeypatch):
    monkeypatch.setattr(stored, "FRESH_S", -1.0)

    def create(name: str) -> str:
        answer = as_alice.call("post", "users/alice/projects", {"name": name})
        return answer.json().get("msg", "")

    assert create("one") == ""
    put("*", database=0)
    assert "the limit is 0 MiB" in create("two")
    put("alice", database=1)
    assert create("two") == ""
    settings.DATABASE_LIMIT_MIB = 0
    assert "the limit is 0 MiB" in create("three")


def test_a_users_own_limit_replaces_the_default(put, as_alice, as_bob):
    put("*", cpu=1)
    put("alice", gpu=1)
    assert as_alice.call("get", f"{PATH}/alice").json() == {**NONE, "user": "alice", "gpu": 1}
    assert as_bob.call("get", f"{PATH}/bob").json() == {**NONE, "user": "*", "cpu": 1}
    ask(1, cpu=5)
    with pytest.raises(OverLimit, match=r"^cpu: requested 1\.5, but user bob already uses 0 of a limit of 1$"):
        ask(2, "bob", cpu=1.5)


def test_the_limit_applies_to_what_the_user_has_in_use(put):
    put("alice", cpu=3)
    ask(1, cpu=2)
    ask(2, "bob", cpu=2)
    with pytest.raises(OverLimit, match="alice already uses 2 of a limit of 3"):
        ask(3, cpu=1.5)
    tcc.confirm(id="job:1", applier="jm")
    with pytest.raises(OverLimit):
        ask(3, cpu=1.5)
    tcc.release(id="job:1", applier="jm")
    ask(3, cpu=1.5)


def test_a_limit_below_the_use_only_prevents_more(put):
    ask(1, cpu=4, ram=500)
    put("alice", cpu=1)
    with pytest.raises(OverLimit, match="cpu: requested 1, but user alice already uses 4 of a limit of 1"):
        ask(2, cpu=1)
    ask(3, ram=500)


def test_a_limit_applies_to_one_tenant(put):
    Tenant.objects.create(name="other", cpu=8)
    put("alice", cpu=1)
    tcc.try_(id="job:1", applier="jm", request_type="request", owner="alice", tenant="other", cpu=5)
    ask(2, cpu=1)


def test_the_tenants_capacity_still_applies(put):
    put("alice", cpu=100)
    with pytest.raises(Refused, match="tenant default has 8 left"):
        ask(1, cpu=9)


def test_requests_that_never_fit_differ_from_those_that_do_not_fit_now(put, default_tenant):
    put("alice", cpu=3)
    ask(1, cpu=3)
    tcc.never_fits(default_tenant, "alice", cpu=3)
    tcc.never_fits(default_tenant, "bob", cpu=8)
    with pytest.raises(Refused, match=r"the limit for user alice is 3 \(3 in use\)"):
        tcc.never_fits(default_tenant, "alice", cpu=3.5)


def test_a_delete_removes_the_limit(put, as_staff):
    put("alice", cpu=1)
    assert as_staff.call("delete", f"{PATH}/alice").json() == {**NONE, "user": "alice", "cpu": 1}
    assert as_staff.refused("delete", f"{PATH}/alice") == "limit: no such limit"
    assert not UserLimit.objects.exists()


def test_users_see_their_own_and_change_none(put, as_alice, as_staff):
    put("*", cpu=1)
    put("bob", cpu=1)
    assert [row["user"] for row in as_alice.call("get", PATH).json()] == ["*"]
    assert [row["user"] for row in as_staff.call("get", PATH).json()] == ["bob", "*"]
    put("alice", cpu=1)
    assert [row["user"] for row in as_alice.call("get", PATH).json()] == ["alice"]
    missing = as_alice.refused("get", f"{PATH}/nobody")
    assert as_alice.refused("get", f"{PATH}/bob") == as_alice.refused("get", f"{PATH}/*") == missing
    for method in ("put", "delete"):
        assert as_alice.refused(method, f"{PATH}/alice", {}).startswith("limit: only administrators")
    Tenant.objects.create(name="other")
    assert as_alice.refused("get", "tenants/other/limits") == "tenant: no such tenant"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    few(
        [
            (f"{PATH}/nobody", {"cpu": 1}, "user"),
            ("tenants/none/limits/*", {"cpu": 1}, "tenant"),
            (f"{PATH}/*", {"cpu": -1}, "cpu"),
            (f"{PATH}/*", {"cpu": "1"}, "cpu"),
            (f"{PATH}/*", {"gpu": 1.5}, "gpu"),
            (f"{PATH}/*", {"disk": 1}, "disk"),
            ("tenants/none/limits/*", {"cpu": True}, "cpu"),
        ],
        3,
    ),
)
def test_an_invalid_put_names_the_field(as_staff, path, body, field):
    assert as_staff.refused("put", path, body).startswith(f"{field}:")
    assert not UserLimit.objects.exists()
