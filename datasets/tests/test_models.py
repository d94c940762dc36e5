"""Every (state, verb) pair of a dataset."""

from __future__ import annotations

import pytest

from datasets.models import Dataset, State
from kernel.tests import fsm

TABLE = {
    ("creating", "complete"): "ready",
    ("creating", "fail"): "error",
    ("ready", "erase"): "deleting",
    ("error", "erase"): "deleting",
}


@pytest.mark.django_db
@pytest.mark.parametrize(("state", "verb", "target"), fsm.pairs(State.values, ["complete", "fail", "erase"], TABLE))
def test_every_pair(alice, state, verb, target):
    fsm.check(Dataset.objects.create(user=alice, tenant=alice.tenant, name="x", size=0), state, verb, target)
