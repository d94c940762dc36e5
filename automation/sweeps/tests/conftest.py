"""A sweep whose jobs are played by the test: begun, reported and ended through the platform's endpoints, no process."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta

import pytest

from automation.models import Sweep, Trial, TrialState
from jobs import lifecycle as jobs
from jobs.models import Job
from kernel import bus
from tracking.metrics import recording

SPACE = {"lr": {"type": "float", "low": 0.001, "high": 1.0, "log": True}, "depth": {"type": "int", "low": 1, "high": 5}}
NUMBERS = itertools.count(1)


def body(**fields) -> dict:
    usual = {
        "name": "search",
        "job": {"entry": "train.py", "cpu": 0.1, "ram": 100},
        "space": SPACE,
        "objective": {"metric": "error", "direction": "minimize"},
        "sampler": {"type": "random", "seed": 1},
        "trials": 4,
    }
    return {name: value for name, value in {**usual, **fields}.items() if value is not None}


def begin(job: Job) -> None:
    """Have the job's run started, for all that the platform knows."""
    jobs.order_run(job.pk)
    job.refresh_from_db()
    jobs.note_start(job.pk, job.run_name)


def report(job: Job, metric: str, *values: float, first: int = 0) -> None:
    """Store values of a running job as the ingest part does."""
    rows = [{"step": first + step, "values": {metric: value}} for step, value in enumerate(values)]
    _record(job, recording.values_subject(job.user.username, job.name), rows)


def report_lines(job: Job, *lines: dict) -> None:
    """Store lines of a running job, one for each epoch, that have what is given of accuracy and loss."""
    usual = {"user": job.user.username, "name": job.name, "progress": 1}
    rows = [{**usual, "epoch": epoch, **line, "reported": sorted(line)} for epoch, line in enumerate(lines)]
    _record(job, recording.subject(job.user.username, job.name), rows)


def _record(job: Job, subject: str, rows: list[dict]) -> None:
    sent = job.created + timedelta(seconds=1)
    deliveries = [
        bus.Delivery(subject, json.dumps(row).encode(), f"v{(number := next(NUMBERS))}", number, sent) for row in rows
    ]
    assert recording.record(deliveries) == len(rows)


def finish(job: Job, state: str = "finished") -> None:
    jobs.heartbeat(user=job.user, name=job.name, state=state, progress=100, by="job")
    Job.objects.filter(pk=job.pk).update(run_name="", run_started=False)  # the run is gone
    job.refresh_from_db()
    jobs.give_back(job)


class World:
    """A sweep of alice's, and what its jobs do."""

    def __init__(self, client, tasks, user):
        self.client, self.tasks, self.user = client, tasks, user

    def make(self, **fields) -> Sweep:
        response = self.client.call("post", f"users/{self.user}/sweeps", body(**fields))
        assert response.status_code == 201, response.content
        self.poll()
        return Sweep.objects.get(name=response.json()["name"])

    def poll(self) -> None:
        """Run what is enqueued, except for the jobs' own processes: those are played."""
        while self.tasks.queue:
            self.tasks.queue[:] = [message for message in self.tasks.queue if message.actor_name != "jobs.launch"]
            self.tasks.run_once()

    def running(self) -> list[Trial]:
        return list(Trial.objects.filter(state=TrialState.RUNNING).select_related("job__user").order_by("number"))

    def play(self, score=lambda params: (params["lr"] - 0.1) ** 2, most: int = 1000) -> None:
        """Let the jobs run, report their result and end, until no trial runs."""
        for _ in range(most):
            trials = self.running()
            if not trials:
                return
            for trial in trials:
                begin(trial.job)
                result = score(trial.params)
                if result is not None:
                    report(trial.job, "error", result)
                finish(trial.job)
            self.poll()

    def get(self, path: str = "search") -> dict:
        response = self.client.call("get", f"users/{self.user}/sweeps/{path}")
        assert response.status_code == 200, response.content
        return response.json()


@pytest.fixture
def world(as_alice, tasks, home, monkeypatch):
    """Sweeps of alice's; what jobs send is recorded at once."""
    # The message bus has nothing of them.
    monkeypatch.setattr("tracking.metrics.recording.all_recorded", lambda job: True)
    return World(as_alice, tasks, "alice")
