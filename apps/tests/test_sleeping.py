"""An application that sleeps or is about to: who wakes it, and what changes it meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import User
from accounts.tenancy import members
from apps import demand, launching, lifecycle, places, playground, replicas, rollouts, runs, scaling, sleeping
from apps.models import Application, AppRun, Replica, Rollout
from datasets.webdav.gate import internal_key
from kernel.errors import Refused
from kernel.locking import Missing
from models_app.models import Model
from resources.models import Tenant

from .test_route import asked

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def resting(alice, adder, tasks):
    """An application that may sleep, and does so from now on: its run is still being stopped."""
    row = lifecycle.create_app(
        user=alice, name="calc", model_name="adder", cpu=0.1, replicas={"min": 0, "max": 1}, by="test"
    )
    lifecycle.note_order(row.pk)
    run_name = fresh(row).run_name
    lifecycle.up(row.pk, run_name, "127.0.0.1:1", by="runner")
    assert sleeping.rest(row.pk, run_name, "test")
    tasks.queue.clear()
    places._places.clear()
    return fresh(row)


def fresh(app: Application) -> Application:
    return Application.objects.get(pk=app.pk)


def end_run(app: Application) -> None:
    """Let the last run be stopped: no gateway remembers it any more."""
    Application.objects.update(not_before=None)
    launching.stop(app.pk, app.run_name, False)
    assert (fresh(app).run_name, fresh(app).reserved) == ("", False)


def woken(tasks) -> list[tuple]:
    return [task.args for task in tasks.queue if task.actor_name == "apps.wake"]


def test_a_request_that_comes_before_its_run_is_stopped_uses_that_again(resting, tasks):
    sleeping.wake(resting.pk, "test")
    app = fresh(resting)
    assert (app.state, app.asleep, app.run_name, app.reserved) == ("ready", False, resting.run_name, True)
    assert [target.run_name for target in places.place_of("alice", "calc").targets] == [resting.run_name]
    run = AppRun.objects.get(app=app)
    assert (run.ended, run.outcome) == (None, "")
    Application.objects.update(not_before=None)
    launching.stop(app.pk, app.run_name, False)
    assert fresh(app).run_name == resting.run_name


def test_a_run_that_is_being_stopped_is_not_used_again(resting):
    assert places.place_of("alice", "calc").targets == ()
    assert sleeping.close(resting.pk, resting.run_name)
    sleeping.wake(resting.pk, "test")
    assert (fresh(resting).state, fresh(resting).asleep) == ("ready", True)


def test_one_that_may_not_sleep_any_more_wakes_once_its_run_is_stopped(resting, alice):
    sleeping.close(resting.pk, resting.run_name)
    replicas.set_replicas(user=alice, name="calc", by="alice", min=1)
    end_run(resting)
    scaling.run()
    app = fresh(resting)
    assert (app.state, app.asleep, app.reserved) == ("creating", False, True)


@pytest.mark.parametrize("stopped", [True, False])
def test_one_that_sleeps_moves_to_another_model_without_a_run(resting, alice, stopped):
    Model.objects.create(user=alice, tenant=alice.tenant, name="other", src="home/p.py", size=1, state="ready")
    if stopped:
        end_run(resting)
    rollouts.move(user=alice, name="calc", by="alice", model_name="other")
    assert (fresh(resting).state, fresh(resting).asleep) == ("ready", True)
    sleeping.wake(resting.pk, "test")
    app = fresh(resting)
    expected = ("other", "creating", False) if stopped else ("other", "ready", True)  # not by the earlier model's run
    assert (app.model.name, app.state, app.asleep) == expected
    assert not Rollout.objects.exists()


def test_who_has_left_the_tenant_gets_no_more_replicas_there(resting, alice):
    Tenant.objects.create(name="other", cpu=8, gpu=0, ram=9000)
    members.put(tenant="other", user="alice", role="member", by="test")
    members.remove(tenant=resting.tenant.name, user="alice", by="test")
    alice = User.objects.get(pk=alice.pk)
    for more in ({"max": 2}, {"min": 1}):
        with pytest.raises(Missing):
            replicas.set_replicas(user=alice, name="calc", by="alice", **more)
    assert replicas.set_replicas(user=alice, name="calc", by="alice", max=1, target=3).target == 3


def test_who_has_left_the_tenant_does_not_use_the_run_again(resting):
    leave_tenant(resting)
    sleeping.wake(resting.pk, "test")
    assert fresh(resting).asleep


def leave_tenant(app: Application) -> str:
    Tenant.objects.create(name="other", cpu=8, gpu=0, ram=9000)
    members.put(tenant="other", user="alice", role="member", by="test")
    members.remove(tenant=app.tenant.name, user="alice", by="test")
    return "its owner is not in the tenant default any more"


def shrink_tenant(app: Application) -> str:
    Tenant.objects.update(ram=100)
    return "requested 512 MiB, but this tenant has 100 MiB"


@pytest.mark.parametrize("change", [leave_tenant, shrink_tenant])
def test_what_may_not_start_may_not_wake_and_says_why(resting, alice, client, change):
    end_run(resting)
    Application.objects.update(public=True)
    reason = change(resting)
    sleeping.wake(resting.pk, "test")
    app = fresh(resting)
    assert (app.state, app.asleep, app.reserved, reason in app.reason) == ("error", False, False, True), app.reason
    with pytest.raises(Refused):
        lifecycle.start_app(user=User.objects.get(pk=alice.pk), name="calc", by="alice")
    headers = {"X-App-User": "alice", "X-App-Name": "calc", "X-Internal-Key": internal_key()}
    answer = client.get("/internal/apps/refusal", headers=headers)
    assert (answer.status_code, reason in answer.json()["error"]) == (503, True)


def test_requests_of_the_playground_count(resting, alice):
    Application.objects.update(asleep=False, address="127.0.0.1:1")
    assert demand.read(resting.pk)[1] is None
    assert playground.predict(fresh(resting), "{}", alice.pk).status == 0
    assert demand.read(resting.pk)[1] is not None


def test_many_requests_in_a_web_process_wake_it_once(resting, tasks):
    Application.objects.update(public=True)
    assert {asked()[0] for _number in range(20)} == {403}
    assert woken(tasks) == [(resting.pk,)]


def test_what_is_refused_does_not_wake_it(resting, tasks):
    Application.objects.update(public=True, body_mib=1, address_rate=1)
    assert asked(x_app_length=str(2 << 20))[0] == 403
    assert (woken(tasks), demand.read(resting.pk)[1]) == ([], None)
    assert asked()[0] == 403
    assert demand.read(resting.pk)[1] is not None
    tasks.queue.clear()
    demand.broker().client.delete(demand.LAST.format(pk=resting.pk), demand.WOKEN.format(pk=resting.pk))
    assert asked()[0] == 403  # beyond the limit of the address
    assert (woken(tasks), demand.read(resting.pk)[1]) == ([], None)


def test_the_time_while_it_sleeps_does_not_count_as_down(resting):
    later = timezone.now() + timedelta(hours=1)
    asleep = runs.uptime(runs.latest(resting), later)
    assert (asleep.wanted_s < 600, asleep.up_s < 600, asleep.failures) == (True, True, 0)
    end_run(resting)
    sleeping.wake(resting.pk, "test")
    lifecycle.note_order(resting.pk)
    started = runs.uptime(runs.latest(resting), later)
    assert (3600 - started.wanted_s) < 600


def test_a_replica_that_is_not_needed_any_more_is_no_sleep(resting):
    now = timezone.now()
    AppRun.objects.all().delete()
    own = AppRun(
        app=resting, name="own", model_name="adder", ordered=now - timedelta(hours=5), ready=now - timedelta(hours=5)
    )
    other = AppRun(
        app=resting, name="other", model_name="adder", ordered=now - timedelta(hours=4), ready=now - timedelta(hours=4)
    )
    own.ended, own.outcome = now - timedelta(hours=1), "failed"
    other.ended, other.outcome = now - timedelta(hours=3), "scaled_in"
    AppRun.objects.bulk_create([own, other])
    seen = runs.uptime(runs.latest(resting), now)
    assert (round(seen.wanted_s), round(seen.up_s), seen.failures) == (5 * 3600, 4 * 3600, 1)


def test_the_names_of_all_runs_are_read_in_one_statement(resting, alice, django_assert_num_queries):
    Replica.objects.create(app=resting, slot=1, generation=0, phase="ready", run_name="app-1-7")
    Rollout.objects.create(app=resting, model=resting.model, phase="starting", run_name="app-1-8")
    names = [resting.run_name, "app-1-7", "app-1-8", "app-1-9"]
    with django_assert_num_queries(1):
        assert launching.RUNS.names_of_rows(names) == set(names[:3])
