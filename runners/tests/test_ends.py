"""The end of a run reaches the process that watches all runs at once, not only when it polls."""

from __future__ import annotations

import threading

from mlp.tests.patience import LIMIT_S
from runners.local import LocalRunner

from .helpers import end_of, eventually, spec


def test_the_end_of_a_run_wakes_who_watches(tmp_path):
    runner, ended = LocalRunner(tmp_path / "run/runs"), threading.Event()
    with runner.watch(ended.set):
        runner.start(spec(tmp_path, ""))
        assert ended.wait(LIMIT_S)
        assert runner.poll("job-1-1").succeeded
        ended.clear()
        runner.start(spec(tmp_path, "import signal; signal.pause()", name="job-2-1"))
        runner.stop("job-2-1", 0)
        assert ended.wait(LIMIT_S)
        assert runner.poll("job-2-1").state == "exited"


def test_who_watches_knows_which_runs_have_ended(tmp_path):
    """Also beside a shim of an older release, which writes a point and no name."""
    runner, names, ended = LocalRunner(tmp_path / "run/runs"), [], threading.Event()
    with runner.watch(ended.set, names.append):
        with open(tmp_path / "run/ends", "w") as pipe:
            pipe.write(".")
        runner.start(spec(tmp_path, ""))
        eventually(lambda: names)
    assert names == ["job-1-1"]


def test_a_run_ends_where_nobody_watches(tmp_path):
    runner = LocalRunner(tmp_path / "run/runs")
    with runner.watch(lambda: None):
        pass
    for number in range(3):
        runner.start(spec(tmp_path, "", name=f"job-{number}-1"))
        assert end_of(runner, f"job-{number}-1").succeeded
