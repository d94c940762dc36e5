"""The processes of a run of this machine at a moment: which they are, whose, and by the numbers that the run sees."""

from __future__ import annotations

import json
import os

import pytest

from mlp.tests.tiers import later
from runners import confine
from runners.local import LocalRunner

from .helpers import eventually, spec

# Two threads, a child that works on, and one whose parent has ended; said in a file that is renamed into place.
FAMILY = """
import json, os, subprocess, sys, threading, time
command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
child = subprocess.Popen([*command, "child", "", ""])
between = f"import subprocess; print(subprocess.Popen({[*command, 'orphan']!r}, stdout=subprocess.DEVNULL).pid)"
orphan = int(subprocess.run([*command[:4], between], stdout=subprocess.PIPE).stdout)
name = "family-" + os.environ.get("LOCAL_RANK", "0")
open(name + ".part", "w").write(json.dumps([os.getpid(), child.pid, orphan]))
os.rename(name + ".part", name)
time.sleep(600)
"""


@pytest.fixture(params=["landlock", later("bwrap"), later("none")])
def runner(request, tmp_path):
    try:
        confinement = confine.decide(request.param)
    except confine.ImproperlyConfigured as problem:
        pytest.skip(str(problem))
    local = LocalRunner(tmp_path / "runs", confinement)
    yield local
    assert local.stop_all(0) == []


def told(folder, rank: int = 0) -> list[int]:
    path = folder / "work" / f"family-{rank}"
    eventually(path.exists)
    return json.loads(path.read_text())


def test_each_process_of_the_run_is_listed_and_none_of_the_platforms(runner, tmp_path):
    runner.start(spec(tmp_path, FAMILY, owner=3))
    script, child, orphan = told(tmp_path)
    found = {process.pid: process for process in eventually(lambda: runner.now("job-1-1").processes)}
    assert set(found) == {script, child, orphan}
    assert [found[pid].parent for pid in (script, child, orphan)] == [0, script, 0]
    assert [found[pid].words[-1] for pid in (child, orphan)] == ["child", "orphan"]
    assert found[script].words[1:4] == ("-I", "-S", "-c")
    assert (found[script].threads, found[child].threads) == (2, 1)
    assert all(0 < process.ram <= process.rss < 1 << 30 for process in found.values())
    assert found[script].age_s >= found[child].age_s >= 0
    assert found[script].cpu_s < 60
    assert len({process.key for process in found.values()}) == 3


def test_each_process_is_of_its_worker(runner, tmp_path):
    runner.start(spec(tmp_path, FAMILY, owner=3, workers=2))
    families = [set(told(tmp_path, rank)) for rank in (0, 1)]
    now = runner.now("job-1-1")
    assert [{process.pid for process in now.processes if process.worker == rank} for rank in (0, 1)] == families


def test_a_run_that_is_not_running_has_none_whatever_its_record_says(runner, tmp_path):
    assert runner.now("job-1-1").processes == ()
    runner.start(spec(tmp_path, FAMILY, owner=3))
    told(tmp_path)
    assert runner.stop_all(0) == []
    assert runner.now("job-1-1").processes == ()
    begun = tmp_path / "runs" / "job-1-1" / "begun.json"
    begun.write_text(json.dumps(json.loads(begun.read_text()) | {"shim": os.getppid()}))  # its number is used again
    assert runner.now("job-1-1").processes == ()
