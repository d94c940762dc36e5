"""Recovery of the training controller after its predecessor was killed between two messages; on real NATS."""

from __future__ import annotations

import json

import pytest

from aiops import logstore
from aiops.training import decisions
from aiops.wire import kv, lease

pytestmark = pytest.mark.django_db(transaction=True)

UUID = "0f0e7a1c-6f6e-4c5e-9f0a-5a1d1c1b1a19"
WORKLOADS = {"c1": {"shop": ["cart", "web"]}}
OLD = {"c0": {"old": ["one"]}}
TRAIN, TOLD = "train", "model_workload_parameters"


class Wire:
    """Records messages by subject; the sender is killed right after the first message of the subject `last`."""

    def __init__(self, last: str, taken: bool):
        self.last, self.taken, self.sent = last, taken, []

    def __call__(self, messages) -> None:
        for subject, data in messages:
            self.sent.append(subject)
            if subject == TRAIN and self.taken:
                assert lease.acquire(json.loads(data)["parameters"]["uuid"], "another controller")
            if subject == self.last and self.sent.count(subject) == 1:
                raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    class Empty:
        def count(self, body):
            return 0

    monkeypatch.setattr(logstore, "get", Empty)
    kv.ensure()
    kv.put_watched(OLD)
    kv.put_parameters(UUID, WORKLOADS)


def step(wire: Wire) -> None:
    decisions.step(wire, lambda: True)


@pytest.mark.parametrize("last", [TRAIN, TOLD])
def test_the_watchlist_is_published_though_the_controller_was_killed_after_train(monkeypatch, last):
    """Otherwise services that filter or cache by the watchlist would keep the old one."""
    wire = Wire(last, taken=True)
    with pytest.raises(KeyboardInterrupt):
        step(wire)
    before = list(wire.sent)
    step(wire)
    assert wire.sent == before  # of another replica, which may be about to tell it
    monkeypatch.setattr(decisions, "PUBLISHED_WITHIN_S", 0)
    for _ in range(3):
        step(wire)
    assert wire.sent == [*before, TOLD]
    assert kv.watched() == WORKLOADS
    assert kv.decision()["state"] == "done"


def test_an_order_that_no_controller_takes_is_sent_again_with_the_watchlist(monkeypatch):
    wire = Wire("", taken=False)
    step(wire)
    step(wire)
    assert wire.sent == [TRAIN, TOLD]
    monkeypatch.setattr(decisions, "TAKEN_WITHIN_S", 0)
    wire.taken = True
    step(wire), step(wire), step(wire)
    assert wire.sent == [TRAIN, TOLD] * 2
    assert kv.decision()["state"] == "done"
