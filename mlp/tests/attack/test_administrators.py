"""What an administrator does in a user's name leaves a record and a notification: nobody acts as a user unseen."""

from __future__ import annotations

import pytest

from accounts.models import Notice
from jobs.models import Job
from kernel.models import StateChange
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text, visitor

pytestmark = pytest.mark.django_db
LINK = {"kind": "job", "name": "fit", "audience": "link"}


@pytest.fixture
def job(alice):
    return put(Job, alice, "fit", "finished")


def reasons(user) -> list[str]:
    return list(Notice.objects.filter(user=user, kind="share").order_by("pk").values_list("reason", flat=True))


def test_a_link_by_an_administrator_is_recorded_and_its_owner_is_notified(job, as_staff, alice):
    """Its key opens the object for everybody who has it, and the administrator has it alone."""
    response = as_staff.call("post", "users/alice/shares", LINK)
    assert (response.status_code, "key=" in response.json()["link"]) == (201, True)
    assert reasons(alice) == ["oscar shared this in your name (link: read only)."]
    change = StateChange.objects.get(kind="share", name="fit")
    assert (change.by, change.transition) == ("oscar", "share")
    client = visitor()
    client.force_login(alice)
    assert "oscar shared this in your name" in visible_text(client.get("/notifications"))
    assert as_staff.call("delete", f"users/alice/shares/{response.json()['id']}").status_code == 200
    assert reasons(alice)[1:] == ["oscar revoked your share (link: read only)."]


def test_of_what_owners_do_themselves_they_are_not_notified(job, as_alice, alice, bob):
    for more in ({}, {"audience": "user", "user": "bob"}):
        response = as_alice.call("post", "users/alice/shares", LINK | more)
        assert as_alice.call("delete", f"users/alice/shares/{response.json()['id']}").status_code == 200
    assert (reasons(alice), len(reasons(bob))) == ([], 1)
