"""Two processes with all services, killed alternately during a training: nothing is lost or done twice."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.db import connection

from aiops import lifecycle, logstore
from aiops.models import TrainingRun
from aiops.training import launching, requests
from aiops.training.tests.test_training import WORKLOADS, Store, settled, slow, working
from kernel import bus
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import watch
from resources.models import Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_run_left")]


COMMAND = [sys.executable, str(settings.BASE_DIR / "manage.py"), "aiops"]


@pytest.fixture
def replica():
    """Return a function that starts `manage.py aiops` with every service, on the test's own servers."""
    begun: list[subprocess.Popen] = []
    base, _, _name = os.environ["DATABASE_URL"].rpartition("/")
    environment = {**os.environ, "DATABASE_URL": f"{base}/{connection.settings_dict['NAME']}"}

    def start() -> subprocess.Popen:
        process = subprocess.Popen(COMMAND, env=environment, stderr=subprocess.PIPE, text=True)
        watch(process)
        begun.append(process)
        for line in process.stderr:
            if "serving" in line:
                return process
        raise AssertionError(f"ended with {process.wait()}")

    yield start
    for process in begun:
        process.kill()
        process.communicate()


@pytest.mark.long
def test_kill_9_of_every_process_in_turn(replica, tasks, peer, monkeypatch):
    Tenant.objects.filter(name="default").update(gpu=0)  # this machine may have none
    monkeypatch.setattr(logstore, "get", Store)
    monkeypatch.setattr(launching.RUNS, "spec", slow(launching.RUNS.spec))
    monkeypatch.setattr(launching, "AGAIN_AFTER_S", 0)  # the worker is this test, not the one that was sent for
    for subject in ("gpu_trainingjob_status", "gpu_service_training_internal", "model_update"):
        peer.listen(subject)
    work = working(tasks)
    first, second = replica(), replica()
    first.kill()
    assert requests.request_training(WORKLOADS) == "training job submitted"
    work(lambda: TrainingRun.objects.filter(percent=5).first())
    second.kill()
    third = replica()
    assert until(lambda: peer.ask("model_status", b"")) == b"training"
    assert bus.request("gpu_service_running", b"check-up", LIMIT_S) == b"running"
    run = TrainingRun.objects.get()
    lifecycle.fail(run.pk, "for a test", by="test")
    work(settled)
    until(lambda: peer.ask("model_status", b"") == b"not started")
    assert peer.wait("gpu_trainingjob_status", 2) == [b"JobStart", b"JobEnd"]
    assert len(peer.heard["gpu_service_training_internal"]) == 1
    third.terminate()
    assert third.wait(LIMIT_S) == 0
