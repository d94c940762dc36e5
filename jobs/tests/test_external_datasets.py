"""Jobs that read datasets whose files stay in a bucket of a real S3 server, rclone's."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

import pytest

from datasets.buckets import caching, places, rows, store
from datasets.models import Manifest
from datasets.tests.test_buckets import bucket, objects, remote  # noqa: F401
from datasets.tests.test_external import external  # noqa: F401
from jobs import launching
from jobs.code import capture
from kernel import storage
from mlp.tests.tiers import few
from operations.backup.tests.conftest import s3  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)
READ = """
import os, pathlib
top = pathlib.Path(os.environ["MLP_DATASETS"], "cats")
print(sorted((str(path.relative_to(top)), path.read_text()) for path in top.rglob("*") if path.is_file()))
try:
    (top / "a.csv").write_text("mine")
    print("written")
except OSError as problem:
    print("read-only")
print([name for name, value in os.environ.items() if "the-secret" in value or "the-key" in value])
"""


def test_a_job_reads_the_version_that_was_current_at_its_start(
    external,
    submit,
    until,
    tasks,
    as_alice,
    remote,
):
    """The files are at the usual place and read-only, the keys are not there, and the reason says what it waits for."""
    external({"a.csv": b"1", "deep/b c.txt": b"2"})
    job = submit(READ, datasets=["cats"])
    remote.put("train/a.csv", b"3")
    remote.put("train/a.csv", b"1")  # the same content again
    as_alice.call("put", "users/alice/datasets/cats:refresh", {})
    until(job, "finished")
    log = (storage.job_dir("alice", "fit") / "log" / "job.log").read_text()
    assert "[('a.csv', '1'), ('deep/b c.txt', '2')]\nread-only\n[]" in log
    version = Manifest.objects.get(version__number=1).version
    digest = capture.Capture.objects.get(job=job).datasets["cats"]
    assert digest == {"files": 2, "bytes": 2, "sha256": version.sha256, "partial": False, "version": 1}
    assert places.in_use() == set()
    assert caching.evict(version.pk)


@pytest.mark.parametrize("what", few(["vanished", "withdrawn", "away"], 1))  # each reason: test_external_cache.py
def test_a_job_whose_files_cannot_be_fetched_says_why(
    external,
    submit,
    until,
    as_alice,
    remote,
    bucket,
    monkeypatch,
    what,
):
    external({"a.csv": b"1", "b.csv": b"2"})
    job = submit(READ, datasets=["cats"])
    if what == "vanished":
        remote.delete("train/b.csv")
    elif what == "withdrawn":
        rows.change(bucket, by="root", everybody=False)
    else:
        monkeypatch.setattr(store, "RETRIES", store.SOON)
        rows.change(bucket, by="root", everybody=True, endpoint="http://127.0.0.1:9")
    until(job, "error")
    said = {
        "vanished": "the object train/b.csv is not in the bucket any more; refresh the dataset",
        "withdrawn": "there is no bucket named photos that you may read",
        "away": "the bucket photos: ",
    }[what]
    assert said in job.reason
    assert "the files of the dataset cats could not be fetched" in job.reason
    assert not job.reserved
    diagnosis = as_alice.call("get", "users/alice/jobs/fit/diagnosis").json()
    assert (diagnosis["rule"], diagnosis["title"]) == ("not_fetched", "The files of cats could not be fetched")


def test_a_job_that_is_cancelled_while_its_files_are_fetched(external, submit, as_alice, tasks, monkeypatch):
    external({"a.csv": b"1"})
    job = submit(READ, datasets=["cats"])
    pieces = store.Store.pieces

    def then_cancel(self, entries):
        as_alice.call("put", "users/alice/jobs/fit:cancel", {})
        launching.clean(job.pk)
        yield from pieces(self, entries)

    monkeypatch.setattr(store.Store, "pieces", then_cancel)
    monkeypatch.setattr(caching, "SAID_AFTER", caching.SAID_AFTER * 0)
    tasks.run()
    job.refresh_from_db()
    assert (job.state, job.reason) == ("error", "cancelled")
    manifest = Manifest.objects.get()
    assert (manifest.asked, manifest.cached, manifest.failed) == (None, None, None)


def test_only_jobs_read_a_dataset_in_a_bucket(external, as_alice):
    external({"a.csv": b"1"})
    refused = as_alice.refused("post", "users/alice/workspaces", {"name": "lab", "datasets": ["cats"]})
    assert refused == "datasets: the files of the dataset cats are in a bucket; only jobs read them"


def test_a_workspace_opens_a_job_without_its_datasets_in_buckets(external, submit, as_alice, alice, client):
    external({"a.csv": b"1"})
    submit(READ, datasets=["cats"])
    client.force_login(alice)
    form = client.get("/workspaces?job=fit").content.decode()
    assert "Datasets that are left out: cats." in form
    assert 'value="cats"' not in form
    assert 'value="cats"' in client.get("/jobs").content.decode()
    made = as_alice.call("post", "users/alice/workspaces", {"name": "lab", "job": "fit"})
    assert (made.status_code, made.json().get("datasets")) == (201, []), made.content
