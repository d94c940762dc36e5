"""The trash of every kind: through REST and pages, restored as it was, purged from disk and database in time."""

from __future__ import annotations

import subprocess
from datetime import timedelta

import pytest
from django.apps import apps as installed
from django.conf import settings
from django.utils import timezone

import apps.reconcile
import datasets.reconcile
import jobs.reconcile
import models_app.reconcile
import workspaces.reconcile
from accounts.models import Notice
from aiops import logstore
from aiops.intake import accept
from apps import lifecycle
from apps.models import Application
from datasets.models import Dataset
from jobs import sizes
from jobs.models import Job, Metrics, Value
from kernel import storage
from kernel.models import StateChange
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.tiers import few
from mlp.trash import kinds
from models_app.models import Model
from resources import tcc
from resources.models import ResourceRequest, Tenant
from workspaces.models import Workspace

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]

KINDS = {"job": "jobs", "dataset": "datasets", "model": "models", "application": "apps", "workspace": "workspaces"}
MODELS = {"job": Job, "dataset": Dataset, "model": Model, "application": Application, "workspace": Workspace}
FOLDERS = {
    "job": lambda: storage.job_dir("alice", "thing"), "dataset": lambda: storage.dataset_dir("alice", "thing"),
    "model": lambda: storage.model_dir("alice", "thing"),
    "application": lambda: storage.root() / "apps" / "alice" / "thing",
    "workspace": lambda: storage.root() / "workspaces" / "alice" / "thing",
}  # fmt: skip
STATES = {"job": "finished", "dataset": "ready", "model": "ready", "application": "error", "workspace": "error"}
each_kind = pytest.mark.parametrize("kind", few(KINDS, 2))


@pytest.fixture
def thing(alice):
    """Make an object of alice's in a final state, with files, metrics and log lines where it has them."""

    def make(kind: str):
        row = put(MODELS[kind], alice, "thing", STATES[kind])
        folder = FOLDERS[kind]()
        (folder / "log").mkdir(parents=True)
        (folder / "log" / "job.log").write_text("hello\n")
        if kind == "dataset":
            Dataset.objects.update(stored=6)
        if kind == "job":
            Metrics.objects.create(job=row, seq=1, epoch=1, accuracy=0.5, loss=1, progress=10, msg_id="one")
            Value.objects.create(job=row, name="loss", step=1, value=1, at=timezone.now(), msg_id="two")
        if kind in ("job", "application"):
            logstore.get().append([accept.line("hello", id=f"{kind}1", namespace="alice", deployment="thing")])
        return row

    return make


def listed(client) -> list[tuple[str, str]]:
    return [(row["kind"], row["name"]) for row in client.call("get", "users/alice/trash").json()]


def purge() -> None:
    for each in (jobs, apps, models_app, datasets, workspaces):
        each.reconcile.run()


def age(kind: str, days: float = 0) -> None:
    moment = timezone.now() - timedelta(days=settings.TRASH_DAYS + days)
    MODELS[kind].objects.exclude(trashed=None).update(trashed=moment)


