"""Retention by a tenant's policy: logs, metrics and outputs of ended jobs, and the days in the trash."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

import datasets.reconcile
from aiops import logstore
from aiops.intake import accept
from datasets.models import Dataset
from jobs import reconcile, retention
from jobs.artifacts import space
from jobs.models import Job, Metrics, RunMetric, Value
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text, visitor
from resources.models import ResourceRequest, Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]

NEVER = {"trash_days": None, "log_days": None, "metrics_days": None, "output_days": None}
FILES = (
    "log/job.log",
    "log/job.log.times",
    "log/usage.jsonl",
    "metrics/x",
    "ckpt/model.pt",
    "out/deep/x",
    "artifacts/a",
)


def ended_job(user, name: str, days: float) -> Job:
    """Make a job that ended so many days ago, with a log, metrics and output."""
    job = put(Job, user, name, "finished")
    Job.objects.filter(pk=job.pk).update(ended=timezone.now() - timedelta(days=days))
    for path in FILES:
        target = storage.job_dir(user.username, name) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("hello\n")
    Metrics.objects.create(job=job, seq=1, epoch=1, accuracy=0.5, loss=1, progress=10, msg_id="one")
    Value.objects.create(job=job, name="loss", step=1, value=1, at=timezone.now(), msg_id="two")
    RunMetric.objects.create(job=job, user=user, name="loss", last=1, min=1, max=1, count=1, step=1)
    logstore.get().append([accept.line("hello", id=f"{name}1", namespace=user.username, deployment=name)])
    job.refresh_from_db()
    return job


def files(name: str) -> set[str]:
    return {path for path, _info in storage.files(storage.job_dir("alice", name))}


def lines(name: str) -> int:
    return logstore.get().count({"query": {"bool": {"filter": [{"term": {"deployment": name}}]}}})


@pytest.fixture
def policy(as_staff):
    def set_days(**days) -> dict:
        answer = as_staff.call("put", "tenants/default", days)
        assert answer.status_code == 200, answer.content
        return answer.json()

    return set_days


@pytest.fixture
def jobs_of_two_ages(alice):
    return ended_job(alice, "old", 10.01), ended_job(alice, "young", 9.99)


class TestPolicy:
    def test_nothing_is_removed_by_default(self, jobs_of_two_ages, as_alice):
        shown = as_alice.call("get", "tenants/default").json()
        assert NEVER.items() <= shown.items()
        Job.objects.update(ended=timezone.now() - timedelta(days=3000))
        retention.run(timezone.now())
        assert files("old") == set(FILES)
        assert Value.objects.count() == 2

    @pytest.mark.parametrize(
        ("field", "value"), [("log_days", 0), ("log_days", 3651), ("metrics_days", "7"), ("trash_days", -1)]
    )
    def test_what_is_no_number_of_days_is_refused(self, as_staff, field, value):
        assert as_staff.refused("put", "tenants/default", {field: value}).startswith(f"{field}:")

    def test_only_administrators_set_it(self, as_alice):
        assert "administrators" in as_alice.refused("put", "tenants/default", {"log_days": 7})

    def test_the_administration_sets_and_shows_it(self, staff_client, alice):
        tenant = Tenant.objects.get(name="default")
        address = f"/admin/resources/tenant/{tenant.pk}"
        assert "as the settings say" in visible_text(staff_client.get(f"{address}/change/"))
        given = {"trash_days": "7", "log_days": "14", "metrics_days": "", "output_days": "30", "confirmed": "yes"}
        staff_client.post(f"{address}/do/retention/", given)
        tenant.refresh_from_db()
        assert (tenant.trash_days, tenant.log_days, tenant.metrics_days, tenant.output_days) == (7, 14, None, 30)
        text = visible_text(staff_client.get(f"{address}/change/"))
        assert "trash after 7 days; logs after 14 days; outputs after 30 days" in text


class TestRemoval:
    def test_logs(self, jobs_of_two_ages, policy, as_alice):
        assert policy(log_days=10)["log_days"] == 10
        reconcile.run()
        assert files("old") == {path for path in FILES if not path.startswith("log/job.log")}
        assert (lines("old"), lines("young")) == (0, 1)
        assert files("young") == set(FILES)
        row = as_alice.call("get", "users/alice/jobs/old").json()
        assert (row["log_removed"] is not None, row["metrics_removed"], row["output_removed"]) == (True, None, None)
        assert as_alice.call("get", "users/alice/jobs/old/log").content == b""

    def test_metrics_keep_their_summary(self, jobs_of_two_ages, policy, as_alice):
        policy(metrics_days=10)
        reconcile.run()
        assert files("old") == {path for path in FILES if path not in ("log/usage.jsonl", "metrics/x")}
        for model in (Metrics, Value):
            assert list(model.objects.values_list("job__name", flat=True)) == ["young"]
        assert RunMetric.objects.count() == 2
        assert as_alice.call("get", "users/alice/jobs/old/metrics").json() == []
        assert as_alice.call("get", "users/alice/jobs/old").json()["metrics_removed"]

    def test_more_metrics_than_fit_in_one_transaction(self, jobs_of_two_ages, policy, monkeypatch):
        monkeypatch.setattr(retention, "ROWS", 2)
        old = jobs_of_two_ages[0]
        Value.objects.bulk_create(
            Value(job=old, name="x", step=n, value=n, at=timezone.now(), msg_id=f"n{n}") for n in range(7)
        )
        policy(metrics_days=10)
        reconcile.run()
        assert not Value.objects.filter(job=old).exists()

    def test_outputs_and_their_disk_space(self, jobs_of_two_ages, policy, as_alice, alice):
        old = jobs_of_two_ages[0]
        with space.writing(old) as held:
            held.charge(6)
        assert Tenant.objects.get(name="default").rom_inuse > 0
        policy(output_days=10)
        reconcile.run()
        assert files("old") == {path for path in FILES if path.startswith(("log/", "metrics/"))}
        assert not (storage.job_dir("alice", "old") / "ckpt").exists()
        assert files("young") == set(FILES)
        assert Tenant.objects.get(name="default").rom_inuse == 0
        assert ResourceRequest.objects.get(pk=f"artifacts:{old.pk}").rom == 0
        assert as_alice.call("get", "users/alice/jobs/old").json()["output_removed"]
        given = {"name": "net", "src": "jobs/old/ckpt"}
        assert "has been removed" in as_alice.refused("post", "users/alice/models", given)
        (storage.home_dir("alice") / "train.py").write_text("")
        given = {"name": "next", "entry": "train.py", "inputs": {"DATA": "old"}}
        assert "has been removed" in as_alice.refused("post", "users/alice/jobs", given)

    def test_an_output_that_a_queued_job_reads_stays(self, jobs_of_two_ages, policy, alice):
        reader = put(Job, alice, "reader", "creating")
        Job.objects.filter(pk=reader.pk).update(job_inputs={"DATA": "old/ckpt"})
        policy(output_days=10)
        retention.run(timezone.now())
        assert files("old") == set(FILES)
        Job.objects.filter(pk=reader.pk).update(state="error")
        retention.run(timezone.now())
        assert "ckpt/model.pt" not in files("old")

    def test_running_jobs_and_those_of_other_tenants_keep_all(self, jobs_of_two_ages, policy, alice):
        other = Tenant.objects.create(name="other", cpu=1)
        Job.objects.filter(name="old").update(tenant=other)
        Job.objects.filter(name="young").update(state="running", ended=timezone.now() - timedelta(days=99))
        policy(log_days=1, metrics_days=1, output_days=1)
        retention.run(timezone.now())
        assert files("old") == files("young") == set(FILES)

    def test_links_that_a_script_has_left_are_not_followed(self, jobs_of_two_ages, policy, tmp_path):
        (tmp_path / "precious").write_text("x")
        folder = storage.job_dir("alice", "old")
        for path in ("log/job.log", "log/job.log.times", "log/usage.jsonl"):
            (folder / path).unlink()
        (folder / "log").rmdir()
        (folder / "log").symlink_to(tmp_path)
        (folder / "out" / "link").symlink_to(tmp_path)
        policy(log_days=1, metrics_days=1, output_days=1)
        retention.run(timezone.now())
        assert (tmp_path / "precious").read_text() == "x"
        assert files("old") == set()

    def test_killed_in_between_it_goes_on_later(self, jobs_of_two_ages, policy, monkeypatch):
        policy(output_days=10)

        def killed(path, **_):
            (path / "ckpt" / "model.pt").unlink()
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(storage, "clear", killed)
            with pytest.raises(KeyboardInterrupt):
                retention.run(timezone.now())
        assert Job.objects.get(name="old").output_removed is None
        retention.run(timezone.now())
        assert files("old") == {path for path in FILES if path.startswith(("log/", "metrics/"))}
        assert Job.objects.get(name="old").output_removed
        assert files("young") == set(FILES)


class TestPages:
    def test_the_job_page_says_what_is_removed_and_when(self, jobs_of_two_ages, policy, alice):
        client = visitor(alice)
        assert "is removed on" not in visible_text(client.get("/jobs/young"))
        policy(log_days=10, metrics_days=20, output_days=30)
        text = visible_text(client.get("/jobs/young"))
        for part in ("Its log is removed on", "Its metrics are removed on", "Its output is removed on"):
            assert part in text
        retention.run(timezone.now())
        text = visible_text(client.get("/jobs/old"))
        assert "Its log was removed on" in text
        assert "Its log is removed on" not in text
        put(Job, alice, "live", "running")
        assert "removed on" not in visible_text(client.get("/jobs/live"))


class TestTrash:
    def test_a_tenant_has_its_own_days(self, alice, as_alice, policy, tasks):
        put(Dataset, alice, "photos", "ready")
        as_alice.call("delete", "users/alice/datasets/photos?trash=1")
        Dataset.objects.update(trashed=timezone.now() - timedelta(days=3.01))
        datasets.reconcile.run()
        assert Dataset.objects.get().state == "ready"
        policy(trash_days=4)
        datasets.reconcile.run()
        (entry,) = as_alice.call("get", "users/alice/trash").json()
        assert (Dataset.objects.get().trashed + timedelta(days=4)).isoformat()[:19] == entry["purged"][:19]
        policy(trash_days=3)
        datasets.reconcile.run()
        tasks.run()
        assert not Dataset.objects.exists()
