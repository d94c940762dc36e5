"""A finished job and its log for the tests below."""

from __future__ import annotations

import pytest

from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put


@pytest.fixture
def job(alice) -> Job:
    job = put(Job, alice, "fit", "finished")
    (storage.job_dir("alice", "fit") / "log").mkdir(parents=True)
    return job


@pytest.fixture
def write(job):
    def write(data: bytes) -> Job:
        (storage.job_dir("alice", "fit") / "log" / "job.log").write_bytes(data)
        return job

    return write
