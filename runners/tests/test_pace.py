"""How fast a run may publish on the message bus: counted by the relay, which reads no more while the run is in debt."""

from __future__ import annotations

import json
import os

import pytest

from runners import networks
from runners.base import Endpoint
from runners.shim import pace

from .networking import OWN, PORTS, TALK

best = pytest.mark.parametrize("world", OWN[:1], indirect=True)


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])
    return now


def test_a_burst_is_free_and_then_the_rate_holds(clock):
    budget = pace.Pace(1000, 10)
    budget.take(1000 * pace.BURST_S, 0)
    assert budget.wait_s() == 0
    budget.take(500, 20)
    assert budget.wait_s() == 0.5
    budget.take(0, 10 * pace.BURST_S)
    assert budget.wait_s() == 2
    clock[0] += 2
    assert budget.wait_s() == 0
    clock[0] += 1000
    budget.take(1000 * pace.BURST_S + 1, 0)
    assert budget.wait_s() == 0.001, "no more than a burst is saved up"


def test_each_message_counts_however_it_is_cut(clock):
    sent = (
        b"CONNECT {}\r\nPING\r\nPUB a 3\r\nxyz\r\nhpub\tb 12 12\r\nNATS/1.0\r\n\r\n\r\nPub c 0\r\n\r\nPUBLISH\r\n" * 3
    )
    for cut in range(1, 60):
        budget = pace.Pace(1, 1000)
        meter = pace.Meter(budget)
        for at in range(0, len(sent), cut):
            meter.count(sent[at : at + cut])
        assert 1000 * pace.BURST_S - budget.left[1] == 9, cut
        assert pace.BURST_S - budget.left[0] == len(sent)


def test_of_an_encrypted_connection_as_many_count_as_can_be_in_it(clock):
    budget = pace.Pace(1, 1000)
    pace.Meter(budget).count(b"\x16\x03\x01" + bytes(317))
    assert 1000 * pace.BURST_S - budget.left[1] == 10


@best
def test_a_run_in_debt_waits_on_all_its_connections_and_loses_nothing(networked, echo, settings):
    settings.JOB_NATS_BYTES_S = 20_000
    networked.runner.endpoints = (Endpoint(networks.NATS, PORTS["gateway"], "127.0.0.1", echo.port),)
    code = f"""
import time
def open_one():
    link = socket.create_connection(('127.0.0.1', {PORTS["gateway"]})); return link, link.makefile('rb')
one, answers = open_one()
other, others = open_one()
line = b'x' * 99 + b'\\n'
began = time.monotonic()
one.sendall(line * 2300)  # 230 kB: the burst and 1.5 s
whole = [answers.readline() for _ in range(2300)]
other.sendall(b'last\\n')
last = others.readline()
took = time.monotonic() - began
one.shutdown(socket.SHUT_WR)
print(json.dumps([len(set(whole)), last.decode(), took, answers.read().decode()]))
"""
    kinds, last, took, rest = networked.answer(TALK + code, environment={"PATH": os.defpath})
    assert (kinds, last, rest) == (1, "echo 127.128.0.7 last\n", "end\n")
    assert took > 1.4, "it was read when the debt was paid"


def test_the_settings_are_the_rates_of_the_endpoint_to_the_bus(settings):
    settings.JOB_NATS_BYTES_S, settings.JOB_NATS_MESSAGES_S = 5000, 7
    endpoint = networks._endpoint(Endpoint(networks.NATS, 1, "127.0.0.1", 2), None)
    assert json.loads(json.dumps(endpoint))["rate"] == [5000, 7]
    assert "rate" not in networks._endpoint(Endpoint(networks.GATEWAY, 1, "127.0.0.1", 2), None)
