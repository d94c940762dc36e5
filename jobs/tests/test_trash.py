"""The trash is emptied, with real transactions."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from jobs import reconcile
from jobs.models import Job
from tracking.runs.tests.conftest import make_runs

RUNS = "users/alice/runs"


def test_the_trash_is_emptied_after_the_days_of_the_setting(as_alice, alice, tasks, settings):
    make_runs(alice)
    as_alice.call("put", f"{RUNS}:trash", {"jobs": ["a", "b"]})
    Job.objects.filter(name="a").update(trashed=timezone.now() - timedelta(days=settings.TRASH_DAYS, seconds=1))
    reconcile.run()
    refused = as_alice.call("put", "users/alice/jobs/a:restore")
    assert refused.json()["msg"] == "name: the job is already being deleted"
    tasks.run()
    assert not Job.objects.filter(name="a").exists()
    assert as_alice.call("put", f"{RUNS}:delete", {"jobs": ["b", "c"]}).json()["changed"] == 1
    tasks.run()
    assert [run["name"] for run in as_alice.call("get", RUNS).json()["runs"]] == ["e", "d", "c"]
    assert as_alice.call("get", RUNS, {"trash": "1"}).json()["runs"] == []
