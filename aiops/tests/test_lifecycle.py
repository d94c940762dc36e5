"""What the lifecycle functions of trainings and versions record, beyond the table of mlp/tests/verb_effects.py."""

from __future__ import annotations

import uuid
from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

import runners
from aiops import lifecycle
from aiops.models import ModelVersion, TrainingRun
from kernel.locking import Missing, locked
from kernel.models import history_of
from kernel.tests.pages import Recorder
from resources.models import ResourceRequest, Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("default_tenant")]

WORKLOADS = {"c1": {"shop": ["web"]}}
LATE = timedelta(seconds=60)


def order(**parameters) -> dict:
    return {"source": "drain", "model": "nulog-train", "payload": {"parameters": parameters, "max_size": 5}}


def new_run(**parameters) -> TrainingRun:
    run, is_new = lifecycle.create_run(order=order(**parameters), by="test")
    assert is_new
    return run


@pytest.fixture
def run(tasks) -> TrainingRun:
    """Create a training between two others, which must not change."""
    before, run, after = (new_run(uuid=str(uuid.uuid4())) for _ in range(3))
    TrainingRun.objects.exclude(pk=run.pk).update(heartbeat=timezone.now() - LATE)
    rows = list(TrainingRun.objects.filter(pk__in=(before.pk, after.pk)).values())
    tasks.queue.clear()
    yield run
    assert list(TrainingRun.objects.filter(pk__in=(before.pk, after.pk)).values()) == rows


@pytest.fixture
def pages(monkeypatch) -> Recorder:
    return Recorder(monkeypatch)


def fresh(run: TrainingRun) -> TrainingRun:
    return TrainingRun.objects.get(pk=run.pk)


def lease_s(run: TrainingRun) -> int:
    return round((run.lease_until - run.heartbeat).total_seconds())


class TestOrders:
    def test_a_new_order_is_recorded_and_its_training_enqueued(self, tasks, pages):
        request = str(uuid.uuid4())
        given = order(uuid=request, workloads=WORKLOADS)
        run, is_new = lifecycle.create_run(order=given, by="gpu controller")
        run = fresh(run)
        assert is_new
        assert (str(run.uuid), run.workloads, run.payload, run.by) == (request, WORKLOADS, given, "gpu controller")
        assert (run.state, run.stage, run.percent, lease_s(run)) == ("training", "fetching data", 0, 300)
        assert [(task.actor_name, task.args) for task in tasks.queue] == [("aiops.train", (run.pk,))]
        assert [(row.transition, row.by) for row in history_of(run)] == [("create", "gpu controller")]
        assert pages.sent == {"aiops.0", "pages"}

    def test_a_repeated_order_changes_nothing(self, run, tasks):
        known, is_new = lifecycle.create_run(order=order(uuid=str(run.uuid), workloads=WORKLOADS), by="another")
        assert (known, is_new) == (run, False)
        assert fresh(run).workloads == {}
        assert tasks.queue == []

    def test_an_order_without_parameters_is_accepted(self, tasks):
        for payload in ({}, {"parameters": None}, {"parameters": {"workloads": None}}):
            run, _ = lifecycle.create_run(order={"payload": payload}, by="test")
            assert run.workloads == {}
        assert TrainingRun.objects.count() == 3

    def test_without_a_valid_uuid_an_order_gets_a_deterministic_one(self):
        proper = str(uuid.uuid4())
        assert lifecycle.uuid_of({"parameters": {"uuid": proper.upper()}}) == proper
        odd = [{"parameters": {"uuid": "x"}}, {"parameters": "x"}, {"a": 1}, {"a": 2}, {"parameters": {"uuid": "y"}}]
        uuids = [lifecycle.uuid_of(payload) for payload in odd]
        assert uuids == [lifecycle.uuid_of(dict(reversed(payload.items()))) for payload in odd]
        assert len({str(uuid.UUID(each)) for each in uuids}) == len(odd)
        assert lifecycle.uuid_of({**odd[0], "max_size": 5}) == uuids[0]  # the one it names decides

    def test_a_training_is_found_by_its_uuid(self, run):
        assert lifecycle.find(str(run.uuid).upper()) == run
        assert lifecycle.find(str(uuid.uuid4())) is None
        assert lifecycle.find("no uuid") is None


