"""Invalid messages on every subject are logged with the subject and dropped, and every service survives."""

from __future__ import annotations

import logging
import threading

import pytest

from aiops import logstore
from aiops.services.drain import WorkloadDrain
from aiops.services.registry import SERVICES, make
from aiops.training import requests
from aiops.wire import kv, subjects
from kernel.errors import Fault
from kernel.tests.nats_tools import until

from .test_wire_logs import Active

pytestmark = pytest.mark.django_db(transaction=True)

GARBAGE = b"\xff\xfe neither JSON nor protobuf"
IGNORED = {"gpu_service_running", "model_status", "workload_parameters"}  # the body is: see the table
HEARD = sorted({subject for name in SERVICES for subject in make(name).subjects})


@pytest.fixture
def everything(served, monkeypatch):
    """Run all services in one process, as `make up` does."""

    class Empty:
        def count(self, body):
            return 0

    monkeypatch.setattr(logstore, "get", Empty)
    services = [WorkloadDrain(Active()) if name == "drain" else make(name) for name in SERVICES]
    served(*services)
    return services


def test_invalid_messages_on_every_subject(everything, peer, caplog):
    assert set(subjects.SUBJECTS) >= set(HEARD)
    with caplog.at_level(logging.WARNING):
        for subject in HEARD:
            peer.publish(subject, GARBAGE)

        def untold():
            logged = " ".join(record.getMessage() for record in caplog.records)
            return [subject for subject in HEARD if subject not in IGNORED and subject not in logged]

        until(lambda: not untold(), words=lambda: str(untold()))
    assert peer.ask("gpu_service_running", b"check-up") == b"running"
    assert peer.ask("model_status", b"model_status") == b"not started"
    assert peer.ask("train_model", b"{}") == b"model reset"


@pytest.mark.parametrize("subject", sorted(IGNORED))
def test_where_the_body_is_ignored_any_body_is_answered(everything, peer, subject):
    for body in (b"", GARBAGE, b"{}"):
        assert peer.ask(subject, body)


def test_concurrent_requests_end_with_one_trained_watchlist(everything, peer):
    peer.listen("train")
    wanted = [{"c1": {"shop": [f"web{number}"]}} for number in range(4)]
    answers = []

    def ask(workloads):
        try:
            answers.append(requests.request_training(workloads))
        except Fault as problem:
            answers.append(problem.msg)

    threads = [threading.Thread(target=ask, args=(workloads,)) for workloads in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["training job submitted"] * 4
    last = kv.parameters()
    assert last.workloads in wanted
    until(lambda: kv.decision().get("uuid") == last.uuid or requests.state()["queued"])
    trained = [data for data in peer.wait("train") if last.uuid.encode() in data]
    assert len(trained) == 1 or requests.state()["queued"]
