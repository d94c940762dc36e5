"""The process whose forks become shims: what a start loads, and that no run depends on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runners import RunnerError, confine, local, spawning
from runners.local import LocalRunner
from runners.spawning import SPAWNER

from .helpers import alive, end_of, eventually, number_in, spec
from .test_local_races import WAIT, in_child, record

HELLO = "print('hello')"


@pytest.fixture
def runner(tmp_path):
    runner = LocalRunner(tmp_path / "runs")
    runner.start(spec(tmp_path, HELLO))
    assert end_of(runner).succeeded
    yield runner
    assert runner.stop_all(0) == []


def loaded(code: str) -> set[str]:
    """Return the modules that a new Python loads for this."""
    command = [sys.executable, "-I", "-S", "-X", "utf8", "-X", "importtime", "-c", code]
    said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stderr
    return {line.rsplit("|", 1)[1].strip() for line in said.splitlines() if line.startswith("import time:")}


def test_a_start_is_a_fork_and_no_pause(runner, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(spawning.subprocess, "Popen", lambda *_, **__: pytest.fail("a process of its own"))
        patch.setattr(local.time, "sleep", lambda seconds: pytest.fail(f"a pause of {seconds} s"))
        runner.start(spec(tmp_path, HELLO, name="job-2-1"))
    assert end_of(runner, "job-2-1").succeeded


def test_the_guard_loads_little_before_the_script_starts():
    mine = loaded(f"import sys; sys.path.insert(0, {str(confine.SHIM)!r}); import isolation") - loaded("pass")
    assert {"guard", "landlock", "syscalls"} <= mine
    assert not mine & {"json", "signal", "socket", "enum", "contextlib", "threading", "runpy"}
    assert len(mine) < 40, sorted(mine)


def test_runs_do_not_depend_on_it(runner, tmp_path):
    runner.start(spec(tmp_path, WAIT, name="job-2-1"))
    shim = record(tmp_path, "job-2-1")["shim"]
    words = Path(f"/proc/{shim}/cmdline").read_bytes().split(b"\0")
    assert {os.fsencode(confine.SHIM), os.fsencode(tmp_path / "runs" / "job-2-1")} <= set(words)
    SPAWNER._process.kill()
    SPAWNER._process.wait()
    runner.start(spec(tmp_path, HELLO, name="job-3-1"))
    assert end_of(runner, "job-3-1").succeeded
    assert (alive(shim), runner.poll("job-2-1").state) == (True, "running")


def test_one_that_hangs_is_replaced(runner, tmp_path, monkeypatch):
    stopped = SPAWNER._process.pid
    os.kill(stopped, signal.SIGSTOP)
    monkeypatch.setattr(spawning, "LIMIT_S", 0.0)
    with pytest.raises(RunnerError, match="could not be put on record"):
        runner.start(spec(tmp_path, HELLO, name="job-2-1"))
    assert not alive(stopped)
    monkeypatch.undo()
    runner.start(spec(tmp_path, HELLO, name="job-2-1"))
    assert end_of(runner, "job-2-1").succeeded


def test_it_ends_with_the_process_that_has_begun_it_and_the_runs_go_on(runner, tmp_path):
    def start_and_be_killed():
        runner.start(spec(tmp_path, WAIT, name="job-2-1"))
        (tmp_path / "spawner").write_text(f"{SPAWNER._process.pid}\n")
        os.kill(os.getpid(), signal.SIGKILL)

    mine = SPAWNER._process.pid
    os.waitpid(in_child(start_and_be_killed), 0)
    its = number_in(tmp_path / "spawner")
    eventually(lambda: not alive(its))
    assert alive(mine)
    assert runner.poll("job-2-1").state == "running"
