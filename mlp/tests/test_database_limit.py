"""What users store in the database counts to them, and is limited: reports, notes, all that has text of theirs."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.apps import apps
from django.db import connection

from accounts import lifecycle as accounts
from conftest import Api
from jobs.models import Job, RunParam
from kernel import bus, stored
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visitor
from models_app.transfer.memory import Memory, NoRoom
from tracking.metrics import recording
from tracking.mlflow.tests.conftest import mlflow  # noqa: F401 (a fixture)

pytestmark = pytest.mark.django_db

TEXTS = {"TextField", "JSONField", "BinaryField"}
# Tables with text that count to nobody, and why they do not grow with what one user sends.
UNCOUNTED = {
    "accounts.Delivery": "the platform's",
    "accounts.Factor": "a few of a user",
    "accounts.Notice": "the platform's, and read ones go",
    "accounts.Preference": "one of a user, a level for each kind",
    "accounts.Token": "a hundred of a user, with a hundred names at most",
    "admin.LogEntry": "administrators'",
    "aiops.Alert": "by rules, whose number is limited",
    "aiops.FailureRule": "administrators'",
    "aiops.LogLine": "all together: MLP_AIOPS_RETENTION_MIB",
    "aiops.ModelVersion": "the platform's",
    "aiops.RateAnomaly": "of watched workloads, whose number is limited; removed after 30 days",
    "aiops.RateClock": "one of each watched workload",
    "aiops.SessionAnomaly": "at most 1,000 of each watched workload, removed after 30 days",
    "aiops.SessionClock": "one of each watched workload",
    "aiops.Template": "the platform's, of stored lines",
    "aiops.TemplateRate": "at most 2,000 of each watched workload",
    "aiops.TrainingRun": "the platform's",
    "apps.AppKey": "a hundred of an application, with a hundred names at most",
    "apps.AppRun": "the platform's",
    "apps.Recording": "one of an application, with a limited number of masks",
    "apps.Replica": "the platform's",
    "apps.Rollout": "the platform's",
    "apps.Shadow": "five of an application, with a limited number of fields; the rest are the platform's counts",
    "datasets.Bucket": "administrators'",
    "datasets.Export": "at most 600 of a user, and the text is the platform's",
    "jobs.Block": "made of values, which count",
    "jobs.FailureRule": "administrators'",
    "jobs.Reporting": "with its job",
    "jobs.Submission": "with its job",
    "jobs.Tracked": "with its job",
    "kernel.StateChange": "the platform's",
    "models_app.Imported": "administrators'",
    "sessions.Session": "the platform's",
}
PARAM = "x" * 6000


@pytest.fixture(autouse=True)
def fresh_sums(monkeypatch):
    monkeypatch.setattr(stored, "FRESH_S", -1.0)


@pytest.fixture
def small(settings):
    settings.DATABASE_LIMIT_MIB = 1


def counted_anew(user) -> int:
    """Return what the user's rows take by a look at all of them."""
    total = 0
    with connection.cursor() as cursor:
        for table in stored.counted():
            cursor.execute(
                f'SELECT coalesce(sum({table.size}), 0) FROM "{table.table}" AS r WHERE {table.owner} = %s', [user.pk]
            )
            total += int(cursor.fetchone()[0])
    return total


def fill(client) -> tuple[str, dict]:
    """Log parameters until a batch is refused; return the run and the refusal."""
    run = client.call("post", "runs/create", experiment_id="0")["run"]["info"]["run_id"]
    for number in range(10):
        params = [{"key": f"{number}.{each}", "value": PARAM} for each in range(100)]
        answer = client.send("post", "runs/log-batch", {"run_id": run, "params": params})
        if answer.status_code != 200:
            return run, answer
    raise AssertionError("6 MB were taken, the limit is 1 MiB")


def test_reports_beyond_the_limit_are_refused_until_runs_are_deleted(mlflow, alice, as_alice, small):  # noqa: F811
    run, refusal = fill(mlflow)
    assert (refusal.status_code, refusal.json()["error_code"]) == (413, "QUOTA_EXCEEDED")
    assert "MLP_DATABASE_LIMIT_MIB" in refusal.json()["message"]
    assert RunParam.objects.count() == 200
    for route, fields in (
        ("runs/set-tag", {"run_id": run, "key": "a", "value": "b"}),
        ("runs/log-metric", {"run_id": run, "key": "a", "value": 1.0, "timestamp": 1}),
        ("experiments/create", {"name": "more"}), ("registered-models/create", {"name": "more"}),
    ):  # fmt: skip
        assert mlflow.refused("post", route, **fields) == "QUOTA_EXCEEDED", route
    assert "MLP_DATABASE_LIMIT_MIB" in as_alice.refused("post", "users/alice/projects", {"name": "more"})
    page = visitor(alice).post("/projects", {"name": "more"})
    assert page.status_code == 403
    assert "MLP_DATABASE_LIMIT_MIB" in page.content.decode()
    mlflow.call("get", "runs/get", run_id=run)
    Job.objects.get(user=alice).delete()
    mlflow.call("post", "experiments/create", name="more")


def test_the_limit_is_each_users_own(mlflow, bob, small):  # noqa: F811
    fill(mlflow)
    assert Api().call("post", "users", {"username": "carol", "password": "a-long-password-1"}).status_code == 201
    mlflow.token = accounts.token_of(bob)
    mlflow.call("post", "experiments/create", name="mine")


def delivery(job: Job, epoch: int) -> bus.Delivery:
    body = {"epoch": epoch, "accuracy": 0.5, "loss": 0.5, "progress": 10}
    sent = job.created + timedelta(seconds=1)
    return bus.Delivery(f"job_metrics.alice.{job.name}", json.dumps(body).encode(), f"m{epoch}", epoch, sent)


def test_values_of_a_job_count_and_are_not_kept_beyond_the_limit(alice, small):
    job = put(Job, alice, "fit", "running")
    before = stored.used(alice.pk)
    assert recording.record([delivery(job, 1)]) == 1
    assert stored.used(alice.pk) - before >= 100
    Job.objects.filter(pk=job.pk).update(notes="x" * (1 << 20))
    assert recording.record([delivery(job, 2)]) == 0
    job.refresh_from_db()
    assert "MLP_DATABASE_LIMIT_MIB" in job.metrics_notice


def test_an_import_stores_nothing_beyond_the_limit(alice, bob, small):
    job = put(Job, alice, "fit", "finished")
    Job.objects.filter(pk=job.pk).update(notes="x" * (1 << 20))
    with pytest.raises(NoRoom, match="MLP_DATABASE_LIMIT_MIB"):
        Memory(alice, "https://mlflow.example").require_room()
    Memory(bob, "https://mlflow.example").require_room()


def test_every_table_with_text_counts_to_somebody_or_says_why_not():
    with_text = {
        model._meta.label
        for model in apps.get_models()
        if any(field.get_internal_type() in TEXTS for field in model._meta.fields)
    }
    counting = {model._meta.label for model in apps.get_models() if getattr(model, "stored_by", None)}
    assert with_text - counting - set(UNCOUNTED) == set()
