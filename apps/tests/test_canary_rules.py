"""The rules that end a canary, by what its process has counted, without processes."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from apps import canaries, launching, lifecycle, rollouts, second_runs, switching
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
    now = timezone.now()
    return Rollout.objects.create(
        app=app, model=other, phase="canary", run_name="app-1-2", slot=1, percent=10, step_since=now, base_of=now,
        by="alice",
    )  # fmt: skip


def look(rollout: Rollout, requests: int, failures: int, slow_ms: float, errors: int = 0) -> Rollout:
    """Return the canary after a look at a run that has counted so much; other `errors` are the callers'."""
    coming = second_runs.as_application(rollout)
    path = launching.folder(coming) / launching.traffic_name(coming)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(
            {"requests": requests, "errors": failures + errors, "failures": failures, "series": [[1.0, 1.0, slow_ms]]}
        )
    )
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


def test_a_canary_may_replace_a_model_that_fails_again_and_again(rollout, alice):
    """Else the application would be in error, with a second run that uses its resources and can serve nothing."""
    app = rollout.app
    Application.objects.update(failures=settings.APP_MAX_FAILURES - 1, ready_since=timezone.now())
    lifecycle.end_run(app.pk, app.run_name, "exit code 1", by="test")
    app.refresh_from_db()
    assert (app.state, app.failures) == ("creating", settings.APP_MAX_FAILURES)
    Rollout.objects.update(address="127.0.0.1:2")
    canaries.set_percent(user=alice, name="calc", by="alice", percent=100)
    app.refresh_from_db()
    assert (app.state, app.model.name, app.run_name) == ("ready", "other", "app-1-2")


def test_wrong_requests_of_callers_end_no_canary(rollout):
    """Anybody who may call the application could end each move of it."""
    assert look(rollout, 100, 0, 5, errors=100).phase == "canary"


def test_what_a_process_of_an_earlier_release_counts_as_errors_are_failures(rollout):
    coming = second_runs.as_application(rollout)
    path = launching.folder(coming) / launching.traffic_name(coming)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"requests": 20, "errors": 20, "series": []}))
    switching.RUNS.running(rollout, RunStatus("running"), follow=False)
    assert Rollout.objects.get().phase == "ending"


def test_failures_count_for_the_step_in_which_they_are(rollout, alice):
    """Many good requests before do not hide them."""
    assert look(rollout, 10_000, 0, 5).phase == "canary"
    canaries.set_percent(user=alice, name="calc", by="alice", percent=50)
    assert look(Rollout.objects.get(), 10_000, 0, 5).phase == "canary"
    assert look(Rollout.objects.get(), 10_020, 3, 5).phase == "ending"


def test_a_step_lasts_its_minutes(rollout):
    Application.objects.update(canary=PLAN | {"steps": [{"percent": 10, "minutes": 5}, {"percent": 60, "minutes": 5}]})
    for minutes, percent in ((4, 10), (5, 60)):
        since = timezone.now() - timedelta(minutes=minutes)
        Rollout.objects.update(step_since=since, base_of=since)
        assert look(Rollout.objects.get(), 20, 0, 5).percent == percent


def test_a_step_lasts_until_its_rules_can_be_judged(rollout):
    """A model that nobody has asked, or that never answers, is not proven by the time that passes."""
    Application.objects.update(canary=PLAN | {"steps": [{"percent": 10, "minutes": 1}, {"percent": 60, "minutes": 1}]})
    past = timezone.now() - timedelta(hours=1)
    Rollout.objects.update(step_since=past, base_of=past)
    assert look(Rollout.objects.get(), 19, 0, 5).percent == 10
    assert look(Rollout.objects.get(), 20, 0, 5).percent == 60


def test_a_move_that_is_tried_again_begins_with_the_first_step(rollout, alice):
    Application.objects.update(canary=PLAN | {"steps": [{"percent": 10, "minutes": 1}, {"percent": 60, "minutes": 1}]})
    Rollout.objects.update(step=1, percent=60)
    assert look(Rollout.objects.get(), 20, 20, 5).phase == "ending"
    rollouts.end(rollout.pk, rollout.run_name)
    rollouts.again(rollout.app_id, "alice")
    row = Rollout.objects.get()
    canaries.begin(row.pk, row.run_name, "127.0.0.1:2", alias="alias")
    row.refresh_from_db()
    assert (row.phase, row.step, row.percent) == ("canary", 0, 10)
