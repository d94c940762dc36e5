"""What the verbs of models record and refuse, without runs, beyond the table of mlp/tests/verb_effects.py."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError
from django.utils import timezone

from accounts.models import User
from apps.models import Application
from conftest import move
from datasets.models import Dataset
from jobs.models import Job
from jobs.summaries import metrics as summaries
from kernel import storage
from kernel.errors import Fault, Refused
from kernel.locking import Missing, WrongState, locked
from kernel.models import history_of
from models_app import lifecycle
from models_app.models import Model
from resources.models import ResourceRequest, Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]

SRC = "home/net.bin"


@pytest.fixture
def create():
    """`create(user, name)` makes a model of three bytes in the user's home."""

    def make(user: User, name: str = "net", src: str = SRC, **fields) -> Model:
        (storage.home_dir(user.username) / "net.bin").write_bytes(b"abc")
        return lifecycle.create_model(user=user, name=name, src=src, by="test", **fields)

    return make


@pytest.fixture
def job(alice, bob) -> Job:
    """A finished job of alice's with an output of four bytes; bob has one of that name that still runs."""
    others = {"entry": "train.py", "run_name": "run"}
    Job.objects.create(user=bob, tenant=bob.tenant, name="fit", state="running", **others)
    Job.objects.create(user=alice, tenant=alice.tenant, name="early", state="running", **others)
    folder = storage.job_dir("alice", "fit")
    folder.mkdir(parents=True)
    (folder / "out.bin").write_bytes(b"abcd")
    return Job.objects.create(
        user=alice, tenant=alice.tenant, name="fit", entry="train.py", state="finished", args=["-x"], runtime="torch"
    )


def fresh(model: Model) -> Model:
    return Model.objects.get(pk=model.pk)


class TestCreate:
    def test_all_fields_are_stored_and_the_users_tenant_is_charged(self, create, alice, tasks):
        move(alice, Tenant.objects.create(name="other", rom=100))
        model = fresh(create(alice, tenant="other"))
        request = ResourceRequest.objects.get()
        assert (model.user, model.tenant, model.name, model.src, model.size) == (alice, alice.tenant, "net", SRC, 3)
        assert (request.tenant, request.owner, request.applier, request.rom) == (alice.tenant, "alice", "mm", 3)
        assert [(task.actor_name, task.args) for task in tasks.queue] == [("models.copy", (model.pk,))]
        assert [(row.transition, row.by) for row in history_of(model)] == [("create", "test")]
        assert model.lineage == {}

    def test_another_tenant_is_refused_as_one_that_does_not_exist(self, create, alice):
        Tenant.objects.create(name="other", rom=100)
        for tenant in ("other", "none"):
            with pytest.raises(Missing, match="no such tenant"):
                create(alice, tenant=tenant)

    def test_with_the_task_queue_away_nothing_is_stored(self, create, alice, monkeypatch):
        def away():
            raise Fault("the task queue is not available; try again later")

        monkeypatch.setattr("kernel.broker.require", away)
        with pytest.raises(Fault, match="task queue"):
            create(alice)
        assert not Model.objects.exists()

    def test_a_name_that_is_taken_is_refused_by_name(self, create, alice, bob):
        create(alice)
        with pytest.raises(Refused, match=r"^name: you already have a model named net$"):
            create(alice)
        assert create(bob).name == "net"

    def test_any_other_integrity_error_is_raised_as_it_is(self, create, alice, monkeypatch):
        monkeypatch.setattr("kernel.copying.size", lambda source: -1)
        with pytest.raises(IntegrityError, match="model_size"):
            create(alice)

    @pytest.mark.parametrize(
        ("src", "problem"),
        [
            ("home/empty", "home/empty has no files, or only empty ones"),
            ("home/link", "must not go through a symbolic link"),
            ("jobs/none", "you have no job named none"),
            ("jobs/early", "the job early is running; its output is available once it has finished"),
        ],
    )
    def test_an_unusable_source_is_refused_with_the_reason(self, create, alice, job, src, problem):
        home = storage.home_dir("alice")
        (home / "empty").mkdir()
        (home / "link").symlink_to(home / "empty")
        with pytest.raises(Refused) as refusal:
            create(alice, src=src)
        assert refusal.value.msg == f"src: {problem}"
        assert not ResourceRequest.objects.exists()

    def test_a_source_that_is_removed_meanwhile_is_refused(self, create, alice, monkeypatch):
        monkeypatch.setattr("kernel.copying.origin", lambda user, src: storage.home_dir(user) / "gone")
        refusal = r"^src: home/net\.bin cannot be read, or its path contains a symbolic link$"
        with pytest.raises(Refused, match=refusal):
            create(alice)


