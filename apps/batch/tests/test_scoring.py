"""Jobs that score: what they are made of, what is refused, and what becomes of the dataset of the results."""

from __future__ import annotations

import pytest

import runners
from apps.batch import scoring
from apps.models import Application, Scoring
from apps.tests.conftest import adder  # noqa: F401 (a fixture)
from datasets import copies
from datasets.models import Dataset
from jobs import environment
from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text, visitor

pytestmark = pytest.mark.django_db
BODY = {"dataset": "digits", "output": "scores", "cpu": 0.5, "ram": 600}


@pytest.fixture
def rows(alice) -> Dataset:
    folder = storage.dataset_dir("alice", "digits")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.csv").write_text("x\n1\n")
    return put(Dataset, alice, "digits", "ready")


@pytest.fixture
def job(as_alice, adder, rows) -> Job:  # noqa: F811
    answer = as_alice.call("post", "users/alice/models/adder:score", BODY)
    assert answer.status_code == 201, answer.content
    return Job.objects.get(name="scores")


def test_a_job_has_the_model_the_serving_code_and_the_dataset(job, adder):  # noqa: F811
    assert (job.entry, job.datasets, job.cpu, job.ram, job.reserved) == ("score.py", ["digits"], 0.5, 600, True)
    job.run_name = "job-1-1"
    spec = environment.run_spec(job, job.user)
    mounted = {mount.source for mount in spec.mounts}
    assert {storage.model_dir("alice", "adder"), scoring.SERVING} <= mounted
    assert spec.environment["MLP_SCORING_NAME"] == "adder"
    assert spec.environment["MLP_SCORING_DATASET"] == "digits"
    assert "MLP_SCORING_CHAT" not in spec.environment
    assert spec.runtime == "serve"
    put(Job, job.user, "train", "running")
    other = Job.objects.get(name="train")
    other.entry, other.run_name = "score.py", "job-2-1"
    assert "MLP_SERVING" not in environment.run_spec(other, job.user).environment


def test_the_results_become_a_dataset_when_the_job_has_finished(job, alice):
    row = Dataset.objects.get(name="scores")
    assert (row.src, row.size, row.state) == ("jobs/scores/scored", 0, "creating")
    copies.copy(row.pk, follow=True)
    row.refresh_from_db()
    assert (row.state, str(row.reason)) == ("creating", "the job of its source has not exited yet")
    folder = storage.job_dir("alice", "scores") / "scored" / "scores"
    folder.mkdir(parents=True)
    (folder / "00000-0000000000.ndjson").write_text('{"row": 0}\n')
    job.start(by="test")
    job.finish(by="test")
    job.save()
    copies.copy(row.pk, follow=False)
    row.refresh_from_db()
    assert (row.state, row.size, str(row.reason)) == ("ready", 11, "")
    assert (storage.dataset_dir("alice", "scores") / "scores" / "00000-0000000000.ndjson").exists()
    assert scoring.output_of(job) == row


def test_a_failed_job_fails_the_dataset(job):
    job.fail(by="test", reason="exit code 1")
    job.save()
    copies.copy(Dataset.objects.get(name="scores").pk, follow=False)
    row = Dataset.objects.get(name="scores")
    assert row.state == "error"
    assert "available once it has finished" in row.reason


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"dataset": "none"}, "datasets: you have no ready dataset named none"),
        ({"output": "digits"}, "output: you already have a dataset named digits"),
        ({"output": "A b"}, "output: must be"),
        ({"name": "A b"}, "name: must be"),
        ({"cpu": 10_000}, "cpu"),
        ({"dataset": None}, "dataset"),
        ({"more": 1}, "more"),
    ],
)
def test_what_cannot_be_scored_is_refused_and_nothing_is_left(as_alice, adder, rows, body, words):  # noqa: F811
    assert as_alice.refused("post", "users/alice/models/adder:score", {**BODY, **body}).startswith(words)
    assert not Job.objects.exists()
    assert not Scoring.objects.exists()
    assert Dataset.objects.count() == 1


def test_only_ready_models_of_the_owner_score(as_alice, as_bob, adder, rows):  # noqa: F811
    assert as_bob.refused("post", "users/alice/models/adder:score", BODY)
    type(adder).objects.update(state="error")
    assert "once it is ready" in as_alice.refused("post", "users/alice/models/adder:score", BODY)
    assert as_alice.refused("post", "users/alice/models/none:score", BODY)


def test_a_model_is_kept_while_a_job_scores_with_it(as_alice, job):
    words = "state: the job scores scores a dataset with this model"
    assert as_alice.refused("delete", "users/alice/models/adder?trash=1") == words
    assert as_alice.refused("delete", "users/alice/models/adder") == words
    job.fail(by="test", reason="")
    job.save()
    assert as_alice.call("delete", "users/alice/models/adder?trash=1").status_code == 200


def test_an_application_scores_with_its_model_and_pages_do(alice, as_alice, adder, rows):  # noqa: F811
    Application.objects.create(user=alice, tenant=alice.tenant, model=adder, name="calc", port=31000, reserved=False)
    assert as_alice.call("post", "users/alice/apps/calc:score", BODY).status_code == 201
    page = visitor(alice)
    shown = visible_text(page.get("/apps/calc/score"))
    assert "Score a dataset" in shown
    assert "scores" in shown  # the job above
    wrong = page.post("/models/adder/score", {"dataset": "none", "output": "more"})
    assert "you have no ready dataset named none" in visible_text(wrong)
    given = {"dataset": "digits", "output": "more", "cpu": "0.5", "gpu": "0", "ram": "600", "retries": "1"}
    assert page.post("/models/adder/score", given).headers["Location"] == "/jobs/more"
    assert Job.objects.get(name="more").retries == 1
    assert runners.get() is not None
