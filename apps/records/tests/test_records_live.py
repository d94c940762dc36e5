"""Records and scoring with real processes: the gateway, an application that is killed, a job."""

from __future__ import annotations

import json
import os
import signal

import pytest
import requests

from apps import keys
from apps.batch import scoring
from apps.models import Application, Record
from apps.tests import conftest as applications
from apps.tests.conftest import NAMES, bearer_of
from apps.tests.test_apps import process_of
from datasets import copies
from datasets.models import Dataset
from jobs import reconcile as jobs_reconcile
from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.patience import LIMIT_S

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]  # test_recording.py, test_gateway.py

deploy, front, until, ready = (getattr(applications, name) for name in ("deploy", "front", "until", "ready"))
servers, service, nothing_left = (getattr(applications, name) for name in ("servers", "service", "nothing_left"))


def test_records_survive_the_kill_of_their_process(front, deploy, ready, until, alice, as_alice):
    app = ready(deploy(next(NAMES)))
    path, address = f"users/alice/apps/{app.name}", f"{front}/alice/{app.name}"
    assert as_alice.call("put", f"{path}/recording", {"mask": ["secret"]}).status_code == 200
    key = {"Authorization": f"Bearer {keys.create(app=app, name='shop', by='alice')[1]}"}

    def ask(number: int) -> requests.Response:
        return requests.post(f"{address}/predict", json={"x": [number]}, headers={**key, "X-Request-Id": f"r{number}"},
                             timeout=LIMIT_S)  # fmt: skip

    until(lambda: ask(0).ok and requests.post(f"{address}/-feedback", json={"id": "r0", "value": 1}, headers=key).ok)
    for number in range(1, 50):
        answer = ask(number)
        assert (answer.json(), answer.headers["X-Request-Id"]) == ({"y": [number + 1]}, f"r{number}")
    assert requests.get(f"{address}/v2", headers=bearer_of(alice), timeout=LIMIT_S).headers["X-Request-Id"]
    # it may come before the process has written the record
    until(lambda: requests.post(f"{address}/-feedback", json={"id": "r49", "value": "good"}, headers=key).ok)
    app.refresh_from_db()
    os.kill(process_of(app), signal.SIGKILL)
    found = [f"r{number}" for number in range(1, 50)]
    until(lambda: Record.objects.filter(request_id__in=found).count() >= 49)
    assert Record.objects.filter(request_id__in=found).count() == 49
    row = as_alice.call("get", f"{path}/records?id=r49").json()[0]
    assert (row["input"], row["output"], row["key"]) == ({"x": [49]}, {"y": [50]}, "shop")
    assert row["feedback"][0]["value"] == "good"


def test_a_job_scores_a_dataset(until, alice, adder, tasks):
    folder = storage.dataset_dir("alice", "digits")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.csv").write_text("x\n" + "".join(f"{row if row != 7 else 'seven'}\n" for row in range(200)))
    put(Dataset, alice, "digits", "ready")
    job = scoring.create(user=alice, model=adder, dataset="digits", output="scores", cpu=0.1, ram=500, by="alice")

    def is_done() -> bool:
        jobs_reconcile.run()
        job.refresh_from_db()
        return job.has_ended

    until(is_done)
    log = (storage.job_dir("alice", job.name) / "log" / "job.log").read_text()
    assert job.state == "finished", log
    assert "199 rows scored, 1 rejected" in log
    row = Dataset.objects.get(name="scores")

    def is_copied() -> bool:
        copies.copy(row.pk, follow=False)
        row.refresh_from_db()
        return row.state != "creating"

    until(is_copied)
    assert (row.state, Job.objects.count(), Application.objects.count()) == ("ready", 1, 0)
    top = storage.dataset_dir("alice", "scores")
    (part,) = (top / "scores").iterdir()
    lines = [json.loads(line) for line in part.read_text().splitlines()]
    assert [(line["row"], line["output"]) for line in lines] == [
        (at, {"y": at + 1}) for at in range(200) if at != 7
    ]  # fmt: skip
    (rejected,) = (top / "rejected").iterdir()
    assert json.loads(rejected.read_text())["row"] == 7
