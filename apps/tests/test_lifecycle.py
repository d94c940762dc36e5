"""What the verbs of applications record and refuse, without runs, beyond the table of mlp/tests/verb_effects.py."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from django.db import IntegrityError
from django.utils import timezone

from accounts.models import User
from apps import lifecycle, ports, rollouts
from apps.models import Application, Rollout
from conftest import move
from kernel.errors import Fault, Refused
from kernel.locking import Missing, WrongState, locked
from kernel.models import history_of
from models_app.models import Model
from resources.models import ResourceRequest, Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]

PAUSES_S = [0.5, 1, 2, 5, 10, 20, 40, 40]
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def new_model(user: User, name: str = "adder", state: str = "ready") -> Model:
    return Model.objects.create(user=user, tenant=user.tenant, name=name, src="home/x", size=1, state=state)


@pytest.fixture
def create():
    """`create(user, name)` makes an application of the user's model `adder`."""

    def make(user: User, name: str = "calc", model_name: str = "adder", **fields) -> Application:
        if not Model.objects.filter(user=user, name="adder").exists():
            new_model(user)
        return lifecycle.create_app(user=user, name=name, model_name=model_name, by="test", **fields)

    return make


@pytest.fixture
def served(create):
    """`served(user, name)` makes an application that is up."""

    def make(user: User, name: str = "calc", **fields) -> Application:
        app = create(user, name, **fields)
        lifecycle.note_order(app.pk)
        lifecycle.up(app.pk, f"app-{app.pk}-1", "127.0.0.1:1", by="runner")
        return fresh(app)

    return make


def fresh(app: Application) -> Application:
    return Application.objects.get(pk=app.pk)


def change(app: Application, **fields) -> Application:
    Application.objects.filter(pk=app.pk).update(**fields)
    return fresh(app)


def is_after(pause: timedelta, moment: datetime, begun: datetime) -> bool:
    """Return whether the moment is that pause after something that happened between `begun` and now."""
    return begun <= moment - pause <= timezone.now()


class TestCreate:
    def test_all_fields_are_stored_and_the_users_tenant_is_charged(self, create, alice, tasks):
        move(alice, Tenant.objects.create(name="other", cpu=8, gpu=2, ram=9000))
        app = fresh(create(alice, gpu=1, cpu=0.5, ram=300, public=True, tenant="other"))
        request = ResourceRequest.objects.get()
        assert (app.user, app.tenant, app.name, app.model.name) == (alice, alice.tenant, "calc", "adder")
        assert (app.gpu, app.cpu, app.ram, app.public, app.attempt) == (1, 0.5, 300, True, 0)
        assert (request.tenant, request.owner, request.applier) == (alice.tenant, "alice", "am")
        assert (request.gpu, float(request.cpu), request.ram) == (1, 0.5, 300)
        assert [(task.actor_name, task.args) for task in tasks.queue] == [("apps.launch", (app.pk,))]
        assert [(row.transition, row.by) for row in history_of(app)] == [("create", "test")]

    def test_the_defaults(self, create, alice):
        app = fresh(create(alice))
        assert (app.gpu, app.cpu, app.ram, app.public) == (0, 1, 512, False)

    def test_another_tenant_is_refused_as_one_that_does_not_exist(self, create, alice):
        Tenant.objects.create(name="other", cpu=8, ram=9000)
        for tenant in ("other", "none"):
            with pytest.raises(Missing, match="no such tenant"):
                create(alice, tenant=tenant)

    def test_with_the_task_queue_away_nothing_is_stored(self, create, alice, monkeypatch):
        def away():
            raise Fault("the task queue is not available; try again later")

        monkeypatch.setattr("kernel.broker.require", away)
        with pytest.raises(Fault, match="task queue"):
            create(alice)
        assert not Application.objects.exists()

    def test_the_model_must_be_the_users_own_and_ready(self, create, alice, bob):
        new_model(bob, "theirs")
        new_model(alice, "new", state="creating")
        refusals = {
            "theirs": "you have no model named theirs",
            "new": "the model new is creating; it can be served once it is ready",
        }
        for name, problem in refusals.items():
            with pytest.raises(Refused) as refusal:
                create(alice, model_name=name)
            assert refusal.value.msg == f"model_name: {problem}"

    @pytest.mark.parametrize("name", ["calc", "report"])
    def test_a_name_that_is_taken_is_refused_by_name(self, create, alice, bob, name):
        create(alice, name)
        with pytest.raises(Refused, match=f"^name: you already have an application named {name}$"):
            create(alice, name)
        assert create(bob, name).name == name

    def test_any_other_integrity_error_is_raised_as_it_is(self, create, alice):
        with pytest.raises(IntegrityError, match='null value in column "name"'):
            create(alice, None)