@each_kind
class TestEveryKind:
    def test_it_is_listed_there_and_nowhere_else_and_restored_as_it_was(self, kind, thing, as_alice, as_bob):
        row, address = thing(kind), f"users/alice/{KINDS[kind]}"
        told = Notice.objects.count()
        before = as_alice.call("get", f"{address}/thing").json()
        gone = as_alice.call("delete", f"{address}/thing?trash=1")
        assert (gone.status_code, gone.json()["trashed"] is not None) == (200, True)
        assert [item["name"] for item in as_alice.call("get", address).json() if item["name"] == "thing"] == []
        (entry,) = as_alice.call("get", "users/alice/trash").json()
        assert (entry["kind"], entry["name"], entry["state"]) == (kind, "thing", STATES[kind])
        assert entry["purged"] > entry["trashed"]
        as_bob.refused("get", "users/alice/trash")
        as_bob.refused("put", "users/alice/trash:restore", {"kind": kind, "name": "thing"})
        assert FOLDERS[kind]().exists()
        back = as_alice.call("put", "users/alice/trash:restore", {"kind": kind, "name": "thing"})
        assert back.status_code == 200, back.content
        assert as_alice.call("get", f"{address}/thing").json() == before
        assert listed(as_alice) == []
        changes = StateChange.objects.filter(kind=kind, object_id=row.pk).values_list("transition", flat=True)
        assert list(changes[:2]) == ["restore", "trash"]
        refusal = as_alice.refused("put", "users/alice/trash:restore", {"kind": kind, "name": "thing"})
        assert "is not in the trash" in refusal
        assert Notice.objects.count() == told  # it has not failed once more

    def test_its_name_stays_taken(self, kind, thing, alice, as_alice, home):
        thing(kind)
        as_alice.call("delete", f"users/alice/{KINDS[kind]}/thing?trash=1")
        (home / "model.pt").write_text("x")
        if not Model.objects.filter(name="net").exists():
            put(Model, alice, "net", "ready")
        bodies = {
            "job": {"entry": "train.py"}, "dataset": {"size": 1}, "model": {"src": "home/model.pt"},
            "application": {"model_name": "net", "cpu": 0.1, "ram": 100},
            "workspace": {"cpu": 0.1, "ram": 400},
        }  # fmt: skip
        refusal = as_alice.refused("post", f"users/alice/{KINDS[kind]}", {"name": "thing", **bodies[kind]})
        assert refusal.endswith("named thing; it is in the trash")

    def test_deletion_from_there_removes_everything(self, kind, thing, as_alice, tasks):
        row = thing(kind)
        as_alice.call("delete", f"users/alice/{KINDS[kind]}/thing?trash=1")
        assert as_alice.call("put", "users/alice/trash:delete", {"kind": kind, "name": "thing"}).status_code == 200
        assert listed(as_alice) == []
        tasks.run()
        self.is_gone(kind, row)
        assert "no such" in as_alice.refused("put", "users/alice/trash:delete", {"kind": kind, "name": "thing"})

    def test_it_is_purged_in_time_and_not_before(self, kind, thing, as_alice, tasks):
        row = thing(kind)
        as_alice.call("delete", f"users/alice/{KINDS[kind]}/thing?trash=1")
        age(kind, days=-0.01)
        purge()
        tasks.run()
        assert listed(as_alice) == [(kind, "thing")]
        age(kind, days=0.01)
        purge()
        assert listed(as_alice) == []
        tasks.run()
        self.is_gone(kind, row)

    def test_a_purge_that_is_killed_goes_on_later(self, kind, thing, as_alice, tasks, monkeypatch):
        """And touches nothing that is not due."""
        row = thing(kind)
        put(Dataset, row.user, "other", "ready")
        as_alice.call("delete", "users/alice/datasets/other?trash=1")
        as_alice.call("delete", f"users/alice/{KINDS[kind]}/thing?trash=1")
        moment = timezone.now() - timedelta(days=settings.TRASH_DAYS + 1)
        MODELS[kind].objects.filter(name="thing").update(trashed=moment)

        def killed(path):
            (path / "log" / "job.log").unlink()
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr("kernel.storage.remove_tree", killed)
            purge()
            with pytest.raises(KeyboardInterrupt):
                tasks.run()
        assert listed(as_alice) == [("dataset", "other")]
        assert "thing" not in [item["name"] for item in as_alice.call("get", f"users/alice/{KINDS[kind]}").json()]
        tasks.queue.clear()
        monkeypatch.setattr("datasets.reconcile.AGAIN_AFTER", timedelta(0))
        purge()
        tasks.run()
        self.is_gone(kind, row)
        assert listed(as_alice) == [("dataset", "other")]

    @staticmethod
    def is_gone(kind: str, row) -> None:
        assert not FOLDERS[kind]().exists()
        assert not MODELS[kind].objects.filter(pk=row.pk).exists()
        for model in installed.get_models():  # no row refers to it
            for field in model._meta.fields:
                if field.is_relation and field.related_model is MODELS[kind]:
                    assert not model._base_manager.filter(**{field.attname: row.pk}).exists(), model
        requests = ResourceRequest.objects.filter(pk__endswith=f":{row.pk}", state__in=["tried", "confirmed"])
        assert not requests.exists()
        if kind in ("job", "application"):
            named = [{"term": {"namespace_name": "alice"}}, {"term": {"deployment": "thing"}}]
            assert logstore.get().count({"query": {"bool": {"filter": named}}}) == 0

    def test_the_page_moves_it_restores_it_and_deletes_it(self, kind, thing, alice, as_alice, tasks):
        thing(kind)
        client = visitor(alice)
        text = visible_text(client.post(f"/{KINDS[kind]}/thing/delete", follow=True))
        assert "moved to the trash" in text
        assert "Undo" in text
        assert "thing" in visible_text(client.get("/trash"))
        if kind != "job":
            assert "It is in the trash and will be deleted on" in visible_text(client.get(f"/{KINDS[kind]}/thing"))
        given = {"kind": kind, "name": "thing"}
        text = visible_text(client.post("/trash/change", {**given, "do": "restore"}, follow=True))
        assert "thing is restored" in text
        client.post(f"/{KINDS[kind]}/thing/delete")
        text = visible_text(client.post("/trash/change", {**given, "do": "delete"}, follow=True))
        assert "thing is being deleted" in text
        assert listed(as_alice) == []

    def test_a_restore_between_the_look_and_the_purge_wins(self, kind, thing, as_alice, alice, monkeypatch):
        thing(kind)
        as_alice.call("delete", f"users/alice/{KINDS[kind]}/thing?trash=1")
        age(kind, days=1)
        seen = MODELS[kind].objects.select_related("user").get(name="thing")
        as_alice.call("put", "users/alice/trash:restore", {"kind": kind, "name": "thing"})
        with pytest.raises(Exception, match="not in the trash"):
            kinds.KINDS[kind].delete(seen, "reconcile")
        assert MODELS[kind].objects.get(name="thing").state == STATES[kind]


