"""Deactivation of an account during concurrent calls: no deadlock, and no object survives it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from accounts import lifecycle as accounts
from datasets.models import Dataset
from jobs.models import Job
from resources import tcc
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)


def test_concurrent_creations_and_deactivation(as_alice, as_staff, home, api, tasks):
    token = as_alice.token

    def create(number: int) -> int:
        try:
            caller, name = api(token), "abcdefghij"[number]
            if number % 2:
                return caller.call("post", "users/alice/jobs", {"name": name, "entry": "train.py"}).status_code
            return caller.call("post", "users/alice/datasets", {"name": name, "size": 5}).status_code
        finally:
            connections.close_all()

    def deregister() -> int:
        try:
            return api(as_staff.token).call("put", "users/alice").status_code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(11) as pool:
        creates = [pool.submit(create, number) for number in range(10)]
        ended = pool.submit(deregister)
        assert {future.result() for future in creates} <= {201, 403}
        assert ended.result() == 200
    assert not Job.objects.filter(state__in=["creating", "running"]).exists()
    assert not Dataset.objects.filter(state="creating").exists()
    tenant = Tenant.objects.get(name="default")
    assert tcc.allocated(tenant) == {kind: getattr(tenant, f"{kind}_inuse") for kind in tcc.KINDS}
    assert tenant.cpu_inuse == 0


def test_no_object_is_created_for_an_inactive_user(as_staff, alice, home):
    accounts.deregister(username="alice", by="test")
    assert as_staff.refused("post", "users/alice/jobs", {"name": "x", "entry": "train.py"}).startswith("user:")
    assert as_staff.refused("post", "users/alice/datasets", {"name": "x", "size": 5}).startswith("user:")