class TestPorts:
    def test_a_port_that_another_has_taken_meanwhile_is_not_shared(self, create, alice, monkeypatch):
        first = create(alice, "first").port
        offers = [first, first, first + 1]
        monkeypatch.setattr(ports, "choose", lambda taken: offers.pop(0))
        assert create(alice, "second").port == first + 1

    def test_when_every_port_it_tries_is_taken_it_is_refused(self, create, alice, monkeypatch):
        first = create(alice, "first").port
        monkeypatch.setattr(ports, "choose", lambda taken: first)
        with pytest.raises(Refused, match=r"^port: no free port was found; try again$"):
            create(alice, "second")

    def test_without_a_free_port_it_is_refused(self, create, alice, monkeypatch):
        first = create(alice, "first").port
        monkeypatch.setattr(ports, "PORTS", range(first, first + 1))
        with pytest.raises(Refused, match=r"^port: all application ports of the platform are in use$"):
            create(alice, "second")


class TestRuns:
    def test_each_run_has_a_name_of_its_own(self, create, alice):
        app = change(create(alice), attempt=3)
        ordered = lifecycle.note_order(app.pk)
        assert (ordered.attempt, ordered.run_name, ordered.address) == (4, f"app-{app.pk}-4", "")
        assert timezone.now() - ordered.ordered < MINUTE
        assert lifecycle.note_order(app.pk).run_name == ordered.run_name
        change(app, not_before=timezone.now() - SECOND)
        assert lifecycle.note_order(app.pk) == app
        change(app, not_before=timezone.now() + MINUTE)
        assert lifecycle.note_order(app.pk) is None
        change(app, not_before=timezone.now() + 60 * MINUTE)
        assert lifecycle.note_order(app.pk) == app, "the clock was set back: no pause is that long"

    def test_a_ready_application_has_an_address_and_confirmed_resources(self, served, alice):
        app = served(alice)
        assert (app.state, app.address) == ("ready", "127.0.0.1:1")
        assert timezone.now() - app.ready_since < MINUTE
        assert ResourceRequest.objects.get().state == "confirmed"
        assert lifecycle.note_order(app.pk) is None

    def test_a_failed_run_is_restarted_with_growing_pauses(self, served, alice, monkeypatch, settings):
        settings.APP_MAX_FAILURES = len(PAUSES_S) + 1
        delays, app = [], served(alice)
        keep = SimpleNamespace(enqueue=lambda message, delay=None: delays.append((message.actor_name, delay)))
        monkeypatch.setattr("kernel.after_commit.broker", lambda: keep)
        for number, pause in enumerate(PAUSES_S, start=1):
            begun = timezone.now()
            lifecycle.end_run(app.pk, fresh(app).run_name, f"exit code {number}", by="runner")
            now = fresh(app)
            assert (now.state, now.failures, now.reason) == ("creating", number, f"exit code {number}")
            assert (now.run_name, now.address, now.ready_since) == ("", "", None)
            assert is_after(timedelta(seconds=pause), now.not_before, begun)
            change(app, not_before=None)
            lifecycle.note_order(app.pk)
        assert delays == [("apps.launch", int(pause * 1000) + 50) for pause in PAUSES_S]
        lifecycle.end_run(app.pk, fresh(app).run_name, "exit code 9", by="runner")
        now = fresh(app)
        assert (now.state, now.reason) == ("error", "stopped after 9 failures: exit code 9")
        assert (now.reserved, ResourceRequest.objects.get().state) == (False, "released")

    @pytest.mark.parametrize(("seconds", "failures"), [(60.5, 1), (50, 4)])
    def test_after_a_minute_of_uptime_earlier_failures_no_longer_count(self, served, alice, seconds, failures):
        app = served(alice)
        change(app, failures=3, ready_since=timezone.now() - timedelta(seconds=seconds))
        lifecycle.end_run(app.pk, app.run_name, "x", by="runner")
        assert fresh(app).failures == failures

    def test_a_ready_applications_port_stays_taken_while_the_gateway_caches_its_address(
        self, served, create, alice, settings
    ):
        settings.APP_MAX_FAILURES = 1
        app, other = served(alice), create(alice, "other")
        lifecycle.note_order(other.pk)
        begun = timezone.now()
        for each in (app, other):
            lifecycle.end_run(each.pk, fresh(each).run_name, "x", by="runner")
        assert is_after(SECOND, fresh(app).not_before, begun)
        assert fresh(other).not_before is None
        deleted = served(alice, "deleted")
        begun = timezone.now()
        lifecycle.delete_app(user=alice, name="deleted", by="test")
        assert is_after(SECOND, fresh(deleted).not_before, begun)

    def test_a_requested_restart_is_no_failure(self, served, alice, tasks):
        app = change(served(alice), failures=2)
        tasks.queue.clear()
        lifecycle.end_requested(app.pk, app.run_name, "stopped", by="runner")
        now = fresh(app)
        assert (now.state, now.failures, now.reason) == ("creating", 2, "")
        assert (now.run_name, now.address, now.ready_since, now.not_before) == ("", "", None, None)
        assert [(task.actor_name, task.args) for task in tasks.queue] == [
            ("apps.launch", (app.pk,)),
        ]

    def test_a_run_that_fails_while_a_better_one_starts_is_not_the_last(self, served, alice, settings):
        settings.APP_MAX_FAILURES = 1
        app = served(alice)
        new_model(alice, "better")
        rollouts.move(user=alice, name=app.name, model_name="better", by="test")
        lifecycle.end_run(app.pk, app.run_name, "x", by="runner")
        assert fresh(app).state == "creating"
        rollout = Rollout.objects.get(app=app)
        rollouts.switch(rollout.pk, rollout.run_name, "127.0.0.1:2", alias="alias")
        assert (fresh(app).state, fresh(app).model.name) == ("ready", "better")

    def test_what_cannot_be_restarted_or_moved(self, create, served, alice):
        app = served(alice)
        with pytest.raises(Refused, match=r"^model_name: you have no model named none$"):
            rollouts.move(user=alice, name=app.name, model_name="none", by="test")
        lifecycle.stop_app(user=alice, name=app.name, by="test")
        with pytest.raises(WrongState, match=r"^state: the application is not running; start it$"):
            rollouts.move(user=alice, name=app.name, by="test")
        Tenant.objects.update(cpu=1)
        queued = create(alice, "queued")
        with pytest.raises(WrongState, match=r"^state: the application is queued; it starts when there is room$"):
            rollouts.move(user=alice, name=queued.name, by="test")

    def test_a_final_failure_releases_the_resources(self, create, alice):
        app = create(alice)
        lifecycle.note_order(app.pk)
        lifecycle.fail(app.pk, "no such program", by="runner")
        now = fresh(app)
        assert (now.state, now.reason, now.run_name, now.reserved) == ("error", "no such program", "", False)
        assert ResourceRequest.objects.get().state == "cancelled"


