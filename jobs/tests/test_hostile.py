"""Scripts that misbehave must not delay the jobs of other users."""

from __future__ import annotations

from datetime import timedelta

import pytest

from jobs import launching, reconcile
from jobs.models import Job

pytestmark = pytest.mark.django_db(transaction=True)

SLEEP = "import time\nwhile True: time.sleep(0.05)"


def test_a_null_character_in_the_log_is_replaced_in_the_reason(as_alice, submit, until):
    """PostgreSQL cannot store it: the job would never end, and would block its reconcile round."""
    submit("import sys\nsys.stdout.write('bad \\0\\n'); sys.stdout.flush()\nsys.exit(1)")
    later = submit("print('mine')", name="other")
    until(later, "finished")
    until(Job.objects.get(name="fit"), "error")
    reason = as_alice.call("get", "users/alice/jobs/fit").json()["reason"]
    assert reason.splitlines() == ["exit code 1", "bad \ufffd"]


def test_a_job_that_cannot_be_polled_does_not_block_others(submit, until, tasks, monkeypatch):
    first, second = submit(SLEEP), submit("pass", name="other")
    until(first, "running")
    look, wrong = launching.poll, []

    def trouble(job):
        if job.pk == first.pk:
            wrong.append(job.pk)
            raise ZeroDivisionError("a fault of ours")
        look(job)

    monkeypatch.setattr("jobs.launching.poll", trouble)
    until(second, "finished")
    assert wrong


def test_a_failing_sweep_does_not_block_the_next_step(submit, until, tasks, monkeypatch):
    def trouble():
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("jobs.launching.sweep", trouble)
    monkeypatch.setattr("jobs.reconcile.AGAIN_AFTER", timedelta(0))
    job = until(submit("pass"), "finished", clean=False)
    tasks.queue.clear()  # the message that would clean it is lost
    until(job, "finished")


def test_a_long_run_has_one_check_in_the_queue(as_alice, submit, until, tasks, monkeypatch):
    """Each reconcile round enqueues a check too; if each of them had a successor, their number would grow."""
    monkeypatch.setattr("jobs.reconcile.AGAIN_AFTER", timedelta(0))
    until(submit(SLEEP), "running")
    as_alice.call("put", "users/alice/jobs/fit:heartbeat", {"state": "finished", "progress": 100})
    assert tasks.waiting_after(reconcile.run) == [2] * 6  # the worker's own, and that of the last round
    as_alice.call("delete", "users/alice/jobs/fit")
    sizes = []
    while not sizes or tasks.queue:
        sizes += tasks.waiting_after(reconcile.run, 1)
    assert max(sizes) <= 4  # the same of what erases it, while both are at it
    assert not Job.objects.exists()
