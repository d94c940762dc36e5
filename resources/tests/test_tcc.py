"""Try-confirm-cancel over REST. Edge cases are in test_tcc_edges.py, the model-based test in
test_model.py."""

from __future__ import annotations

import pytest

from kernel.tests import fsm
from mlp.tests.tiers import few
from resources import tcc
from resources.models import ResourceRequest, State, Tenant

pytestmark = pytest.mark.django_db

TABLE = {
    ("tried", "confirm"): "confirmed",
    ("tried", "cancel"): "cancelled",
    ("confirmed", "release"): "released",
    ("cancelled", "reinstate"): "confirmed",
    ("released", "reinstate"): "confirmed",
}
VERBS = ["confirm", "cancel", "release", "reinstate"]


@pytest.mark.parametrize(("state", "verb", "target"), fsm.pairs(State.values, VERBS, TABLE))
def test_every_pair(default_tenant, state, verb, target):
    request = ResourceRequest(id="x", applier="jm", request_type="request", tenant=default_tenant)
    fsm.check(request, state, verb, target)


@pytest.fixture
def call(as_staff):
    """Make a call that must answer 200 and the JSON string ""."""

    def put(verb: str, id: str = "a", **fields):
        response = as_staff.call("put", f"resource_request:{verb}", {"id": id, "applier": "jm", **fields})
        assert (response.status_code, response.content) == (200, b'""')

    return put


def in_use(kind: str = "cpu"):
    tenant = Tenant.objects.get(name="default")
    assert tcc.allocated(tenant) == {kind: getattr(tenant, f"{kind}_inuse") for kind in tcc.KINDS}
    return float(getattr(tenant, f"{kind}_inuse"))


def test_try_reserves_confirm_keeps_cancel_releases(call):
    call("try", request_type="request", cpu=2.5, ram=200)
    assert (in_use(), in_use("ram")) == (2.5, 200)
    call("confirm")
    assert in_use() == 2.5
    call("try", id="b", request_type="request", cpu=1)
    call("cancel", id="b")
    assert in_use() == 2.5


def test_all_three_are_idempotent(call):
    for _ in range(2):
        call("try", request_type="request", cpu=2)
    call("try", request_type="request", cpu=4)
    assert in_use() == 2
    for _ in range(2):
        call("confirm")
    call("cancel")
    assert in_use() == 2
    call("confirm", id="unknown")
    call("try", id="b", request_type="request", cpu=1)
    for _ in range(2):
        call("cancel", id="b")
    call("confirm", id="b")
    assert in_use() == 2


def test_a_cancel_before_its_try_makes_the_try_reserve_nothing(call):
    call("cancel")
    call("try", request_type="request", cpu=2)
    call("confirm")
    assert in_use() == 0


def test_a_release_is_earmarked_by_try_and_done_by_confirm(call, as_staff):
    call("try", request_type="request", cpu=4)
    call("confirm")
    call("try", id="r", request_type="release", cpu=3)
    assert in_use() == 4
    body = {"id": "s", "applier": "jm", "request_type": "release", "cpu": 2}
    assert as_staff.refused("put", "resource_request:try", body).startswith("cpu:")
    call("confirm", id="r")
    assert in_use() == 1
    call("try", id="t", request_type="release", cpu=1)
    call("cancel", id="t")
    assert in_use() == 1


@pytest.mark.parametrize(
    ("fields", "short"),
    [({"cpu": 8.5}, "cpu"), ({"gpu": 3}, "gpu"), ({"ram": 10000, "cpu": 9}, "cpu"), ({"rom": 11 << 30}, "rom")],
)
def test_a_refusal_names_what_is_short_and_how_much_is_left(as_staff, fields, short):
    body = {"id": "a", "applier": "jm", "request_type": "request", **fields}
    message = as_staff.refused("put", "resource_request:try", body)
    assert message.startswith(f"{short}:")
    assert "left" in message
    assert not ResourceRequest.objects.exists()


def test_an_id_of_another_applier_is_refused(call, as_staff):
    call("try", request_type="request", cpu=1)
    for verb in ("confirm", "cancel"):
        assert as_staff.refused("put", f"resource_request:{verb}", {"id": "a", "applier": "dm"}).startswith("applier:")
    body = {"id": "a", "applier": "dm", "request_type": "request"}
    assert as_staff.refused("put", "resource_request:try", body).startswith("applier:")


@pytest.mark.parametrize(
    ("field", "value"),
    few(
        [
            ("id", "a b"),
            ("id", "x" * 65),
            ("applier", "xx"),
            ("request_type", "take"),
            ("gpu", 17),
            ("cpu", 0.05),
            ("cpu", 10.1),
            ("ram", 99),
            ("rom", -1),
            ("tenant", "none"),
            ("size", 1),
        ],
        4,
    ),
)
def test_an_invalid_field_is_named(as_staff, default_tenant, field, value):
    body = {"id": "a", "applier": "jm", "request_type": "request", field: value}
    assert as_staff.refused("put", "resource_request:try", body).startswith(f"{field}:")


class TestTenants:
    def test_users_of_the_tenant_and_staff_see_it(self, as_alice, as_staff):
        for caller in (as_alice, as_staff):
            answer = caller.call("get", "tenants/default").json()
            assert (answer["cpu"], answer["cpu_inuse"], answer["ram"]) == (8.0, 0.0, 16000)
        assert [row["name"] for row in as_alice.call("get", "tenants").json()] == ["default"]

    def test_others_do_not_see_it(self, as_alice):
        Tenant.objects.create(name="other")
        assert as_alice.refused("get", "tenants/other") == as_alice.refused("get", "tenants/none")

    def test_staff_change_a_capacity_but_never_below_what_is_in_use(self, as_staff, as_alice, call):
        call("try", request_type="request", cpu=4)
        refused = as_alice.refused("put", "tenants/default", {"cpu": 5})
        assert refused == "tenant: only administrators can change the capacity"
        assert as_staff.call("put", "tenants/default", {"cpu": 5}).json()["cpu"] == 5.0
        assert as_staff.refused("put", "tenants/default", {"cpu": 3.9}).startswith("cpu:")
        assert as_staff.refused("put", "tenants/default", {"cpu": "3"}).startswith("cpu:")
