"""Jobs whose output is sent to a bucket once they have finished."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

import pytest

from accounts.models import Notice
from datasets.buckets import rows
from datasets.models import Export
from datasets.tests.test_buckets import bucket, remote  # noqa: F401
from datasets.tests.test_exports import objects, writable, write  # noqa: F401
from jobs import lifecycle
from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text, visitor
from operations.backup.tests.conftest import s3  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)
JOBS = "users/alice/jobs"


@pytest.fixture
def fit(alice) -> Job:
    write(storage.job_dir("alice", "fit"), {"model.pt": b"weights", "log/0.log": b"no"})
    job = put(Job, alice, "fit", "running")
    Job.objects.update(output_uri="s3://photos/out/")
    return job


def finish(fit: Job, tasks) -> Export:
    lifecycle.finish(fit.pk, fit.run_name, by="runner")
    tasks.run()
    fit.refresh_from_db()
    assert fit.state == "finished"
    return Export.objects.get()


def test_the_output_is_in_the_bucket_once_it_has_finished(alice, fit, writable, objects, tasks):
    export = finish(fit, tasks)
    assert (export.state, export.src, export.target) == ("finished", "jobs/fit", "s3/photos/out/fit")
    assert objects() == {"fit/model.pt": b"weights"}
    assert "s3/photos/out/fit finished" in " ".join(visible_text(visitor(alice).get("/jobs/fit")).split())


def test_a_failed_export_does_not_fail_the_job_and_is_told(alice, fit, writable, tasks):
    rows.change(writable, by="root", access="read", everybody=True)
    export = finish(fit, tasks)
    assert (export.state, export.reason) == ("error", "the bucket photos is read-only")
    assert "the bucket photos is read-only" in visible_text(visitor(alice).get("/jobs/fit"))
    assert Notice.objects.get(kind="export").title == "jobs/fit > s3/photos/out/fit"


def test_a_failed_job_sends_nothing(fit, writable, tasks):
    lifecycle.fail(fit.pk, "broken", by="runner")
    tasks.run()
    assert not Export.objects.exists()


def test_it_is_checked_at_submission_and_a_rerun_and_a_schedule_keep_it(as_alice, home, bucket, tasks):
    job = {"entry": "train.py", "output_uri": "s3/photos/out"}
    assert as_alice.refused("post", JOBS, {**job, "name": "fit"}) == "output_uri: the bucket photos is read-only"
    bad = {**job, "name": "fit", "output_uri": "gs/x"}
    assert as_alice.refused("post", JOBS, bad).startswith("output_uri: must be s3/{bucket}")
    schedule = {"name": "daily", "cron": "0 3 * * *", "job": job}
    assert "output_uri: the bucket photos is read-only" in as_alice.refused("post", "users/alice/schedules", schedule)
    rows.change(bucket, by="root", access="write", everybody=True)
    made = as_alice.call("post", JOBS, {**job, "name": "fit"})
    assert (made.status_code, made.json()["output_uri"]) == (201, "s3/photos/out"), made.content
    assert as_alice.call("post", "users/alice/schedules", schedule).status_code == 201
    lifecycle.fail(Job.objects.get(name="fit").pk, "broken", by="runner")
    assert as_alice.call("post", f"{JOBS}/fit:rerun", {}).json()["output_uri"] == "s3/photos/out"
    form = visitor(Job.objects.get(name="fit").user).get("/jobs?from=fit").content.decode()
    assert 'value="s3/photos/out"' in form
