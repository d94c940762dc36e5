"""The usage page."""

from __future__ import annotations

import pytest

from jobs.models import Job
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import EVIL, markup, visible_text, visitor
from mlp.tests.tiers import few
from resources import limits, tcc
from resources.models import Tenant

pytestmark = pytest.mark.django_db


def hold(user, name: str, **amounts) -> None:
    """Reserve the resources of a running job of the user."""
    job = put(Job, user, name, "running")
    tcc.try_(id=f"job:{job.pk}", applier="jm", request_type="request", tenant="default", owner=user.username, **amounts)


def test_it_shows_the_users_own_usage_only(alice, bob):
    hold(alice, "mine", cpu=1.5, ram=300)
    hold(bob, "theirs", cpu=2, gpu=1)
    response = visitor(alice).get("/usage")
    words = visible_text(response)
    assert "mine" in words
    assert "theirs" not in words
    assert "1.5" in words
    assert "300 MiB" in words
    assert "3.5 / 8" in words  # the tenant's own sum is everybody's


def test_operators_see_their_own_usage_too(alice, staff):
    hold(alice, "mine", cpu=1.5)
    assert "mine" not in visible_text(visitor(staff).get("/usage"))


def test_operators_see_the_usage_and_the_limit_of_each_user(alice, bob, staff):
    hold(alice, "mine", cpu=1.5, ram=300)
    limits.set_limit(tenant="default", user="*", by="test", cpu=4)
    limits.set_limit(tenant="default", user="bob", by="test", ram=1024)
    words = visible_text(visitor(staff).get("/usage"))
    assert "alice 1.5 / 4 0 300 MiB" in words
    assert "bob 0 0 0 MiB / 1 GiB" in words
    assert "Usage and limits of users" not in visible_text(visitor(alice).get("/usage"))


def test_it_shows_what_is_borrowed_and_lent(alice, bob):
    Tenant.objects.filter(name="default").update(lends=True)
    bob.tenant = Tenant.objects.create(name="north", cpu=1, cpu_borrow_limit=4)
    bob.save()
    job = put(Job, bob, "long", "running")
    request = {"id": f"job:{job.pk}", "applier": "jm", "request_type": "request", "tenant": "north", "owner": "bob"}
    tcc.try_(**request, borrows=True, cpu=3.5)
    assert "2.5 lent" in visible_text(visitor(alice).get("/usage"))
    words = visible_text(visitor(bob).get("/usage"))
    assert "3.5 / 1" in words
    assert "2.5 borrowed" in words


def test_without_any_usage(alice):
    assert visitor(alice).get("/usage").status_code == 200


def test_a_tenant_without_anything(alice):
    """No division by a capacity of zero."""
    Tenant.objects.update(cpu=0, gpu=0, ram=0, rom=0)
    client = visitor(alice)
    assert [client.get(address).status_code for address in ("/usage", "/index", "/jobs")] == [200, 200, 200]


@pytest.mark.parametrize("name", few(["hours", "by", "resource"], 1))
@pytest.mark.parametrize("typed", [EVIL, "", "0", "-1", "9" * 99, "\x00", "owner&owner=bob"])
def test_invalid_parameters_become_the_defaults(alice, name, typed):
    response = visitor(alice).get("/usage", {name: typed})
    assert response.status_code == 200
    page = markup(response)
    assert page.inline == []
    address = next(attrs["data-usage"] for _tag, attrs in page.tags if "data-usage" in attrs)
    assert address == "/api/v1/tenants/default/usage?hours=24&by=kind"


def test_the_address_that_its_script_requests_exists(alice):
    client = visitor(alice)
    for hours in ("1", "24", "168", "720", "2160"):
        for by in ("owner", "kind"):
            page = markup(client.get("/usage", {"hours": hours, "by": by}))
            address = next(attrs["data-usage"] for _tag, attrs in page.tags if "data-usage" in attrs)
            assert f"hours={hours}&by={by}" in address
            assert client.get(address).status_code == 200


def test_the_page_is_read_only(alice):
    assert visitor(alice).post("/usage").status_code == 405
