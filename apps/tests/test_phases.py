"""The life cycles of second runs: a phase is changed by a transition, and by nothing else."""

from __future__ import annotations

import pytest
from django.db import IntegrityError
from django.utils import timezone
from django_fsm import ConcurrentTransition

from apps.models import Application, Replica, Rollout
from kernel.locking import WrongState, locked

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def app(adder):
    return Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name="calc", port=31000, state="ready", reserved=False
    )


@pytest.fixture
def rollout(app):
    return Rollout.objects.create(app=app, model=app.model)


@pytest.fixture
def replica(app):
    return Replica.objects.create(app=app, slot=1, generation=0)


@pytest.mark.parametrize("kind", ["rollout", "replica"])
def test_a_phase_cannot_be_set_or_be_another_one(request, kind):
    row = request.getfixturevalue(kind)
    with pytest.raises(AttributeError):
        row.phase = "starting"
    with pytest.raises(IntegrityError):
        type(row).objects.update(phase="nonsense")


@pytest.mark.parametrize(
    ("kind", "phase", "verb", "given"),
    [
        ("rollout", "waiting", "share", ["127.0.0.1:1"]),
        ("rollout", "waiting", "fail", []),
        ("rollout", "ending", "order", []),
        ("rollout", "failed", "end", [None]),
        ("replica", "waiting", "up", ["127.0.0.1:1"]),
        ("replica", "ending", "order", []),
        ("replica", "ending", "drain", [None]),
    ],
)
def test_what_does_not_follow_is_refused(request, app, kind, phase, verb, given):
    row = request.getfixturevalue(kind)
    type(row).objects.update(phase=phase)
    with pytest.raises(WrongState, match="has changed meanwhile"), locked(Application, pk=app.pk):
        getattr(type(row).objects.get(), verb)(*given)


def test_of_two_copies_one_moves_on(replica):
    other = Replica.objects.get()
    replica.order()
    replica.save()
    other.wait(timezone.now(), reason="no room")
    with pytest.raises(ConcurrentTransition):
        other.save()
