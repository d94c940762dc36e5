"""What the AIOps tests share: empty keys, a peer that plays the other side, services on a thread."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable

import pytest

import runners
from aiops.wire import folders, payloads, subjects
from kernel import bus
from kernel.tests.nats_tools import Peer, Served


@pytest.fixture(autouse=True)
def no_keys():
    """The buckets of the test's NATS server are gone before each test."""
    for bucket in subjects.BUCKETS:
        with contextlib.suppress(Exception):  # not there
            bus.call(lambda client, bucket=bucket: client.jetstream().delete_stream(f"KV_{bucket}"))
    shutil.rmtree(folders.folder(), ignore_errors=True)


@pytest.fixture
def peer():
    """The other side of the wire. `peer.listen(subject)` first, then what came is in `peer.heard`."""
    made = Peer()
    yield made
    made.close()


@pytest.fixture
def served():
    """`served(service, …)` serves them on real NATS until the test ends."""
    with contextlib.ExitStack() as stack:
        yield lambda *services: stack.enter_context(Served(*services)).wait()


@pytest.fixture
def no_run_left():
    yield
    runners.get().stop_all(grace=0)


def payload(number: int = 1, **fields) -> payloads.Payload:
    """A workload's line as the ingest plug-in sends it."""
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


def quickest(ask: Callable[[], bytes], answer: bytes) -> float:
    """Seconds of the quickest of ten calls with that answer: a busy machine may delay one of them, not all."""
    found = 60.0
    for _ in range(10):
        begun = time.monotonic()
        assert ask() == answer
        found = min(found, time.monotonic() - begun)
    return found
