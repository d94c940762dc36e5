"""The guided tour with its examples, and the search over a user's objects."""

from __future__ import annotations

import pytest

from apps.models import Application
from datasets.models import Dataset
from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import EVIL, fill, visible_text, visitor
from models_app.models import Model
from resources import tcc

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice_client(alice):
    return visitor(alice)


class TestFirstSteps:
    def test_a_new_users_index_links_to_the_tour(self, default_tenant):
        carol = visitor()
        form = {"username": "carol", "password": "correct horse battery", "action": "register"}
        assert carol.post("/regist_login", form).url == "/index"
        assert 'href="/start"' in carol.get("/index").content.decode()

    def test_the_example_dataset_is_added_once(self, alice_client):
        for _ in range(2):
            assert alice_client.post("/start/dataset").url == "/start"
        dataset = Dataset.objects.get()
        assert (dataset.state, dataset.stored) == ("ready", dataset.size)
        folder = storage.dataset_dir("alice", "digits")
        assert len((folder / "train" / "digits_x.csv").read_text().splitlines()) == 1500
        assert len((folder / "test" / "digits_y.csv").read_text().splitlines()) == 297

    def test_the_example_job_is_created_once(self, alice_client):
        alice_client.post("/start/dataset")
        for _ in range(2):
            assert alice_client.post("/start/job").url == "/jobs/digits"
        job = Job.objects.get()
        assert (storage.home_dir("alice") / job.entry).is_file()
        assert "digits" in visible_text(alice_client.get("/start"))

    def test_model_and_application_are_created_once(self, alice_client, alice):
        put(Job, alice, "digits", "finished")
        folder = storage.job_dir("alice", "digits") / "ckpt"
        folder.mkdir(parents=True)
        (folder / "model.pt").write_bytes(b"not really")
        assert alice_client.post("/start/app", follow=True).status_code == 200
        assert not Application.objects.exists()
        for _ in range(2):
            assert alice_client.post("/start/model").url == "/start"
        assert Model.objects.get().src == "jobs/digits/ckpt/model.pt"
        model = Model.objects.get()
        model.complete(by="test")
        model.save()
        for _ in range(2):
            assert alice_client.post("/start/app").url == "/apps/digits"
        assert Application.objects.get().model == model
        assert "/apps/digits" in alice_client.get("/start").content.decode()

    def test_a_full_machine_serves_several_newcomers_and_says_who_uses_it(self, alice_client, alice, default_tenant):
        type(default_tenant).objects.update(cpu=1)
        tcc.try_(id="app:1", applier="am", request_type="request", tenant="default", owner="bob", cpu=0.6)
        alice_client.post("/start/dataset")
        alice_client.post("/start/job")
        words = visible_text(alice_client.get("/start"))
        assert "Not enough free resources: needs 0.5 CPU, 0.4 CPU free." in words
        assert "other users 0.6 CPU" in " ".join(words.split())
        put(Model, alice, "digits", "ready")
        alice_client.post("/start/app")
        assert Application.objects.get().reserved

    def test_no_model_is_created_from_a_running_job(self, alice_client, alice):
        put(Job, alice, "digits", "running")
        assert "its output is available once it has finished" in visible_text(
            alice_client.post("/start/model", follow=True)
        )
        assert not Model.objects.exists()

    def test_the_users_own_script_is_not_overwritten(self, alice_client):
        script = storage.home_dir("alice") / "digits" / "train.py"
        script.parent.mkdir()
        script.write_text("mine")
        alice_client.post("/start/dataset")
        alice_client.post("/start/job")
        assert script.read_text() == "mine"

    @pytest.mark.parametrize("taken", ["digits", "plain_python"])
    def test_a_conflicting_file_is_reported(self, alice_client, taken):
        (storage.home_dir("alice") / taken).write_text("mine")
        alice_client.post("/start/dataset")
        answer = alice_client.post("/start/job", follow=True)
        assert answer.status_code == 200
        assert ("a file or a symbolic link" in visible_text(answer)) == (not Job.objects.exists())
        assert (storage.home_dir("alice") / taken).read_text() == "mine"

    def test_the_example_counts_towards_the_limit(self, alice_client, settings):
        settings.DATA_HOME_LIMIT = 10
        alice_client.post("/start/dataset")
        answer = alice_client.post("/start/job", follow=True)
        assert answer.status_code == 200
        assert not Job.objects.exists()
        assert not [*storage.home_dir("alice").rglob("*.py")]

    def test_impossible_steps_are_explained(self, alice_client, default_tenant):
        type(default_tenant).objects.update(rom=10)
        answer = alice_client.post("/start/dataset", follow=True)
        assert "rom" in visible_text(answer)
        assert not Dataset.objects.exists()


class TestSearch:
    def test_the_search_finds_own_objects_only(self, alice_client, alice, bob):
        fill(alice)
        (storage.home_dir("bob") / "trainer.py").write_text("x")
        words = visible_text(alice_client.get("/search?q=i"))
        assert all(name in words for name in ("fit", "waiting", "digits", "coming", "train.py"))
        assert "trainer.py" not in words
        assert "fit" not in visible_text(visitor(bob).get("/search?q=fit")).replace("Results for “fit”", "")

    def test_the_search_field_gets_only_the_list(self, alice_client, alice):
        fill(alice)
        answer = alice_client.get("/search?q=fit", headers={"HX-Request": "true"})
        assert "/jobs/fit" in answer.content.decode()
        assert "<html" not in answer.content.decode()

    def test_unusual_queries_are_answered(self, alice_client, alice):
        fill(alice)
        wrong = {}
        for query in (EVIL, "%", "\x00", "x" * 5000, "'; drop table job; --"):
            answer = alice_client.get("/search", {"q": query})
            if answer.status_code != 200 or "<script>alert" in answer.content.decode():
                wrong[query] = answer.status_code
        assert wrong == {}
