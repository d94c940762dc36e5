"""Every (state, verb) pair of a user."""

from __future__ import annotations

import pytest

from accounts.models import State
from kernel.tests import fsm

TABLE = {("NotActive", "activate"): "Actived", ("Actived", "deregister"): "NotActive"}


@pytest.mark.django_db
@pytest.mark.parametrize(("state", "verb", "target"), fsm.pairs(State.values, ["activate", "deregister"], TABLE))
def test_every_pair(alice, state, verb, target):
    fsm.check(alice, state, verb, target)
