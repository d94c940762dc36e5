"""The rules that end a canary, by what its process has counted, without processes."""

from __future__ import annotations

import json

import pytest

from apps import canaries, launching, second_runs, switching
from apps.models import Application, Rollout
from kernel.locking import WrongState
from models_app.models import Model
from runners import RunStatus

pytestmark = pytest.mark.django_db(transaction=True)

PLAN = {"steps": [{"percent": 10, "minutes": 0}], "max_errors_percent": 10, "max_p95_ms": 100}


@pytest.fixture
def rollout(adder, tasks):
    """A canary of alice's other model, whose run has not counted anything."""
    other = Model.objects.create(user=adder.user, tenant=adder.tenant, name="other", src="x", size=1, state="ready")
    app = Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name="calc", port=31000, state="ready", reserved=False,
        run_name="app-1-1", canary=PLAN,
    )  # fmt: skip
    return Rollout.objects.create(app=app, model=other, phase="canary", run_name="app-1-2", slot=1, percent=10)


def look(rollout: Rollout, requests: int, errors: int, slow_ms: float) -> Rollout:
    """Return the canary after a look at a run that has counted so much."""
    coming = second_runs.as_application(rollout)
    path = launching.folder(coming) / launching.traffic_name(coming)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"requests": requests, "errors": errors, "series": [[1.0, 1.0, slow_ms]]}))
    switching.RUNS.running(rollout, RunStatus("running"), follow=False)
    return Rollout.objects.get()


@pytest.mark.parametrize(
    ("counted", "reason"),
    [
        ((20, 3, 5), "15.0 % of its requests failed, at most 10 % may"),
        ((20, 2, 101), "its p95 latency was 101 ms, at most 100 ms may be"),
        ((20, 2, 100), ""),
        ((19, 19, 900), ""),
    ],
)
def test_a_rule_that_is_broken_ends_the_canary(rollout, counted, reason):
    row = look(rollout, *counted)
    assert (row.phase, row.reason) == (("ending", reason) if reason else ("canary", ""))


def test_a_canary_that_has_ended_has_no_share(rollout, alice):
    look(rollout, 20, 20, 5)
    with pytest.raises(WrongState, match="the application has no canary now"):
        canaries.set_percent(user=alice, name="calc", by="alice", percent=50)
