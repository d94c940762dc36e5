"""Waiting costs nothing and ends at once: with a signal, with the end of a process, or when the time is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from mlp.tests.patience import LIMIT_S
from supervision import servers
from supervision.part import Part
from supervision.waiting import Waiting

LONG_S = 10 * LIMIT_S


@pytest.fixture
def process():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_the_end_of_a_process_is_reported_once(process):
    waiting = Waiting()
    waiting.follow([process.pid])
    assert not waiting.wait(0)
    process.kill()
    assert waiting.wait(LONG_S)
    assert not waiting.wait(0)


def test_a_process_that_ends_meanwhile_ends_the_wait(process):
    waiting = Waiting()
    waiting.follow([process.pid])
    ended: list[bool] = []
    thread = threading.Thread(target=lambda: ended.append(waiting.wait(LONG_S)), daemon=True)
    thread.start()
    process.kill()
    thread.join(LIMIT_S)
    assert ended == [True]


def test_processes_that_are_not_followed_any_more_or_gone_already_are_not_waited_for(process):
    waiting = Waiting()
    waiting.follow([process.pid])
    waiting.follow([])
    process.kill()
    process.wait()
    assert not waiting.wait(0)
    waiting.follow([process.pid])
    assert not waiting.wait(0)


def test_a_signal_ends_the_wait_also_when_it_came_before():
    waiting = Waiting()
    before = signal.signal(signal.SIGUSR1, lambda *_: waiting.wake())
    try:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        assert waiting.wait(LONG_S) is False
        timer.join()
        assert waiting.wait(LONG_S) is False
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_part_may_allow_its_timers_to_be_late(tmp_path):
    """So that many of them wake it once. NATS does."""
    assert servers.nats().late_ms > 0
    for late_ms, shown in ((2, "2000000"), (0, "50000")):
        part = Part("late", ["/bin/cat", "/proc/self/timerslack_ns"], "servers", cwd=tmp_path, late_ms=late_ms)
        part.prepare(None)
        begin = f"from pathlib import Path; from supervision import launch; launch.become(Path({str(part.folder)!r}))"
        done = subprocess.run([sys.executable, "-c", begin], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == shown
