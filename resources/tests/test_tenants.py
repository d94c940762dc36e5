"""Tenants are created out of the capacity of `default`, changed and deleted by the platform's administrators."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from accounts.tenancy import members
from datasets.models import Dataset
from kernel.errors import Refused
from kernel.models import StateChange
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visitor
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import later
from resources import inventory, tcc, tenants
from resources.models import KINDS, Tenant

pytestmark = pytest.mark.django_db
WHOLE = {"cpu": 8, "gpu": 2, "ram": 16000, "rom": 10 << 30}  # of the default tenant in tests


def capacity(name: str) -> dict:
    row = Tenant.objects.get(name=name)
    return {kind: getattr(row, kind) for kind in KINDS}


def together() -> dict:
    return {kind: sum(getattr(row, kind) for row in Tenant.objects.all()) for kind in KINDS}


def test_a_tenant_is_created_changed_and_deleted_and_all_have_what_there_is(as_staff):
    response = as_staff.call("post", "tenants", {"name": "research", "cpu": 3, "gpu": 1, "ram": 4000, "rom": 1000})
    assert (response.status_code, response.json()["cpu"], response.json()["source"]) == (201, 3.0, "set")
    assert (capacity("default")["cpu"], capacity("default")["gpu"]) == (5, 1)
    assert together() == WHOLE
    assert as_staff.call("put", "tenants/research", {"cpu": 1.5}).json()["cpu"] == 1.5
    assert capacity("default")["cpu"] == 6.5
    assert together() == WHOLE
    assert as_staff.call("delete", "tenants/research").json()["name"] == "research"
    assert capacity("default") == WHOLE
    changes = StateChange.objects.filter(kind="tenant").order_by("pk")
    assert [(row.transition, row.name, row.by) for row in changes] == [
        ("create", "research", "oscar"), ("delete", "research", "oscar"),
    ]  # fmt: skip


def test_more_than_there_is_left_is_refused_and_nothing_is_created(as_staff):
    tcc.try_(id="ext-1", applier="jm", request_type="request", cpu=6)
    refused = as_staff.refused("post", "tenants", {"name": "research", "ram": 100, "cpu": 3})
    assert refused == "cpu: requested 3 more, but the tenant default has 2 that it does not use"
    assert not Tenant.objects.filter(name="research").exists()
    assert capacity("default") == WHOLE


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "name"), ({"name": "R2"}, "name"), ({"name": "default"}, "name"), ({"name": "a", "cpu": -1}, "cpu"),
     ({"name": "a", "cpu": "many"}, "cpu"), ({"name": "a", "lends": True}, "lends")],
)  # fmt: skip
def test_bad_input_is_named(as_staff, body, field):
    assert as_staff.refused("post", "tenants", body).startswith(f"{field}: ")
    assert Tenant.objects.count() == 1


def test_once_default_is_set_by_an_administrator_the_others_do_not_change_it(as_staff):
    as_staff.call("put", "tenants/default", {"cpu": 8})
    as_staff.call("post", "tenants", {"name": "research", "cpu": 3})
    assert capacity("default")["cpu"] == 8


def test_at_the_next_start_default_has_what_the_others_leave(as_staff, monkeypatch):
    monkeypatch.setattr(inventory, "measured", lambda: {"cpu": 16, "ram": 32000, "gpu": 4})
    as_staff.call("post", "tenants", {"name": "research", "cpu": 3, "gpu": 1, "ram": 4000})
    inventory.prepare_default_tenant()
    assert {kind: together()[kind] for kind in ("cpu", "gpu", "ram")} == {"cpu": 16, "gpu": 4, "ram": 32000}
    monkeypatch.setattr(inventory, "measured", lambda: {"cpu": 2, "ram": 1000, "gpu": 0})
    inventory.prepare_default_tenant()
    assert {kind: capacity("default")[kind] for kind in ("cpu", "gpu", "ram")} == {"cpu": 0, "gpu": 0, "ram": 0}


def test_a_tenant_in_which_something_is_left_is_not_deleted(as_staff, alice):
    as_staff.call("post", "tenants", {"name": "research", "rom": 5000})
    members.put(tenant="research", user="alice", role="member", by="test")
    members.make_default(user=alice, tenant="research", by="alice")
    assert as_staff.refused("delete", "tenants/research") == "tenant: this tenant still has user alice"
    members.make_default(user=alice, tenant="default", by="alice")
    alice.refresh_from_db()
    row = put(Dataset, alice, "digits", "ready")
    Dataset.objects.filter(pk=row.pk).update(tenant=Tenant.objects.get(name="research"))
    assert "this tenant still has dataset" in as_staff.refused("delete", "tenants/research")
    row.delete()
    assert as_staff.call("delete", "tenants/research").status_code == 200
    assert [membership.tenant.name for membership in alice.memberships.all()] == ["default"]
    assert as_staff.refused("delete", "tenants/default") == "tenant: the tenant default cannot be deleted"
    assert as_staff.refused("delete", "tenants/nowhere") == "tenant: no such tenant"


def test_administrators_do_all_of_it_in_the_admin(staff):
    client = visitor(staff)
    form = {"name": "research", "cpu": "2", "gpu": "0", "ram": "100", "rom": "10"}
    assert client.post("/admin/resources/tenant/add/", form).status_code == 302
    row = Tenant.objects.get(name="research")
    assert (row.cpu, capacity("default")["cpu"]) == (2, 6)
    added = client.post("/admin/accounts/membership/add/", {"tenant": row.pk, "user": "oscar", "role": "admin"})
    assert added.status_code == 302
    assert row.memberships.get().role == "admin"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rounds", [4, later(20)])
def test_while_tenants_come_and_go_no_capacity_is_lost(default_tenant, rounds):
    """Others reserve and release meanwhile."""
    problems, stop = [], threading.Event()

    def repeat(call):
        try:
            while not stop.is_set():
                try:
                    call()
                except Refused:
                    continue
        except Exception as problem:
            problems.append(problem)
        finally:
            connection.close()

    def come_and_go(name: str):
        tenants.create(name=name, by="test", cpu=2, ram=1000)
        tenants.change(name=name, by="test", cpu=1)
        tenants.delete(name=name, by="test")

    numbers = iter(range(10**6))

    def work():
        key = f"ext-{next(numbers)}"
        tcc.try_(id=key, applier="jm", request_type="request", cpu=1, ram=100)
        tcc.cancel(id=key, applier="jm")

    calls = [lambda: come_and_go("north"), lambda: come_and_go("south"), work, work]
    threads = [threading.Thread(target=repeat, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    done = StateChange.objects.filter(kind="tenant", transition="delete")
    seen = 0
    while done.count() < rounds and not problems:
        sums = together()
        assert sums["cpu"] == WHOLE["cpu"], sums
        seen += 1
    stop.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not problems
    assert seen
    assert together() == WHOLE
