"""Every (state, verb) pair of a job: no other transition is possible for any caller."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from jobs.models import Job, State
from kernel.tests import fsm

TABLE = {
    ("creating", "start"): "running",
    ("running", "finish"): "finished",
    ("creating", "fail"): "error",
    ("running", "fail"): "error",
    ("finished", "erase"): "deleting",
    ("error", "erase"): "deleting",
}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("state", "verb", "target"), fsm.pairs(State.values, ["start", "finish", "fail", "erase"], TABLE)
)
def test_every_pair(alice, state, verb, target):
    fsm.check(Job.objects.create(user=alice, tenant=alice.tenant, name="x", entry="x.py"), state, verb, target)


@pytest.mark.django_db
def test_the_database_accepts_no_other_state(alice):
    job = Job.objects.create(user=alice, tenant=alice.tenant, name="x", entry="x.py")
    with pytest.raises(IntegrityError), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(state="nonsense")
