"""Fixtures of the AIOps tests: empty key-value buckets, a peer for the other side of the bus, services on a thread."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections import Counter

import pytest
from nats.js.errors import NotFoundError

import runners
from aiops.intake import known
from aiops.services.training_controller import TrainingController
from aiops.training import decisions
from aiops.wire import folders, payloads, subjects
from kernel import bus
from kernel.errors import Fault
from kernel.tests.nats_tools import Peer, Served, until
from mlp.tests.patience import LIMIT_S


@pytest.fixture(autouse=True)
def empty_buckets():
    """Delete the buckets of the test's NATS server before each test."""

    async def delete(client) -> None:
        for bucket in subjects.BUCKETS:
            stream, jetstream = f"KV_{bucket}", client.jetstream(timeout=LIMIT_S)
            with contextlib.suppress(NotFoundError):
                # Purged first: tests have read old values from a bucket that was made right after it was deleted.
                await jetstream.purge_stream(stream)
                await jetstream.delete_stream(stream)

    bus.call(delete, LIMIT_S)
    shutil.rmtree(folders.folder(), ignore_errors=True)


@pytest.fixture(autouse=True)
def ask_again():
    """Let the intake ask for verdicts again: the services of an earlier test have ended."""
    known.ask_again()


@pytest.fixture
def peer():
    """Return the other side of the wire. Call `peer.listen(subject)` first; messages are then in `peer.heard`."""
    peer = Peer()
    yield peer
    peer.close()


@pytest.fixture
def served():
    """Return `served(service, …)`, which serves them on real NATS until the test ends."""
    with contextlib.ExitStack() as stack:
        yield lambda *services: stack.enter_context(Served(*services)).wait()


@pytest.fixture
def handled(peer, caplog):
    """Return `handled(subject)`, which waits until a service has handled what came before on the subject: each in turn.

    It publishes a wrong message, and waits until that is logged.
    """

    def wait(subject: str) -> None:
        peer.publish(subject, b"last")
        until(lambda: any(f": {subject}: dropped" in record.getMessage() for record in caplog.records))

    return wait


@pytest.fixture
def rounds(monkeypatch):
    """Return `rounds(controllers)`, which waits until each has taken two more steps and looks, the second of which has
    begun after the call.
    """
    done, step, look = Counter(), decisions.step, TrainingController.poll

    def counted_step(send, gpu_runs) -> None:
        step(send, gpu_runs)
        done[gpu_runs.__self__, "step"] += 1

    def counted_look(controller) -> None:
        look(controller)
        done[controller, "poll"] += 1

    def wait(*controllers) -> None:
        enough = {
            (controller, kind): done[controller, kind] + 2 for controller in controllers for kind in ("step", "poll")
        }
        until(lambda: all(done[key] >= number for key, number in enough.items()))

    monkeypatch.setattr(decisions, "step", counted_step)
    monkeypatch.setattr(TrainingController, "poll", counted_look)
    return wait


@pytest.fixture
def no_run_left():
    yield
    runners.get().stop_all(grace=0)


def payload(number: int = 1, **fields) -> payloads.Payload:
    """Return a workload's line as the ingest plug-in sends it."""
    base = {
        "_id": f"id{number}",
        "cluster_id": "c1",
        "log": f"connected to 10.0.0.{number % 250}",
        "log_type": "workload",
        "pod_name": "web-1",
        "namespace_name": "shop",
        "deployment": "web",
        "service": "web",
    }
    return payloads.Payload(**{**base, **fields})


def js(data: bytes):
    return json.loads(data)


class Silence:
    """Asks the GPU controller, which answers until `begin`, and then not until `end`."""

    def __init__(self):
        self.asked, self.begun, self.over = threading.Event(), threading.Event(), threading.Event()
        self.begin, self.end = self.begun.set, self.over.set

    def ask(self, *arguments) -> bytes:
        if not self.begun.is_set():
            return bus.request(*arguments)
        self.asked.set()
        self.over.wait(2 * LIMIT_S)  # longer than anybody waits for an offer's answer
        raise Fault("no answer")


@pytest.fixture
def silence():
    silence = Silence()
    yield silence
    silence.end()
