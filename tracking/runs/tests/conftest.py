"""The runs of alice's that tests of the table find."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from jobs import lifecycle
from jobs.models import Job, RunMetric
from kernel import storage


def make_runs(alice) -> None:
    """Make four ended runs of alice's, oldest first: a and b finished, c failed, d cancelled; a queued one, e."""
    home = storage.home_dir("alice")
    (home / "train.py").write_text("")
    (home / "eval.py").write_text("")
    jobs = {}
    for place, name in enumerate("abcde"):
        jobs[name] = lifecycle.create_job(
            user=alice, by="alice", name=name, entry="eval.py" if name == "b" else "train.py", cpu=8,
            args=["--lr", ["0.1", "1e-2", "0.01", "adam", "2"][place], "--batch-size", "8"],
            tags={"baseline": ""} if name in "ab" else {"team": "vision"} if name == "c" else {},
            project="vision" if name in "ab" else None, group="sweep" if name == "c" else "",
        )  # fmt: skip
    now = timezone.now()
    ends = {"a": ("finished", "", 10), "b": ("finished", "", 600), "c": ("error", "exit code 1", 5),
            "d": ("error", "cancelled", 1)}  # fmt: skip
    for name, (state, reason, seconds) in ends.items():
        Job.objects.filter(name=name).update(
            state=state, reason=reason, outcome={"": "finished", "cancelled": "cancelled"}.get(reason, "failed"),
            reserved=False, started=now - timedelta(seconds=seconds), ended=now,
        )  # fmt: skip
    for name, loss in {"a": 0.05, "b": 0.5, "c": float("nan")}.items():
        RunMetric.objects.create(
            job=jobs[name], user=alice, name="loss", last=loss, min=loss, max=loss, count=1, step=1
        )  # fmt: skip


@pytest.fixture(scope="module")
def made_runs(keep):
    keep(make_runs)


@pytest.fixture
def runs(made_runs, alice):
    """Return the jobs that `make_runs` has made, by name."""
    return {job.name: job for job in Job.objects.filter(user=alice)}
