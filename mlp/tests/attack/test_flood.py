"""One user who submits jobs without number: those of others get their turn, and admission costs no more queries."""

from __future__ import annotations

import uuid

import pytest
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Job
from kernel import storage
from mlp.tests.tiers import later
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("count", [1000, later(10_000)])
def test_jobs_without_number_of_one_user_delay_nobody(
    count, alice, bob, as_alice, as_bob, tasks, django_assert_max_num_queries
):
    for user, client, name in ((alice, as_alice, "first"), (bob, as_bob, "only")):
        (storage.home_dir(user.username) / "fit.py").write_text("pass")
        if user == bob:
            flood(count, alice)
        body = {"name": name, "entry": "fit.py", "cpu": float(Tenant.objects.get(name="default").cpu)}
        assert client.call("post", f"users/{user.username}/jobs", body).status_code == 201
    assert Job.objects.filter(reserved=True).values_list("name", flat=True).get() == "first"
    Job.objects.filter(name="first").update(started=timezone.now())
    lifecycle.cancel(user=alice, name="first", by="alice")
    with django_assert_max_num_queries(60):
        lifecycle.reserve_next()
    assert Job.objects.get(name="only").reserved
    assert not Job.objects.filter(name__startswith="flood", reserved=True).exists()


def flood(count: int, user) -> None:
    """Queue as many jobs as if each had been submitted; all of them are older than what comes next."""
    first = Job.objects.get(name="first")
    rows = [copy(first, f"flood{number}") for number in range(count)]
    Job.objects.bulk_create(rows)


def copy(job: Job, name: str) -> Job:
    """Return an unsaved job like another one, queued."""
    fields = {
        field.attname: getattr(job, field.attname) for field in Job._meta.concrete_fields if not field.primary_key
    }
    return Job(**{**fields, "name": name, "reserved": False, "run_id": uuid.uuid4()})