class TestRuns:
    def test_each_attempt_has_a_name_and_starts_once(self, run):
        first = lifecycle.order_run(run.pk, 1)
        assert (first.attempt, first.run_name, first.run_started) == (1, f"aiops-{run.pk}-1", False)
        assert lifecycle.order_run(run.pk, 1) == run  # ordered, not started: the worker was killed in between
        lifecycle.note_start(run.pk, first.run_name, 7)
        started = fresh(run)
        assert (started.run_started, started.owner, started.lines) == (True, first.run_name, 7)
        assert lease_s(started) == 300
        assert lifecycle.order_run(run.pk, 1) is None
        second = lifecycle.order_run(run.pk, 2)
        assert (second.run_name, second.run_started) == (f"aiops-{run.pk}-2", False)
        assert fresh(run).run_started is False
        assert lifecycle.order_run(run.pk, 1) is None

    def test_an_ended_or_missing_training_gets_no_run(self, run):
        lifecycle.fail(run.pk, "x", by="test")
        for attempt in (0, 1):
            assert lifecycle.order_run(run.pk, attempt) is None
        assert lifecycle.order_run(run.pk + 5, 1) is None
        assert fresh(run).run_name == ""

    def test_what_waits_for_resources_is_admitted_once_and_enqueued(self, tasks):
        """A training that has ended, or has its resources, is not."""
        waits, ended, there = (new_run(uuid=str(uuid.uuid4())) for _ in range(3))
        lifecycle.fail(ended.pk, "x", by="test")
        lifecycle.order_run(there.pk, 1)
        tasks.queue.clear()
        lifecycle.admit()
        lifecycle.admit()
        assert [(each.actor_name, each.queue_name, tuple(each.args)) for each in tasks.queue] == [
            ("aiops.train", "gpu", (waits.pk,))
        ]
        assert [fresh(run).reserved for run in (waits, ended, there)] == [True, False, True]

    def test_without_room_nothing_is_admitted(self, tasks):
        new_run(uuid=str(uuid.uuid4()))
        tasks.queue.clear()
        Tenant.objects.filter(name="default").update(cpu_inuse=8, ram_inuse=16000)
        lifecycle.admit()
        assert tasks.queue == []

    def test_a_training_fits_on_a_node(self, monkeypatch):
        """The cluster is a stand-in here: it says how large its largest node is."""
        run = new_run(uuid=str(uuid.uuid4()))
        sizes = {1: {"cpu": Decimal("0.2"), "ram": 9000}, 0: {"cpu": Decimal("1.610"), "ram": 3000}}
        monkeypatch.setattr(runners.get(), "largest", lambda purpose, gpu: sizes[gpu])
        ordered = lifecycle.order_run(run.pk, 1)
        assert lifecycle.held(ordered) == {"cpu": Decimal("1.610"), "ram": 3000}
        assert ordered.gpu == 0

    def test_a_training_of_a_tenant_begins_once_and_never_after_its_end(self, tasks):
        red, blue = (
            lifecycle.create_own(tenant=Tenant.objects.create(name=name, log_model=True), by="anna")
            for name in ("red", "blue")
        )
        assert (red.by, red.queued, fresh(red).heartbeat is None) == ("anna", True, False)
        lifecycle.leave_queue(red.pk, {"first": 1}, WORKLOADS)
        lifecycle.leave_queue(red.pk, {"second": 2}, {})
        assert (fresh(red).queued, fresh(red).payload, fresh(red).workloads) == (False, {"first": 1}, WORKLOADS)
        lifecycle.fail(blue.pk, "x", by="test")
        lifecycle.leave_queue(blue.pk, {"first": 1}, WORKLOADS)
        assert fresh(blue).payload != {"first": 1}

    def test_one_gpu_is_reserved_until_the_run_is_gone(self, run):
        Tenant.objects.filter(name="default").update(gpu=1)
        ordered = lifecycle.order_run(run.pk, 1)
        request = ResourceRequest.objects.get()
        assert (request.pk, request.applier, request.owner) == (f"aiops:{run.uuid}", "jm", "platform")
        assert (request.request_type, request.state, request.gpu, request.cpu) == ("request", "tried", 1, 2)
        assert (fresh(run).reserved, fresh(run).gpu) == (True, 1)
        lifecycle.note_start(run.pk, ordered.run_name, 1)
        lifecycle.order_run(run.pk, 2)
        assert [(row.state, row.gpu) for row in ResourceRequest.objects.all()] == [("confirmed", 1)]
        with locked(TrainingRun, pk=run.pk) as row:
            lifecycle.give_back(row)
        assert [row.state for row in ResourceRequest.objects.all()] == ["released"]
        assert Tenant.objects.get(name="default").gpu_inuse == 0
        gone = fresh(run)
        assert (gone.run_name, gone.run_started, gone.reserved) == ("", False, False)

    def test_a_run_without_a_reservation_releases_none(self, run):
        name = f"aiops-{run.pk}-1"  # of a release that booked a GPU only
        TrainingRun.objects.filter(pk=run.pk).update(attempt=1, run_name=name)
        lifecycle.note_start(run.pk, name, 1)
        with locked(TrainingRun, pk=run.pk) as row:
            lifecycle.give_back(row)
        assert (fresh(run).run_name, fresh(run).run_started) == ("", False)
        assert not ResourceRequest.objects.exists()

    @pytest.mark.parametrize("tenant", [{"gpu": 0}, {"gpu": 1, "gpu_inuse": 1}])
    def test_without_a_free_gpu_it_trains_on_the_cpu(self, run, tenant):
        Tenant.objects.filter(name="default").update(**tenant)
        Tenant.objects.create(name="other", gpu=4)
        assert lifecycle.order_run(run.pk, 1).run_name
        assert (fresh(run).reserved, fresh(run).gpu) == (True, 0)
        booked = ResourceRequest.objects.get()
        assert (booked.gpu, booked.cpu, booked.ram, booked.tenant.name) == (0, 2, 4096, "default")

    def test_a_training_that_no_worker_starts_is_enqueued_again_at_intervals(self, run):
        assert not lifecycle.order_again(run.pk, 30)
        TrainingRun.objects.filter(pk=run.pk).update(heartbeat=timezone.now() - LATE)
        assert not lifecycle.order_again(run.pk, 90)
        assert lifecycle.order_again(run.pk, 30)
        assert timezone.now() - fresh(run).heartbeat < LATE
        assert not lifecycle.order_again(run.pk, 30)

    @pytest.mark.parametrize("fields", [{"run_started": True}, {"state": "error"}])
    def test_a_started_or_ended_training_is_not_enqueued_again(self, run, fields):
        TrainingRun.objects.filter(pk=run.pk).update(heartbeat=timezone.now() - LATE, **fields)
        assert not lifecycle.order_again(run.pk, 30)

    def test_the_reason_of_a_delayed_start_is_kept_and_the_lease_not_renewed(self, run):
        before = fresh(run)
        lifecycle.note_trouble(run.pk, "the log store does not answer")
        now = fresh(run)
        assert now.reason == "the log store does not answer"
        assert (now.lease_until, now.heartbeat) == (before.lease_until, before.heartbeat)

    def test_sent_messages_are_recorded(self, run):
        lifecycle.note_sent(run.pk, job_end_sent=True)
        assert (fresh(run).job_end_sent, fresh(run).announced) == (True, False)


