"""SIGKILL while a tenant's own model is requested, trained and activated: nothing acknowledged is lost, nothing half
written judges, and the training behind it goes on.

A process of its own does one step and is killed right before a named call; the next one is this process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connection

import runners
from aiops import lifecycle, logstore
from aiops.intake import accept
from aiops.models import ModelVersion, TrainingRun
from aiops.tests.test_own_models import TEXT, teams, watch
from aiops.training import launching, own_training, versions
from aiops.training.tests.test_training import begun, kill_all_of, no_gpu, slow, stand_in, working
from aiops.wire import folders, lease
from kernel import storage
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from opnilog.store import DRAFT, Versions, verify

__all__ = ["no_gpu", "teams"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_run_left")]

KILLED = """
import os, signal
from accounts.models import User
from aiops import lifecycle
from aiops.models import TrainingRun
from aiops.training import launching, own_training, training_data, versions
from aiops.training.tests.test_training import stand_in
from kernel import after_commit, storage
from opnilog import store
launching.RUNS.spec = stand_in(launching.RUNS.spec)
def kill(*_arguments, **_named): os.kill(os.getpid(), signal.SIGKILL)
{where} = kill
"""
REQUEST = 'own_training.request(User.objects.get(username="anna"), "red")'
LAUNCH = "launching.launch({pk})"
FOLLOW = "launching.poll(TrainingRun.objects.get(pk={pk}))"
SETTLE = "launching.settle({pk})"
MOMENTS = {  # the steps that are done before, the step that is killed, and the call before which
    "it is acknowledged, and no task is sent": (0, REQUEST, "after_commit.broker"),
    "it holds the lease, and has not left the queue": (1, LAUNCH, "lifecycle.leave_queue"),
    "it has left the queue": (1, LAUNCH, "lifecycle.order_run"),
    "its lines are half written": (1, LAUNCH, "training_data.os.fsync"),
    "its run is started, and not recorded": (1, LAUNCH, "lifecycle.note_start"),
    "its model is half copied": (2, FOLLOW, "store._sync"),
    "its model is copied, and has no row": (2, FOLLOW, "lifecycle.complete"),
    "its version serves by the row only": (2, FOLLOW, "versions.follow"),
    "its end is not announced": (3, SETTLE, "launching._announce"),
    "its end is announced, and not recorded": (3, SETTLE, "lifecycle.note_sent"),
}


def killed(step: str, where: str) -> None:
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path="/" + connection.settings_dict["NAME"]).geturl()
    environment = {
        **os.environ, "DATABASE_URL": database, "MLP_ROOT": str(storage.root()), "MLP_SECRET_KEY": settings.SECRET_KEY,
        "NATS_URL": settings.NATS_URL, "REDIS_URL": settings.REDIS_URL,
    }  # fmt: skip
    code = KILLED.format(where=where) + step
    command = [sys.executable, "manage.py", "shell", "--no-imports", "-c", code]
    done = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, timeout=LIMIT_S)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]


def check_versions(tenant) -> None:
    """Check that what judges, if anything, is complete."""
    there = Versions(folders.models(), tenant.pk)
    if serving := there.serving():
        verify(there.folder_of(serving))
    for version in there.all():
        verify(there.folder_of(version))


@pytest.fixture
def lines(teams, monkeypatch):
    watch("anna", "bert")
    logstore.get().append(
        [
            accept.line(f"{TEXT} {n}", id=f"{name}{n}", namespace=name, deployment="fit")
            for name in ("anna", "bert")
            for n in range(20)
        ]
    )
    monkeypatch.setattr(launching.RUNS, "spec", stand_in(launching.RUNS.spec))
    monkeypatch.setattr(launching, "AGAIN_AFTER_S", 0.2)


@pytest.mark.parametrize("moment", few(MOMENTS, 2, 1))
def test_a_kill(teams, tasks, lines, moment):
    done, step, where = MOMENTS[moment]
    work = working(tasks)
    run = own_training.request(teams.anna, "red") if done else None
    if done >= 2:
        launching.launch(run.pk)
        work_until_exited(run)
    if done == 3:
        launching.poll(TrainingRun.objects.get(pk=run.pk))
    tasks.queue.clear()
    killed(step.format(pk=run.pk if run else ""), where)
    check_versions(teams.red)
    run = TrainingRun.objects.get(tenant=teams.red)
    behind = own_training.request(teams.bert, "blue")
    work(lambda: TrainingRun.objects.filter(announced=True, job_end_sent=True, run_name="").count() == 2)
    check_versions(teams.red)
    for each, tenant in ((run, teams.red), (behind, teams.blue)):
        each.refresh_from_db()
        assert each.state == "completed", each.reason
        row = ModelVersion.objects.get(tenant=tenant)
        assert row.serving
        assert Versions(folders.models(), tenant.pk).serving() == row.version
    assert not lease.is_live(lease.current())
    versions.files().sweep(-1)
    assert [path for path in folders.models().iterdir() if path.suffix == DRAFT] == []
    versions.prune()
    assert len(versions.files().all()) == 2  # none is left that has no row


def work_until_exited(run: TrainingRun) -> None:
    name = TrainingRun.objects.get(pk=run.pk).run_name
    until(lambda: runners.get().poll(name).state == "exited", LIMIT_S)


@pytest.mark.long
def test_a_trainer_killed_with_its_watcher_begins_again_and_the_next_one_follows(teams, tasks, lines, monkeypatch):
    work = working(tasks)
    spec = launching.RUNS.spec
    monkeypatch.setattr(launching.RUNS, "spec", slow(spec))
    run = own_training.request(teams.anna, "red")
    begun(work)
    behind = own_training.request(teams.bert, "blue")
    monkeypatch.setattr(launching.RUNS, "spec", spec)
    run.refresh_from_db()
    kill_all_of(run.run_name)
    work(lambda: TrainingRun.objects.filter(announced=True, run_name="").count() == 2)
    run.refresh_from_db()
    behind.refresh_from_db()
    assert (run.state, run.attempt, behind.state) == ("completed", 2, "completed")
    assert lifecycle.serving(teams.red.pk).run == run
