"""Where a tenant approves rollouts, more requests go to another model only once one of its administrators says so."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import Notice
from accounts.tenancy import members
from apps import approvals, canaries, lifecycle, rollouts, second_runs, sleeping
from apps.models import Application, Rollout
from conftest import Api
from kernel.locking import WrongState
from kernel.models import history_of
from mlp.tests.page_world import visible_text, visitor
from models_app.models import Model
from resources.models import Tenant

from .conftest import bearer_of

pytestmark = pytest.mark.django_db(transaction=True)

STEPS = {"steps": [{"percent": 10, "minutes": 1}, {"percent": 60, "minutes": 1}]}
LIST, APPROVE = "tenants/default/rollouts", "tenants/default/rollouts:approve"


@pytest.fixture
def app(adder, bob, tasks):
    """Alice's application, up, in a tenant that approves rollouts and that bob administrates."""
    Tenant.objects.update(approves_rollouts=True)
    members.put(tenant="default", user="bob", role="admin", by="test")
    other = Model.objects.create(user=adder.user, tenant=adder.tenant, name="other", src="x", size=1, state="ready")
    row = lifecycle.create_app(
        user=adder.user, name="calc", model_name="adder", cpu=0.1, replicas={"min": 0, "max": 1}, by="test"
    )
    lifecycle.note_order(row.pk)
    lifecycle.up(row.pk, f"app-{row.pk}-1", "127.0.0.1:1", by="runner")
    row = Application.objects.get(pk=row.pk)
    row.other = other
    return row


def begun(app: Application, plan: dict | None = None) -> Rollout:
    """Return the move to the other model, whose run has come up."""
    canaries.set_plan(user=app.user, name="calc", by="alice", **(plan or {}))
    rollouts.move(user=app.user, name="calc", by="alice", model_name="other")
    rollout = Rollout.objects.get()
    canaries.begin(rollout.pk, rollout.run_name, "127.0.0.1:2", alias="alias")
    return Rollout.objects.get()


def over(rollout: Rollout) -> Rollout:
    """Return the rollout after a look at which the time of its step is over."""
    Rollout.objects.update(step_since=timezone.now() - timedelta(minutes=2))
    canaries.advance(Rollout.objects.get(), "alias")
    return Rollout.objects.get()


@pytest.fixture
def as_admin(bob):
    return Api(bearer_of(bob)["Authorization"].split()[1])


def test_each_step_waits_for_the_approval_and_all_are_in_the_history(app, as_admin, alice):
    rollout = begun(app, STEPS)
    for percent, now in ((10, 0), (60, 10), (100, 60)):
        rollout = over(rollout)
        assert (rollout.phase, rollout.percent, rollout.proposed) == ("canary", now, percent)
        [shown] = as_admin.call("get", LIST).json()
        assert (shown["user"], shown["name"], shown["serves"], shown["model_name"]) == (
            "alice",
            "calc",
            "adder",
            "other",
        )
        assert (shown["now"], shown["percent"], shown["run"]) == (now, percent, rollout.run_name)
        body = {"user": "alice", "name": "calc", "run": shown["run"], "percent": percent}
        assert as_admin.call("put", APPROVE, body).status_code == 200
        assert as_admin.call("get", LIST).json() == []
        rollout = Rollout.objects.get()
    app.refresh_from_db()
    assert (app.model.name, rollout.phase) == ("other", "ending")
    said = [(str(change.reason), change.by) for change in history_of(app)]
    assert ("approved: 60 % of the requests go to the model other", "bob") in said
    assert ("60 % of the requests to the model other: needs approval", "alice") in said
    notice = Notice.objects.get(user__username="bob", reason__contains="needs your approval")  # he has not read it
    assert "calc of alice needs your approval: 10 % of the requests to the model other." in str(notice.reason)


def test_without_a_plan_all_requests_wait_for_the_approval(app, as_admin):
    rollout = begun(app)
    assert (rollout.phase, rollout.percent, rollout.proposed) == ("canary", 0, 100)
    app.refresh_from_db()
    assert app.model.name == "adder"