class TestUse:
    def test_a_dataset_there_is_used_by_nothing(self, thing, as_alice, home):
        thing("dataset")
        as_alice.call("delete", "users/alice/datasets/thing?trash=1")
        given = {"name": "x", "entry": "train.py", "datasets": ["thing"]}
        refusal = as_alice.refused("post", "users/alice/jobs", given)
        assert "no ready dataset" in refusal
        for page in ("/datasets/thing/archive", "/datasets/thing/files/log/job.log"):
            assert visitor(Dataset.objects.get().user).get(page).status_code == 404

    def test_a_dataset_in_use_stays(self, thing, as_alice, home):
        thing("dataset")
        as_alice.call("post", "users/alice/jobs", {"name": "x", "entry": "train.py", "datasets": ["thing"]})
        assert "the job x uses this dataset" in as_alice.refused("delete", "users/alice/datasets/thing?trash=1")
        assert Dataset.objects.get().trashed is None

    def test_a_model_there_is_not_served_or_downloaded(self, thing, as_alice):
        thing("model")
        as_alice.call("delete", "users/alice/models/thing?trash=1")
        refusal = as_alice.refused("post", "users/alice/apps", {"name": "x", "model_name": "thing"})
        assert "the model thing is in the trash" in refusal
        assert "is in the trash" in as_alice.refused("get", "users/alice/models/thing/download")

    def test_a_model_and_its_application_wait_for_each_other(self, thing, as_alice, tasks):
        thing("application")
        model = Application.objects.get().model.name
        assert "uses this model; delete it first" in as_alice.refused("delete", f"users/alice/models/{model}?trash=1")
        as_alice.call("delete", "users/alice/apps/thing?trash=1")
        assert as_alice.call("delete", f"users/alice/models/{model}?trash=1").status_code == 200
        given = {"kind": "application", "name": "thing"}
        assert f"the model {model} is in the trash" in as_alice.refused("put", "users/alice/trash:restore", given)
        assert "application thing in the trash" in as_alice.refused(
            "put", "users/alice/trash:delete", {"kind": "model", "name": model}
        )
        age("application", days=1)
        age("model", days=1)
        for _ in range(2):  # the application first
            purge()
            tasks.run()
        assert not Application.objects.exists()
        assert not Model.objects.exists()

    def test_its_disk_space_counts_until_it_is_deleted(self, as_alice, alice, tasks):
        body = {"name": "thing", "size": 1000}
        as_alice.call("post", "users/alice/datasets", body)
        as_alice.call("put", "users/alice/datasets/thing:heartbeat", {"state": "error", "progress": 0})
        as_alice.call("delete", "users/alice/datasets/thing?trash=1")
        assert Tenant.objects.get(name="default").rom_inuse == 1000
        as_alice.call("put", "users/alice/trash:delete", {"kind": "dataset", "name": "thing"})
        tasks.run()
        assert Tenant.objects.get(name="default").rom_inuse == 0

    def test_the_size_of_a_jobs_files_is_counted(self, thing, as_alice):
        thing("job")
        as_alice.call("delete", "users/alice/jobs/thing?trash=1")
        assert as_alice.call("get", "users/alice/trash").json()[0]["size"] is None
        sizes.measure(timezone.now())
        size = as_alice.call("get", "users/alice/trash").json()[0]["size"]
        folder = storage.job_dir("alice", "thing")
        assert size == int(subprocess.check_output(["du", "--summarize", "--block-size=1", folder]).split()[0]) > 0
        assert f"{size >> 10} KiB" in visible_text(visitor(Job.objects.get().user).get("/trash"))

    def test_lines_of_a_job_stay_while_an_application_has_its_name(self, thing, as_alice, tasks):
        thing("job")
        thing("application")
        as_alice.call("delete", "users/alice/jobs/thing")
        tasks.run()
        named = [{"term": {"namespace_name": "alice"}}, {"term": {"deployment": "thing"}}]
        assert logstore.get().count({"query": {"bool": {"filter": named}}}) == 2
        as_alice.call("delete", "users/alice/apps/thing")
        tasks.run()
        assert logstore.get().count({"query": {"bool": {"filter": named}}}) == 0