class TestLineage:
    def test_the_lineage_names_the_job_its_datasets_and_its_metrics(self, create, alice, bob, job):
        for owner, name, size in ((alice, "digits", 7), (alice, "letters", 9), (bob, "gone", 5)):
            Dataset.objects.create(user=owner, tenant=owner.tenant, name=name, size=size, state="ready")
        ended = timezone.now()
        Job.objects.filter(pk=job.pk).update(datasets=["digits", "gone"], ended=ended)
        reported = {"accuracy": [0.5, 0.9, 0.8], "loss": [1, 1 / 2, 1 / 3], "lr": [0.1]}
        summaries.add(
            job, [summaries.summary_of(name, values, len(values), ended) for name, values in reported.items()]
        )
        model = create(alice, src="jobs/fit")
        assert model.size == 4
        assert fresh(model).lineage == {
            "job": "fit",
            "entry": "train.py",
            "args": ["-x"],
            "runtime": "torch",
            "datasets": [{"name": "digits", "size": 7}, {"name": "gone", "size": None}],
            "metrics": {"epoch": 3, "accuracy": 0.8, "loss": 1 / 3, "best_accuracy": 0.9},
            "ended": ended.isoformat(),
        }

    def test_the_lineage_of_a_job_without_metrics(self, create, alice, job):
        lineage = create(alice, src="jobs/fit").lineage
        assert (lineage["metrics"], lineage["ended"], lineage["datasets"]) == ({}, None, [])


class TestCreation:
    def test_copied_files_are_recorded_once_and_their_check_is_enqueued(self, create, alice, tasks):
        model, files = create(alice), {"a": {"size": 1, "sha256": "x"}, "b": {"size": 2, "sha256": "y"}}
        tasks.queue.clear()
        lifecycle.note_copy(model.pk, files)
        lifecycle.note_copy(model.pk, {"late": {"size": 3}})
        now = fresh(model)
        assert (now.copied, now.checksums, now.run_name) == (True, files, f"model-{model.pk}")
        assert [(task.actor_name, task.args) for task in tasks.queue] == [("models.check", (model.pk,))]

    def test_files_of_another_size_fail_the_model(self, create, alice):
        model = create(alice)
        lifecycle.note_copy(model.pk, {"a": {"size": 4}})
        now = fresh(model)
        assert (now.state, now.reason) == ("error", "the files changed while they were being copied")
        assert (now.copied, now.checksums, now.run_name) == (False, {}, "")

    def test_the_time_of_the_first_check_order_is_kept(self, create, alice):
        model = create(alice)
        first = lifecycle.note_order(model.pk).run_ordered
        assert timezone.now() - first < timedelta(minutes=1)
        assert lifecycle.note_order(model.pk).run_ordered == first == fresh(model).run_ordered
        with pytest.raises(Missing, match="no such model"):
            lifecycle.note_order(model.pk + 1)

    def test_only_valid_parts_of_the_check_result_are_stored(self, create, alice):
        model = create(alice)
        result = {"format": "abcdefghijklmnopqrstuvwxyz", "inputs": [{"name": "x"}], "outputs": "odd", "more": []}
        lifecycle.complete(model.pk, result, by="runner")
        now = fresh(model)
        assert (now.state, now.format, now.signature) == ("ready", "abcdefghijklmnopqrst", {"inputs": [{"name": "x"}]})
        assert ResourceRequest.objects.get().state == "confirmed"
        assert history_of(model).first().by == "runner"

    def test_deactivation_fails_models_that_are_being_created(self, create, alice, bob):
        ready, making, other = create(alice, "ready"), create(alice, "making"), create(bob)
        lifecycle.complete(ready.pk, {}, by="runner")
        with locked(User, pk=alice.pk):
            lifecycle.fail_all_of(alice, by="test")
        states = [(fresh(model).state, fresh(model).reason) for model in (ready, making, other)]
        assert states == [("ready", ""), ("error", "cancelled: the account was deactivated"), ("creating", "")]

    def test_a_missing_model_is_ignored(self, create, alice):
        model = create(alice)
        lifecycle.fail(model.pk + 1, "x", by="test")
        lifecycle.forget(model.pk + 1)
        assert fresh(model).state == "creating"


class TestEnd:
    @pytest.fixture
    def models(self, create, alice, bob) -> list[Model]:
        """Models of several names and users; the one that is meant is in the middle."""
        models = [create(bob), create(alice, "before"), create(alice), create(alice, "behind")]
        for model in models:
            lifecycle.complete(model.pk, {}, by="runner")
        return models

    def test_notes_and_deletion_change_only_the_users_model_of_that_name(self, models, alice):
        net = models.pop(2)
        assert lifecycle.set_notes(user=alice, name="net", notes="good").notes == "good"
        assert lifecycle.delete_model(user=alice, name="net", by="test") == net
        assert (fresh(net).state, fresh(net).notes) == ("deleting", "good")
        assert {(fresh(model).state, fresh(model).notes) for model in models} == {("ready", "")}

    def test_the_refusal_for_a_model_in_use_names_the_application(self, models, alice):
        net = models[2]
        for number, name in enumerate(("first", "second")):
            Application.objects.create(user=alice, tenant=alice.tenant, model=net, name=name, port=31000 + number)
        refusal = r"^state: the application first uses this model; delete it first$"
        with pytest.raises(WrongState, match=refusal):
            lifecycle.delete_model(user=alice, name="net", by="test")
        assert fresh(net).state == "ready"

    def test_a_removed_model_releases_its_disk_space(self, models, alice):
        net = models[2]
        lifecycle.delete_model(user=alice, name="net", by="test")
        lifecycle.forget(net.pk)
        assert not Model.objects.filter(pk=net.pk).exists()
        assert ResourceRequest.objects.get(pk=f"model:{net.pk}").state == "released"
        assert Tenant.objects.get(name="default").rom_inuse == 9
