"""Fixtures of the job tests: a script in alice's home, a submitted job, and running the workers until a state is
reached."""

from __future__ import annotations

import time

import pytest

import runners
from jobs import reconcile
from jobs.models import Job
from mlp.tests.patience import LIMIT_S, rest


@pytest.fixture
def script(home):
    """Write alice's `train.py`."""

    def write(text: str, name: str = "train.py") -> str:
        (home / name).write_text(text)
        return name

    return write


@pytest.fixture
def submit(as_alice, script, request):
    """Submit a job of alice's through REST and return its row."""
    if "tasks" in request.fixturenames:
        request.getfixturevalue("tasks")  # before the first message is sent, which it would miss

    def post(text: str = "print('hello')", name: str = "fit", **fields) -> Job:
        entry = script(text, "train.py" if name == "fit" else f"{name}.py")  # a job that starts reads its own script
        response = as_alice.call("post", "users/alice/jobs", {"name": name, "entry": entry, **fields})
        assert response.status_code == 201, response.content
        return Job.objects.get(name=name)

    return post


@pytest.fixture
def until(tasks):
    """Run the workers and the reconcile loop until the job is in that state and its run is cleaned up."""

    def wait(job: Job, state: str, *, clean: bool = True) -> Job:
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            tasks.run()
            reconcile.run()
            job.refresh_from_db()
            if job.state == state and not (clean and state != "running" and (job.run_name or job.reserved)):
                return job
            rest()
        raise AssertionError(f"the job is {job.state} ({job.reason}), not {state}, after {LIMIT_S} s")

    return wait


@pytest.fixture(autouse=True)
def no_run_left(request):
    yield
    if "tasks" in request.fixturenames:
        runners.get().stop_all(grace=0)
