"""A dataset that something uses or will use stays, through REST, WebDAV and pages; reasons name no host path."""

from __future__ import annotations

import pytest
from django.db import transaction

from accounts.sharing import grants
from automation.sweeps.tests.conftest import body as sweep_body
from datasets.models import Dataset
from datasets.tests.live import Person, servers, service
from jobs.models import Job
from kernel import storage
from kernel.tests.row_locks import blocked, in_thread
from mlp.tests.patience import LIMIT_S

__all__ = ["servers", "service"]

pytestmark = pytest.mark.django_db(transaction=True)

JOB = {"entry": "train.py", "cpu": 0.1, "ram": 100}
ADDRESS = "users/alice/datasets/photos"


@pytest.fixture
def photos(alice, home) -> Dataset:
    folder = storage.dataset_dir("alice", "photos")
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("abc")
    return Dataset.objects.create(user=alice, tenant=alice.tenant, name="photos", size=3, stored=3, state="ready")


@pytest.fixture
def submitted(as_alice, photos, tasks):
    """Submit a job of alice's that reads the photos; nothing starts it."""
    answer = as_alice.call("post", "users/alice/jobs", {"name": "fit", **JOB, "datasets": ["photos"]})
    assert answer.status_code == 201, answer.content
    return Job.objects.get()


def kept() -> bool:
    there = storage.dataset_dir("alice", "photos") / "a.txt"
    return there.exists() and Dataset.objects.get(name="photos").state == "ready"


class TestJobs:
    def test_a_queued_and_a_running_job_keep_it_until_they_end(self, submitted, as_alice):
        for state in ("creating", "running"):
            Job.objects.update(state=state)
            assert as_alice.refused("delete", ADDRESS) == (
                "state: the job fit uses this dataset; cancel it or wait until it has ended"
            )
        assert kept()
        Job.objects.update(state="error")
        assert as_alice.call("delete", ADDRESS).json()["state"] == "deleting"

    def test_the_page_says_so(self, submitted, client, alice):
        client.force_login(alice)
        text = client.get("/datasets/photos").content.decode()
        assert '<button class="danger" disabled title="The job fit uses this dataset.' in text
        page = client.post("/datasets/photos/delete", follow=True)
        assert "The job fit uses this dataset. Cancel it or" in page.content.decode()
        assert kept()

    def test_webdav_says_so(self, submitted, service, alice):
        answer = Person(service, alice).request("DELETE", "/data/alice/photos")
        assert (answer.status_code, "the job fit uses this dataset" in answer.json()["msg"]) == (409, True)
        there = {"Destination": "/data/alice/paintings"}
        assert Person(service, alice).request("MOVE", "/data/alice/photos", headers=there).status_code == 403
        assert Dataset.objects.get().state == "ready"

    def test_another_users_job_keeps_it_as_long_as_it_is_shared(self, photos, as_bob, bob, as_alice, tasks):
        share, _token = grants.make(row=photos, audience="user", user="bob", right="clone", by="alice")
        (storage.home_dir("bob") / "train.py").write_text("")
        given = {"name": "theirs", **JOB, "datasets": ["alice/photos"]}
        assert as_bob.call("post", "users/bob/jobs", given).status_code == 201
        assert "the job theirs of bob uses this dataset; stop sharing it" in as_alice.refused("delete", ADDRESS)
        type(share).objects.all().delete()
        assert as_alice.call("delete", ADDRESS).status_code == 200

    def test_a_job_that_is_submitted_during_the_deletion_sees_it(self, photos, as_alice, tasks):
        given = {"name": "fit", **JOB, "datasets": ["photos"]}
        with transaction.atomic():
            row = Dataset.objects.select_for_update(no_key=True).get()
            late = in_thread(lambda: as_alice.refused("post", "users/alice/jobs", given))
            blocked(1)
            row.erase(by="alice")
            row.save()
        assert late.result(LIMIT_S) == "datasets: you have no ready dataset named photos"
        assert not Job.objects.exists()


