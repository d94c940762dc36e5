"""What ends with an application besides its own run, what a late report changes, and what a new one is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import User
from apps import lifecycle, trash, versions
from apps.models import Application, AppRun, Replica, Rollout
from conftest import move
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, locked
from kernel.models import history_of
from models_app.models import Alias, Model, ModelVersion, RegisteredModel
from resources.models import ResourceRequest, Tenant

pytestmark = pytest.mark.django_db(transaction=True)

Phase = Rollout.Phase


@pytest.fixture
def app(adder, tasks) -> Application:
    """An application that is up."""
    row = lifecycle.create_app(user=adder.user, name="calc", model_name="adder", cpu=0.5, ram=100, by="test")
    lifecycle.note_order(row.pk)
    lifecycle.up(row.pk, f"app-{row.pk}-1", "127.0.0.1:1", by="runner")
    tasks.queue.clear()
    return fresh(row)


def fresh(app: Application) -> Application:
    return Application.objects.get(pk=app.pk)


def change(app: Application, **fields) -> Application:
    Application.objects.filter(pk=app.pk).update(**fields)
    return fresh(app)


def recorded(app: Application, name: str) -> AppRun:
    """Return the record of another run of it, which is up."""
    return AppRun.objects.create(app=app, name=name, model_name="adder", ordered=timezone.now(), ready=timezone.now())


def with_replicas(app: Application) -> None:
    for slot, phase in enumerate(["ready", "ending"], start=1):
        name = f"replica-{slot}"
        recorded(app, name)
        Replica.objects.create(app=app, slot=slot, generation=0, phase=phase, run_name=name)


def moving(app: Application, phase: str) -> Rollout:
    recorded(app, "second")
    return Rollout.objects.create(app=app, model=app.model, phase=phase, run_name="second", percent=10)


def sent(tasks) -> list[tuple]:
    return [(task.actor_name, task.args) for task in tasks.queue]


def outcomes(app: Application) -> dict[str, str]:
    return {run.name: run.outcome for run in AppRun.objects.filter(app=app) if run.ended}


def stop(app: Application) -> None:
    lifecycle.stop_app(user=app.user, name=app.name, by="test")


def fail(app: Application) -> None:
    change(app, state="creating")
    lifecycle.fail(app.pk, "x", by="test")


class TestEnds:
    @pytest.mark.parametrize(("verb", "outcome"), [(stop, "stopped"), (fail, "failed")])
    def test_its_replicas_end_with_it_and_are_stopped_once_no_gateway_knows_them(self, app, tasks, verb, outcome):
        with_replicas(app)
        begun = timezone.now()
        verb(app)
        first, second = Replica.objects.order_by("pk")
        assert (first.phase, second.phase) == ("ending", "ending")
        assert begun <= first.not_before - timedelta(seconds=1) <= timezone.now()
        assert second.not_before is None, "it was ending before"
        assert outcomes(app) == {app.run_name: outcome, "replica-1": "stopped", "replica-2": "stopped"}
        assert ("apps.scale", (app.pk,)) in sent(tasks)

    def test_after_the_last_failure_nothing_of_it_runs(self, app, tasks, settings):
        settings.APP_MAX_FAILURES = 1
        with_replicas(app)
        lifecycle.end_run(app.pk, app.run_name, "x", by="runner")
        assert (fresh(app).state, fresh(app).reserved) == ("error", False)
        assert {row.phase for row in Replica.objects.all()} == {"ending"}
        assert sent(tasks) == [("apps.scale", (app.pk,))]

    @pytest.mark.parametrize("verb", [stop, fail])
    @pytest.mark.parametrize("phase", [Phase.STARTING, Phase.CANARY])
    def test_the_second_run_of_a_move_is_stopped_too(self, app, tasks, verb, phase):
        rollout = moving(app, phase)
        verb(app)
        row = Rollout.objects.get()
        assert (row.phase, row.percent, row.not_before) == ("ending", None, None)
        assert outcomes(app)["second"] == "stopped"
        assert ("apps.rollout", (rollout.pk,)) in sent(tasks)

    @pytest.mark.parametrize("phase", [Phase.WAITING, Phase.FAILED, Phase.RESTARTING])
    def test_a_move_without_a_second_run_ends_at_once(self, app, tasks, phase):
        moving(app, phase)
        stop(app)
        assert not Rollout.objects.exists()
        assert [name for name, _args in sent(tasks)] == ["apps.stop"]

    def test_a_second_run_that_is_being_stopped_stays_so(self, app, tasks):
        moving(app, Phase.ENDING)
        stop(app)
        assert (Rollout.objects.get().phase, Rollout.objects.get().percent) == ("ending", 10)
        assert [name for name, _args in sent(tasks)] == ["apps.stop"]

    @pytest.mark.parametrize(
        ("phase", "state"),
        [(Phase.STARTING, "creating"), (Phase.CANARY, "creating"), (Phase.WAITING, "error"), (Phase.ENDING, "error")],
    )
    def test_only_another_run_that_may_be_better_keeps_it_from_failing(self, app, settings, phase, state):
        settings.APP_MAX_FAILURES = 1
        moving(app, phase)
        other = lifecycle.create_app(user=app.user, name="other", model_name="adder", cpu=0.1, ram=100, by="test")
        Rollout.objects.create(app=other, model=other.model, phase=Phase.STARTING)
        lifecycle.end_run(app.pk, app.run_name, "x", by="runner")
        assert fresh(app).state == state

    def test_an_error_without_a_run_releases_what_was_reserved(self, app):
        change(app, state="creating", run_name="")
        stop(app)
        assert (fresh(app).state, fresh(app).reserved) == ("error", False)
        assert ResourceRequest.objects.get().state == "released"

    def test_a_stopped_one_counts_no_failures_and_waits_for_nothing(self, app):
        change(app, state="creating", failures=3, queued=timezone.now(), not_before=timezone.now())
        stop(app)
        row = fresh(app)
        assert (row.failures, row.queued, row.not_before, row.address, row.ready_since) == (0, None, None, "", None)
        assert row.reserved, "until its run is gone"

    def test_once_its_run_is_gone_its_resources_are_free(self, app):
        stop(app)
        with locked(Application, pk=app.pk) as row:
            row.run_name = ""
            lifecycle.note_stop(row)
        assert (fresh(app).run_name, fresh(app).reserved) == ("", False)
        assert ResourceRequest.objects.get().state == "released"

    def test_deactivation_says_that_the_start_was_cancelled(self, app, alice):
        change(app, state="creating")
        with locked(User, pk=alice.pk):
            lifecycle.delete_all_of(alice, by="test")
        assert [row.outcome for row in history_of(app) if row.transition == "fail"] == ["cancelled"]


class TestLateReports:
    """A report about a run counts for that run only, and not once it sleeps."""

    def test_the_end_of_a_run_that_sleeps_changes_nothing(self, app, tasks):
        before = change(app, asleep=True)
        lifecycle.end_run(app.pk, app.run_name, "x", by="runner")
        lifecycle.end_requested(app.pk, app.run_name, "x", by="runner")
        assert (fresh(app).state, fresh(app).run_name, fresh(app).failures) == ("ready", before.run_name, 0)
        assert not sent(tasks)

    def test_a_run_that_comes_up_is_confirmed_and_recorded(self, app):
        run = AppRun.objects.get(app=app)
        assert (run.name, run.ended) == (app.run_name, None)
        assert run.ready is not None
        lifecycle.end_requested(app.pk, app.run_name, "x", by="runner")
        assert outcomes(app) == {app.run_name: "restarted"}

    def test_why_a_run_ended_is_recorded_with_it(self, app):
        lifecycle.end_run(app.pk, app.run_name, "exit code 1", by="runner")
        run = AppRun.objects.get(app=app)
        assert (run.outcome, str(run.reason)) == ("failed", "exit code 1")

    def test_what_a_start_waits_for_is_kept_for_its_run(self, app):
        app = change(app, state="creating", ordered=None, reason="")
        lifecycle.note_wait(app, "an image", again=True)
        row = fresh(app)
        assert row.reason == "waiting to start: an image"
        assert row.ordered is not None
        change(app, ordered=None)
        lifecycle.note_wait(fresh(app), "a disk")
        assert (fresh(app).reason, fresh(app).ordered) == ("waiting to start: a disk", None)
        lifecycle.note_wait(fresh(app), "")
        assert fresh(app).reason == "waiting to start: a disk", "an empty one clears nothing"
        lifecycle.note_wait(fresh(app), "a disk", again=True)
        assert fresh(app).ordered is not None, "its time begins again"
        stale = fresh(app)
        change(app, run_name="another")
        lifecycle.note_wait(stale, "a node")
        assert fresh(app).reason == "waiting to start: a disk"

    def test_one_that_is_gone_waits_for_nothing(self, app):
        gone = fresh(app)
        change(app, state="deleting")
        lifecycle.forget(app.pk)
        lifecycle.note_wait(gone, "an image")
        assert not Application.objects.exists()

    def test_without_reserved_resources_nothing_is_ordered(self, app):
        change(app, state="creating", run_name="", reserved=False)
        assert lifecycle.note_order(app.pk) is None


class TestStart:
    def test_a_failed_one_starts_again_with_a_request_of_its_own(self, app, tasks):
        change(app, state="creating")
        lifecycle.fail(app.pk, "x", by="test")
        change(app, failures=3, not_before=timezone.now())
        begun = timezone.now()
        lifecycle.start_app(user=app.user, name="calc", by="test")
        row = fresh(app)
        assert (row.state, row.reserved, row.reason, row.failures, row.not_before) == ("creating", True, "", 0, None)
        assert begun <= row.queued <= timezone.now()
        assert ResourceRequest.objects.get().state == "tried"
        assert sent(tasks) == [("apps.launch", (app.pk,))]

    def test_one_in_the_trash_or_still_stopping_is_refused(self, app):
        stop(app)
        with pytest.raises(WrongState, match="still being stopped"):
            lifecycle.start_app(user=app.user, name="calc", by="test")
        change(app, run_name="", trashed=timezone.now())
        with pytest.raises(WrongState, match="is in the trash"):
            lifecycle.start_app(user=app.user, name="calc", by="test")

    def test_who_has_left_the_tenant_starts_nothing_there(self, app, alice):
        stop(app)
        other = Tenant.objects.create(name="other", cpu=8, ram=9000)
        change(app, run_name="", tenant=other)
        with pytest.raises(Missing, match="no such tenant"):
            lifecycle.start_app(user=alice, name="calc", by="test")

    def test_what_never_fits_is_refused_and_what_does_not_fit_now_is_queued(self, app, alice, tasks):
        stop(app)
        change(app, run_name="", reserved=False, cpu=4)
        Tenant.objects.update(cpu=3)
        with pytest.raises(Refused, match="cpu"):
            lifecycle.start_app(user=alice, name="calc", by="test")
        lifecycle.create_app(user=alice, name="other", model_name="adder", cpu=1, ram=100, by="test")
        change(app, cpu=3)
        tasks.queue.clear()
        lifecycle.start_app(user=alice, name="calc", by="test")
        row = fresh(app)
        assert (row.state, row.reserved, row.reason) == ("creating", False, str(lifecycle.QUEUED))
        assert not sent(tasks)
        assert isinstance(lifecycle.reserve(row), Refused)
        Tenant.objects.update(cpu=8)
        assert lifecycle.reserve(row) is None
        assert (fresh(app).reserved, fresh(app).reason) == (True, "")


class TestRefused:
    def refusal(self, user, **fields) -> str:
        with pytest.raises(Refused) as refusal:
            lifecycle.create_app(user=user, name="new", by="test", **fields)
        assert not Application.objects.exists()
        return refusal.value.msg

    def test_a_model_that_failed_says_why(self, adder):
        Model.objects.update(state="error", reason="no program")
        text = "model_name: the model adder cannot be served here: no program"
        assert self.refusal(adder.user, model_name="adder") == text

    def test_a_model_in_the_trash(self, adder):
        Model.objects.update(trashed=timezone.now())
        with pytest.raises(WrongState, match="the model adder is in the trash"):
            lifecycle.create_app(user=adder.user, name="new", model_name="adder", by="test")

    def test_more_than_the_tenant_has(self, adder):
        Tenant.objects.update(cpu=3)
        assert "cpu" in self.refusal(adder.user, model_name="adder", cpu=4)

    def test_replicas_that_do_not_go_together(self, adder):
        assert self.refusal(adder.user, model_name="adder", replicas={"min": 3, "max": 2}).startswith("replicas.max: ")

    @pytest.mark.parametrize("uri", ["models:/churn@none", "models:/none@champion", "models:/churn@champion\x00", ""])
    def test_an_alias_that_is_not_there(self, alice, adder, uri):
        registered = RegisteredModel.objects.create(user=alice, name="churn")
        version = ModelVersion.objects.create(registered=registered, number=1, model=adder)
        Alias.objects.create(registered=registered, name="champion", version=version)
        with pytest.raises(Refused) as refusal:
            versions.alias_named(alice, uri)
        assert refusal.value.msg == f"follows: you have no alias {uri}"
        assert versions.alias_named(alice, "models:/churn@champion").version == version

    def test_what_follows_an_alias_serves_the_model_of_its_version(self, alice, bob, adder, tasks):
        registered = RegisteredModel.objects.create(user=alice, name="churn")
        version = ModelVersion.objects.create(registered=registered, number=2, model=adder)
        alias = Alias.objects.create(registered=registered, name="champion", version=version)
        app = lifecycle.create_app(user=alice, name="follower", follows=alias.uri, by="test")
        assert (fresh(app).model, fresh(app).alias) == (adder, alias)
        move(bob, alice.tenant)
        with pytest.raises(Refused, match="no alias"):
            lifecycle.create_app(user=bob, name="follower", follows=alias.uri, by="test")
        ModelVersion.objects.update(model=None)
        with pytest.raises(Refused, match=r"^follows: the files of version 2 are not on this platform$"):
            lifecycle.create_app(user=alice, name="another", follows=alias.uri, by="test")

    def test_a_name_in_the_trash_is_told_from_one_in_use(self, app, alice):
        trash.trash(user=alice, name="calc", by="test")
        with pytest.raises(Refused, match=r"named calc; it is in the trash$"):
            lifecycle.create_app(user=alice, name="calc", model_name="adder", by="test")

    def test_a_deletion_from_the_trash_is_refused_once_it_was_restored(self, app, alice):
        with pytest.raises(WrongState, match="is not in the trash"):
            lifecycle.delete_app(user=alice, name="calc", by="test", trashed=timezone.now())
        assert fresh(app).state == "ready"


def test_the_numbers_of_replicas_are_stored(adder, tasks):
    row = lifecycle.create_app(
        user=adder.user, name="calc", model_name="adder", cpu=0.1, replicas={"min": 1, "max": 3}, by="test"
    )
    assert (fresh(row).replicas_min, fresh(row).replicas_max) == (1, 3)
    assert (fresh(row).may_restart, fresh(row).title) == (False, "")