class TestProgress:
    def test_progress_renews_the_lease_and_never_decreases(self, run, pages):
        past = timezone.now() - LATE
        TrainingRun.objects.filter(pk=run.pk).update(heartbeat=past, lease_until=past)
        lifecycle.beat(run.pk, percent=40, epoch=2, elapsed=9)
        lifecycle.beat(run.pk, percent=30, epoch=1)
        now = fresh(run)
        assert (now.percent, now.epoch, now.elapsed, now.losses) == (40, 1, 9, [])
        assert (lease_s(now), now.heartbeat > past) == (300, True)
        assert pages.sent == {"aiops.0"}

    def test_the_last_500_losses_are_kept_rounded(self, run):
        TrainingRun.objects.filter(pk=run.pk).update(losses=[[second, 1.0] for second in range(500)])
        lifecycle.beat(run.pk, elapsed=777, loss=0.123456789)
        now = fresh(run)
        assert (len(now.losses), now.losses[0], now.losses[-1]) == (500, [1, 1.0], [777, 0.12346])
        assert now.loss == 0.123456789


class TestEnd:
    def test_a_completed_training_activates_its_version(self, run, pages, tasks):
        assert lifecycle.complete(run.pk, version="v1", manifest={"lines": 3}, by="runner")
        version = ModelVersion.objects.get()
        assert (version.version, version.manifest, version.run, version.serving) == ("v1", {"lines": 3}, run, True)
        assert timezone.now() - version.served < LATE
        ended = fresh(run)
        assert (ended.state, ended.percent, ended.eta) == ("completed", 100, None)
        assert timezone.now() - ended.ended < LATE
        assert [row.by for row in history_of(run)] == ["runner", "test"]
        assert [(task.actor_name, task.args) for task in tasks.queue] == [("aiops.settle", (run.pk,))]

    def test_an_ended_or_missing_training_cannot_complete_or_fail(self, run, tasks):
        lifecycle.fail(run.pk, "first", by="test")
        tasks.queue.clear()
        for pk in (run.pk, run.pk + 5):
            assert not lifecycle.complete(pk, version="v1", manifest={}, by="test")
            lifecycle.fail(pk, "second", by="test")
        assert (fresh(run).state, fresh(run).reason) == ("error", "first")
        assert not ModelVersion.objects.exists()
        assert tasks.queue == []

    def test_all_running_trainings_can_be_cancelled(self, tasks):
        first, second, ended = (new_run(uuid=str(uuid.uuid4())) for _ in range(3))
        lifecycle.complete(ended.pk, version="v1", manifest={}, by="test")
        lifecycle.cancel_running("cancelled", by="controller")
        assert [(fresh(run).state, fresh(run).reason) for run in (first, second, ended)] == [
            ("error", "cancelled"),
            ("error", "cancelled"),
            ("completed", ""),
        ]
        assert [row.by for row in history_of(first)] == ["controller", "test"]