class TestAutomation:
    def test_an_open_sweep_keeps_it(self, photos, as_alice, tasks):
        given = sweep_body(job={**JOB, "datasets": ["photos"]})
        assert as_alice.call("post", "users/alice/sweeps", given).status_code == 201
        assert "the sweep search uses this dataset" in as_alice.refused("delete", ADDRESS)
        as_alice.call("put", "users/alice/sweeps/search:cancel")
        assert as_alice.call("delete", ADDRESS).status_code == 200

    def test_a_waiting_step_of_a_pipeline_keeps_it(self, photos, as_alice, tasks):
        steps = {"ask": {"approve": "go on?"}, "train": {**JOB, "datasets": ["photos"], "needs": ["ask"]}}
        assert as_alice.call("post", "users/alice/pipelines", {"name": "flow", "steps": steps}).status_code == 201
        assert as_alice.call("post", "users/alice/pipelines/flow/runs", {}).status_code == 201
        problem = as_alice.refused("delete", ADDRESS)
        assert "the step train of the pipeline run flow/1 uses this dataset" in problem
        as_alice.call("put", "users/alice/pipelines/flow/runs/1:cancel")
        assert as_alice.call("delete", ADDRESS).status_code == 200  # the pipeline itself is not running

    @pytest.mark.parametrize("kind", ["job", "sweep", "pipeline"])
    def test_an_active_schedule_keeps_it(self, photos, as_alice, tasks, kind):
        job = {**JOB, "datasets": ["photos"]}
        as_alice.call("post", "users/alice/pipelines", {"name": "flow", "steps": {"train": job}})
        bodies = {"job": job, "sweep": sweep_body(name=None, job=job), "pipeline": {"name": "flow"}}
        given = {"name": "nightly", "cron": "0 3 * * *", kind: bodies[kind]}
        answer = as_alice.call("post", "users/alice/schedules", given)
        assert answer.status_code == 201, answer.content
        assert "the schedule nightly uses this dataset" in as_alice.refused("delete", ADDRESS)
        assert as_alice.call("put", "users/alice/schedules/nightly:pause").status_code == 200
        assert as_alice.call("delete", ADDRESS).status_code == 200


class TestReasons:
    def test_a_dataset_that_is_gone_is_named_and_no_path(self, submitted, tasks, as_alice):
        storage.remove_tree(storage.dataset_dir("alice", "photos"))
        tasks.run()
        row = as_alice.call("get", "users/alice/jobs/fit").json()
        assert row["state"] == "error"
        assert row["reason"] == "the files of the dataset photos are not there any more"

    def test_an_empty_dataset_is_an_empty_folder(self, as_alice, alice, home, tasks):
        Dataset.objects.create(user=alice, tenant=alice.tenant, name="photos", size=0, state="ready")
        (home / "train.py").write_text("import os\nprint(os.listdir(os.environ['MLP_DATASETS'] + '/photos'))")
        as_alice.call("post", "users/alice/jobs", {"name": "fit", **JOB, "datasets": ["photos"]})
        tasks.run()
        assert storage.dataset_dir("alice", "photos").is_dir()
        assert Job.objects.get().run_started

    def test_no_path_of_the_host_is_in_a_reason(self, settings):
        missing = f"bwrap: Can't find source path {storage.root()}/datasets/alice/photos: No such file or directory"
        assert storage.without_root(missing) == "bwrap: Can't find source path …: No such file or directory"
        assert storage.without_root("bwrap: Can't find source path /srv/my data/x") == "bwrap: Can't find source path …"
        line = f'File "{settings.BASE_DIR}/jobs/x.py", line 3'
        assert storage.without_root(line) == 'File "jobs/x.py", line 3'
        assert storage.without_root("/usr/lib/python3/x.py") == "/usr/lib/python3/x.py"