class TestEnd:
    def test_a_stopped_applications_run_ends_when_the_gateway_has_forgotten_its_address(self, served, alice, tasks):
        app = served(alice)
        new_model(alice, "better")
        rollouts.move(user=alice, name=app.name, model_name="better", by="test")
        Rollout.objects.update(phase=Rollout.Phase.WAITING)
        tasks.queue.clear()
        lifecycle.stop_app(user=alice, name=app.name, by="test")
        (task,) = tasks.queue
        assert (task.actor_name, task.args) == ("apps.stop", (app.pk, app.run_name))
        assert 1000 < tasks.delayed[task.message_id] < 2000
        assert not Rollout.objects.exists()

    def test_a_restart_for_another_model_serves_that_model(self, served, alice):
        app = served(alice)
        new_model(alice, "better")
        rollouts.move(user=alice, name=app.name, model_name="better", by="test")
        Rollout.objects.update(phase=Rollout.Phase.RESTARTING)
        change(app, state="creating", run_name="", address="")
        assert lifecycle.note_order(app.pk).model.name == "better"
        assert fresh(app).model.name == "better"
        assert not Rollout.objects.exists()

    def test_a_deletion_changes_only_the_users_application_of_that_name(self, served, alice, bob, tasks):
        others = [served(bob), served(alice, "before")]
        app = served(alice)
        others.append(served(alice, "behind"))
        tasks.queue.clear()
        assert lifecycle.delete_app(user=alice, name="calc", by="test") == app
        assert (fresh(app).state, fresh(app).address) == ("deleting", "")
        assert [(task.actor_name, task.args) for task in tasks.queue] == [("apps.erase", (app.pk,))]
        assert {fresh(other).state for other in others} == {"ready"}

    def test_deactivation_deletes_all_applications_of_the_user(self, served, create, alice, bob):
        starting, ready, deleting, other = create(alice, "a"), served(alice, "b"), served(alice, "c"), served(bob)
        lifecycle.delete_app(user=alice, name="c", by="before")
        with locked(User, pk=alice.pk):
            lifecycle.delete_all_of(alice, by="test")
        assert [fresh(app).state for app in (starting, ready, deleting, other)] == [*["deleting"] * 3, "ready"]
        assert fresh(starting).reason == "cancelled: the account was deactivated"
        assert [history_of(app).first().by for app in (starting, ready, deleting)] == ["test", "test", "before"]

    def test_a_removed_application_releases_its_resources(self, served, alice):
        app, other = served(alice), served(alice, "other")
        lifecycle.delete_app(user=alice, name="calc", by="test")
        lifecycle.forget(app.pk)
        lifecycle.forget(app.pk)
        assert list(Application.objects.all()) == [other]
        assert ResourceRequest.objects.get(pk=f"app:{app.pk}").state == "released"
        assert Tenant.objects.get(name="default").ram_inuse == 512