class TestVersions:
    @pytest.fixture
    def versions(self) -> list[ModelVersion]:
        return [ModelVersion.objects.create(version=name, serving=name == "v2") for name in ("v1", "v2", "v3")]

    def served(self) -> list[str]:
        return list(ModelVersion.objects.filter(serving=True).values_list("version", flat=True))

    def test_at_most_one_version_serves(self, versions, pages):
        assert lifecycle.serving() == versions[1]
        assert lifecycle.serve_version("v1", "test") == versions[0]
        assert (self.served(), lifecycle.serving()) == (["v1"], versions[0])
        assert timezone.now() - lifecycle.serving().served < LATE
        assert "aiops.0" in pages.sent
        assert ModelVersion.objects.count() == 3

    def test_activating_the_serving_version_changes_nothing(self, versions):
        since = timezone.now() - LATE
        ModelVersion.objects.filter(version="v2").update(served=since)
        assert lifecycle.serve_version("v2", "test").served == since
        assert (self.served(), lifecycle.serving().served) == (["v2"], since)

    def test_a_missing_version_is_refused(self, versions):
        with pytest.raises(Missing, match="no such version"):
            lifecycle.serve_version("v9", "test")
        assert self.served() == ["v2"]

    def test_serving_can_be_stopped(self, versions, pages):
        lifecycle.deactivate()
        assert (self.served(), lifecycle.serving()) == ([], None)
        assert pages.sent == {"aiops.0"}