class TestRunningApplication:
    @pytest.fixture
    def up(self, alice, as_alice, tasks):
        """An application that is up, for all that the platform knows."""
        put(Model, alice, "net", "ready")
        body = {"name": "thing", "model_name": "net", "cpu": 1, "ram": 400}
        assert as_alice.call("post", "users/alice/apps", body).status_code == 201
        tasks.queue.clear()
        app = Application.objects.get()
        lifecycle.note_order(app.pk)
        lifecycle.up(app.pk, f"app-{app.pk}-1", "127.0.0.1:1", by="runner")
        return app

    def stopped(self, as_alice, tasks, monkeypatch) -> None:
        monkeypatch.setattr("apps.lifecycle.PLACE_REMEMBERED_S", 0)
        assert as_alice.call("delete", "users/alice/apps/thing?trash=1").status_code == 200
        tasks.run()
        apps.reconcile.run()
        tasks.run()

    def test_it_is_stopped_holds_nothing_and_starts_again(self, up, as_alice, tasks, monkeypatch):
        self.stopped(as_alice, tasks, monkeypatch)
        row = as_alice.call("get", "users/alice/apps/thing").json()
        assert (row["state"], row["stopped"]) == ("error", True)
        tenant = Tenant.objects.get(name="default")
        assert (tenant.cpu_inuse, tenant.ram_inuse) == (0, 0)
        assert tcc.allocated(tenant)["cpu"] == 0
        for verb in ("start", "restart"):
            assert "is in the trash" in as_alice.refused("put", f"users/alice/apps/thing:{verb}", None)
        given = {"kind": "application", "name": "thing"}
        assert as_alice.call("put", "users/alice/trash:restore", given).status_code == 200
        assert as_alice.call("get", "users/alice/apps/thing").json()["state"] == "creating"
        assert [task.actor_name for task in tasks.queue] == ["apps.launch"]
        assert Tenant.objects.get(name="default").cpu_inuse == 1

    def test_while_it_is_being_stopped_it_stays_in_the_trash(self, up, as_alice, tasks):
        as_alice.call("delete", "users/alice/apps/thing?trash=1")
        given = {"kind": "application", "name": "thing"}
        assert "still being stopped" in as_alice.refused("put", "users/alice/trash:restore", given)
        assert listed(as_alice) == [("application", "thing")]
        assert Application.objects.get().resumes

    def test_without_room_it_is_queued(self, up, as_alice, tasks, monkeypatch):
        self.stopped(as_alice, tasks, monkeypatch)
        tcc.try_(id="all", applier="jm", request_type="request", cpu=8)
        given = {"kind": "application", "name": "thing"}
        assert as_alice.call("put", "users/alice/trash:restore", given).status_code == 200
        assert as_alice.call("get", "users/alice/apps/thing").json()["queued"]