def test_the_owner_proposes_more_and_may_take_less(app, alice, as_alice):
    begun(app, STEPS)
    path = "users/alice/apps/calc/rollout"
    for percent, expected in ((50, (0, 50)), (100, (0, 100)), (0, (0, None))):
        shown = as_alice.call("put", f"{path}:share", {"percent": percent}).json()["rollout"]
        assert (shown["percent"], shown["proposed"]) == expected
    assert as_alice.call("delete", path).status_code == 200


def test_only_the_tenants_administrators_approve(app, as_alice, as_admin):
    rollout = begun(app, STEPS)
    body = {"user": "alice", "name": "calc", "run": rollout.run_name, "percent": 10}
    for call in (("get", LIST, None), ("put", APPROVE, body)):
        assert as_alice.refused(*call) == "tenant: only the tenant's administrators can approve rollouts"
    Tenant.objects.create(name="theirs", cpu=1, gpu=0, ram=1)
    assert as_admin.refused("put", "tenants/theirs/rollouts:approve", body) == "tenant: no such tenant"
    assert Rollout.objects.get().percent == 0


@pytest.mark.parametrize("change", [{"run": "app-1-99"}, {"percent": 11}])
def test_what_has_taken_the_place_of_what_was_looked_at_is_not_approved(app, as_admin, change):
    rollout = begun(app, STEPS)
    body = {"user": "alice", "name": "calc", "run": rollout.run_name, "percent": 10} | change
    assert "has changed; look at it again" in as_admin.refused("put", APPROVE, body)
    assert Rollout.objects.get().percent == 0


def test_nothing_moves_past_the_approval(app, alice):
    """Neither a stopped or sleeping application, nor one that may restart without room for two runs."""
    model = app.other
    Tenant.objects.update(cpu=0.1)
    rollouts.move(user=alice, name="calc", by="alice", model_name="other", may_restart=True)
    assert Rollout.objects.get().phase == "waiting"
    rollouts.cancel(user=alice, name="calc", by="alice")
    assert sleeping.rest(app.pk, app.run_name, "test")
    with pytest.raises(WrongState, match="are approved in the tenant default, so the application has to be up"):
        rollouts.move(user=alice, name="calc", by="alice", model_name="other")
    lifecycle.stop_app(user=alice, name="calc", by="alice")
    with pytest.raises(WrongState, match="has to be up"):
        rollouts.move(user=alice, name="calc", by="alice", model_name=model.name)
    app.refresh_from_db()
    assert app.model.name == "adder"


def test_without_the_policy_what_waits_goes_on(app):
    rollout = begun(app, STEPS)
    Tenant.objects.update(approves_rollouts=False)
    rollout = over(rollout)
    assert (rollout.percent, rollout.proposed) == (10, None)


def test_an_approved_move_that_was_interrupted_is_finished(app):
    begun(app)
    Rollout.objects.update(percent=100, proposed=None)
    canaries.advance(Rollout.objects.get(), "alias")
    app.refresh_from_db()
    assert app.model.name == "other"


def test_a_restart_needs_no_approval(app, alice):
    rollouts.move(user=alice, name="calc", by="alice")
    rollout = Rollout.objects.get()
    canaries.begin(rollout.pk, rollout.run_name, "127.0.0.1:2", alias="alias")
    app.refresh_from_db()
    assert app.run_name == rollout.run_name


def test_the_pages_say_what_waits_and_approve_it(app, alice, bob):
    rollout = begun(app, STEPS)
    assert "10 % needs the approval of an administrator of the tenant default." in visible_text(
        visitor(alice).get("/apps/calc")
    )
    assert "Rollouts to approve" not in visible_text(visitor(alice).get("/tenants/in/default"))
    browser = visitor(bob)
    assert "10 % of the requests to other (now 0 %), instead of adder" in visible_text(
        browser.get("/tenants/in/default")
    )
    form = {"rollout": rollout.pk, "run": rollout.run_name, "percent": "10"}
    assert visitor(alice).post("/tenants/in/default/approve", form).status_code == 404
    again = browser.post("/tenants/in/default/approve", form | {"percent": "60"}, follow=True)
    assert "What was to be approved has changed. Look at it again." in visible_text(again)
    assert "Approved: 10 % of the requests of calc." in visible_text(
        browser.post("/tenants/in/default/approve", form, follow=True)
    )
    assert (Rollout.objects.get().percent, approvals.waiting(alice.tenant).count()) == (10, 0)
    assert second_runs.as_application(Rollout.objects.get()).model.name == "other"
