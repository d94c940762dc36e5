"""bubblewrap killed during its set-up: its inner process then waits for ever, and must not be waited for."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from mlp.tests.patience import LIMIT_S

from .confined import KINDS
from .helpers import end_of, eventually

ISOLATED = [kind for kind in KINDS if kind.startswith("bwrap")]
pytestmark = pytest.mark.parametrize("world", ISOLATED, indirect=True)
TRIES = 6  # most hit the moment between the making of the inner process and its release


def below(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def first_below(pid: int) -> int:
    """Return the first child process, polling as fast as possible."""
    end = time.monotonic() + LIMIT_S
    while not (pids := below(pid)):
        assert time.monotonic() < end
    return pids[0]


def begin(world, number: int) -> tuple[str, int, int]:
    """Start a run; return its name, its shim, and bubblewrap's outer process once that has started the inner one."""
    name = f"job-{number}-1"
    world.runner.start(world.spec("import time; time.sleep(600)", name=name))
    shim = json.loads((world.runner.folder / name / "begun.json").read_bytes())["shim"]
    outer = first_below(shim)
    first_below(outer)
    return name, shim, outer


def left(world, name: str) -> list[str]:
    """Return the processes whose command line names the run's folder."""
    mark, processes = os.fsencode(world.runner.folder / name), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark in line:
                processes.append(entry.name)
    return processes


def test_a_killed_outer_process(world):
    for number in range(TRIES):
        name, _, outer = begin(world, number)
        os.kill(outer, signal.SIGKILL)
        status = end_of(world.runner, name)
        assert (status.state, status.succeeded) == ("exited", False)
        eventually(lambda name=name: left(world, name) == [])


def test_a_killed_outer_process_and_shim(world):
    for number in range(TRIES):
        name, shim, outer = begin(world, number)
        os.kill(outer, signal.SIGKILL)
        os.kill(shim, signal.SIGKILL)
        assert end_of(world.runner, name).state in {"lost", "exited"}
        eventually(lambda name=name: left(world, name) == [])


def test_the_runner_continues(world):
    name, shim, outer = begin(world, 1)
    os.kill(outer, signal.SIGKILL)
    os.kill(shim, signal.SIGKILL)
    end_of(world.runner, name)
    world.runner.forget(name)
    assert world.answer("print(json.dumps(7))", name=name) == 7
