"""A pipeline of alice's whose jobs are played by the test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from automation.models import PipelineRun, Step
from automation.sweeps.tests.conftest import begin, finish
from jobs.models import Job
from kernel import storage

JOB = {"cpu": 0.1, "ram": 100, "entry": "train.py"}


class World:
    """Pipelines of alice's, and what their jobs do."""

    def __init__(self, client, tasks):
        self.client, self.tasks = client, tasks

    def make(self, steps: dict, **fields) -> dict:
        body = {"name": "flow", "steps": {name: self.step(step) for name, step in steps.items()}, **fields}
        response = self.client.call("post", "users/alice/pipelines", body)
        assert response.status_code == 201, response.content
        return response.json()

    @staticmethod
    def step(fields: dict) -> dict:
        return fields if "approve" in fields else {**JOB, **fields}

    def run(self, **body) -> PipelineRun:
        response = self.client.call("post", "users/alice/pipelines/flow/runs", body)
        assert response.status_code == 201, response.content
        self.poll()
        return PipelineRun.objects.get(number=response.json()["number"])

    def poll(self) -> None:
        """Run what is enqueued, except for the jobs' own processes: those are played."""
        while self.tasks.queue:
            self.tasks.queue[:] = [message for message in self.tasks.queue if message.actor_name != "jobs.launch"]
            self.tasks.run_once()

    def running(self) -> list[str]:
        return sorted(Step.objects.filter(state="running").values_list("name", flat=True))

    def end(self, name: str, state: str = "finished", act: Callable[[Job], None] | None = None) -> Job:
        """Let the job of a running step begin, do something, and end."""
        job = Step.objects.select_related("job__user").get(name=name, state="running").job
        storage.job_dir("alice", job.name).mkdir(parents=True, exist_ok=True)
        begin(job)
        if act is not None:
            act(job)
        finish(job, state)
        self.poll()
        return job

    def play(self) -> list[str]:
        """Let all jobs end well; return the steps in the order in which they have run."""
        order = []
        while names := self.running():
            for name in names:
                self.end(name)
                order.append(name)
        return order

    def states(self, number: int = 1) -> dict[str, str]:
        rows = self.client.call("get", f"users/alice/pipelines/flow/runs/{number}").json()["steps"]
        return {row["name"]: row["state"] for row in rows}


@pytest.fixture
def world(as_alice, tasks, home, monkeypatch):
    """Pipelines of alice's; what jobs send is recorded at once."""
    monkeypatch.setattr("tracking.metrics.recording.all_recorded", lambda job: True)
    return World(as_alice, tasks)
