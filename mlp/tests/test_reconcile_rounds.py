"""Which rounds of `manage.py reconcile` are whole: while nothing is under way, one of ten."""

from __future__ import annotations

import pytest

import runners
from jobs.models import Job
from mlp.management.commands.reconcile import QUIET_ROUNDS, Rounds
from mlp.operators.tests.admin_world import put

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("default_tenant")]


def played(rounds: Rounds, count: int, changed: bool = False) -> list[bool]:
    whole = []
    for _ in range(count):
        whole.append(rounds.is_whole(changed))
    return whole


QUIET = [False] * (QUIET_ROUNDS - 1)


def test_an_idle_platform_has_few_whole_rounds():
    assert played(Rounds(), 1 + 2 * QUIET_ROUNDS) == [True, *QUIET, True, *QUIET, True]


def test_every_round_is_whole_while_a_job_is_under_way(alice):
    job = put(Job, alice, "fit", "creating")
    rounds = Rounds()
    assert played(rounds, 5) == [True] * 5
    Job.objects.filter(pk=job.pk).update(state="finished")
    assert played(rounds, QUIET_ROUNDS) == [*QUIET, True]


@pytest.mark.parametrize("state", ["creating", "deleting"])
def test_what_begins_ends_the_quiet(alice, state):
    rounds = Rounds()
    assert played(rounds, 2) == [True, False]
    job = put(Job, alice, "fit", state)
    assert played(rounds, 2) == [True, True]
    Job.objects.filter(pk=job.pk).update(state="finished")
    assert played(rounds, 2) == [False, False]


def test_a_change_of_a_run_makes_the_next_round_whole():
    rounds = Rounds()
    assert played(rounds, 2) == [True, False]
    assert played(rounds, 1, changed=True) == [True]


def test_a_run_that_starts_ends_the_quiet(monkeypatch):
    rounds = Rounds()
    assert played(rounds, 2) == [True, False]
    monkeypatch.setattr(runners.get(), "names", lambda: ["job-1-1"])
    assert played(rounds, 2) == [True, True]
