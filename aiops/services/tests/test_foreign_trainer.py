"""A trainer that is not ours, such as Opni's: it takes an order, and reports only while it trains."""

from __future__ import annotations

import json
import time

import pytest

from aiops.services import training_controller
from aiops.services.training_controller import TrainingController
from aiops.wire import kv, lease, subjects
from kernel import keyvalue
from kernel.tests.nats_tools import until

pytestmark = pytest.mark.django_db(transaction=True)

UUID = "0f0e7a1c-6f6e-4c5e-9f0a-5a1d1c1b1a19"
WORKLOADS = {"c1": {"shop": ["web"]}}


@pytest.fixture
def gpu_side(peer, monkeypatch):
    monkeypatch.setattr(training_controller, "STEP_EVERY_S", 0.1)
    monkeypatch.setattr(training_controller, "LOOK_EVERY_S", 0.1)
    for subject in (subjects.GPU_TRAINING_INTERNAL, subjects.GPU_JOB_STATUS):
        peer.listen(subject)
    peer.listen(subjects.GPU_RUNNING, answer=lambda _data: b"running")
    return peer


def g3(workloads: dict) -> bytes:
    kv.put_parameters(UUID, workloads)
    return json.dumps({"uuid": UUID, "workloads": workloads}).encode()


def test_another_trainer_that_fetches_for_long_keeps_its_lease(served, gpu_side, monkeypatch):
    """It reports nothing while it fetches; only that it began, and that it answers."""
    monkeypatch.setattr(lease, "LEASE_S", 2.0)
    served(TrainingController())
    gpu_side.ask("train_model", g3(WORKLOADS))
    gpu_side.wait("gpu_service_training_internal")
    gpu_side.publish("model_update", b'{"status":"training"}')
    until(lambda: lease.current()["owner"] == lease.FOREIGN)
    assert lease.current()["until"] - time.time() > lease.FOREIGN_S / 2
    silent = {**lease.current(), "until": time.time() + 60}
    keyvalue.put_json(subjects.OWN_BUCKET, subjects.OWN_GPU, silent)
    until(lambda: lease.current()["until"] > silent["until"])
    assert gpu_side.ask("model_status", b"") == b"training"
    assert gpu_side.until_now("gpu_trainingjob_status") == [b"JobStart"]


def test_another_trainer_that_answers_but_never_reports_loses_its_lease_in_the_end(served, gpu_side, monkeypatch):
    lease.acquire(UUID, lease.FOREIGN, 1)
    monkeypatch.setattr(lease, "FETCH_MAX_S", 0.0)
    served(TrainingController())
    assert gpu_side.wait("gpu_trainingjob_status") == [b"JobEnd"]


def test_a_training_that_begins_while_the_facts_are_read_is_one_of_them(monkeypatch):
    controller, read = TrainingController(lambda *_: b"running"), lease.current

    def before_it() -> dict:
        found = read()
        if not controller.begun:
            controller.job_status(b"JobStart")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(lease, "current", before_it)
        controller.poll()
        assert controller.busy
    controller.job_status(b"JobEnd")
    controller.poll()
    assert not controller.busy
    acquire, seen = lease.acquire, []

    def meanwhile(*given) -> bool:
        controller.poll()  # the lease is still free
        seen.append(controller.busy)
        return acquire(*given)

    monkeypatch.setattr(lease, "acquire", meanwhile)
    controller.job_status(b"JobStart")
    assert seen == [True]
    controller.poll()
    assert controller.busy
    controller.job_status(b"JobEnd")
    controller.poll()
    assert not controller.busy
