"""The verbs of the admin for tenants, requests and limits."""

from __future__ import annotations

import pytest
from django.urls import reverse

from jobs.models import Job
from kernel.admin_display import url_of
from resources import tcc
from resources.models import ResourceRequest, Tenant

from .admin_world import put
from .test_admin_verbs import buttons, do


def test_capacity_is_set_through_tcc_and_never_below_what_is_in_use(staff_client, default_tenant):
    tcc.try_(id="ext-1", applier="jm", request_type="request", cpu=4)
    same = {"gpu": 2, "ram": 16000, "rom": 10 << 30}
    page = do(staff_client, default_tenant, "capacity", cpu="3", **same)
    assert "must not be less than what is in use" in page.content.decode()
    assert do(staff_client, default_tenant, "capacity", cpu="6.5", **same).status_code == 302
    tenant = Tenant.objects.get(pk=default_tenant.pk)
    assert (float(tenant.cpu), tenant.source) == (6.5, "set")
    assert "Set capacity: cpu 6.5" in staff_client.get(url_of(tenant)).content.decode()


def test_a_tenant_lends_and_borrows(staff_client, default_tenant):
    north = Tenant.objects.create(name="north", cpu=1)
    do(
        staff_client,
        default_tenant,
        "lending",
        lends="on",
        cpu_borrow_limit="0",
        gpu_borrow_limit=0,
        ram_borrow_limit=0,
    )
    do(staff_client, north, "lending", cpu_borrow_limit="4.5", gpu_borrow_limit=1, ram_borrow_limit=2048)
    words = staff_client.get(url_of(north)).content.decode()
    assert "lends nothing; borrows up to 1 GPU, 4.5 CPU, 2 GiB Memory" in words
    tcc.try_(
        id="job:1", applier="jm", request_type="request", tenant="north", owner="a", borrows=True, cpu=3
    )  # fmt: skip
    assert "has borrowed 2 CPU from default" in staff_client.get(url_of(north)).content.decode()
    words = staff_client.get(url_of(default_tenant)).content.decode()
    assert "lends idle resources; borrows nothing; has lent 2 CPU to north" in words
    assert "0 of 8, 2 lent" in words


def test_use_that_differs_from_the_requests_is_red(staff_client, default_tenant):
    tcc.try_(id="ext-1", applier="jm", request_type="request", cpu=4)
    assert "mlp-differs" not in staff_client.get(url_of(default_tenant)).content.decode()
    Tenant.objects.filter(pk=default_tenant.pk).update(cpu_inuse=3)
    assert staff_client.get(url_of(default_tenant)).content.decode().count("mlp-differs") == 1


@pytest.mark.parametrize(("name", "after"), [("confirm", "confirmed"), ("cancel", "cancelled")])
def test_open_requests_are_settled(staff_client, default_tenant, name, after):
    row = tcc.try_(id="ext_1:a", applier="am", request_type="request", cpu=1)
    assert buttons(staff_client, row) == {"confirm", "cancel"}
    do(staff_client, row, name)
    row = ResourceRequest.objects.get(pk=row.pk)
    assert row.state == after
    assert buttons(staff_client, row) == set()
    assert "operator:oscar" in staff_client.get(url_of(row)).content.decode()


def test_a_request_of_an_existing_object_cannot_be_settled(staff_client, alice):
    job = put(Job, alice, "train", "creating")
    row = tcc.try_(id=f"job:{job.pk}", applier="jm", request_type="request", owner="alice", cpu=1)
    assert buttons(staff_client, row) == set()
    lost = tcc.try_(id="job:999999", applier="jm", request_type="request", owner="alice", cpu=1)
    assert buttons(staff_client, lost) == {"cancel"}


def test_a_users_limit_is_created_changed_and_removed(staff_client, alice, default_tenant):
    add = reverse("admin:resources_userlimit_add")
    assert "no such user" in staff_client.post(add, {"tenant": default_tenant.pk, "user": "nobody"}).content.decode()
    staff_client.post(add, {"tenant": default_tenant.pk, "user": "alice", "gpu": 1})
    limit = default_tenant.limits.get(user="alice")
    do(staff_client, limit, "change", cpu="2")
    limit.refresh_from_db()
    assert (limit.cpu, limit.gpu) == (2, None)
    do(staff_client, limit, "remove")
    assert not default_tenant.limits.exists()
