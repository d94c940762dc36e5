"""Control groups: what a killed process has left, and the processor time of a run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from runners.shim import cgroup


def test_old_groups_of_tries_are_removed_and_all_others_stay(tmp_path):
    """Only a process that was killed while it tried leaves one; runs have groups of other names."""
    for name in ("try-7-1", "try-8-2", "5cc490babfcc872ab969bd8246fc010b"):
        (tmp_path / name).mkdir()
    for name in ("try-7-1", "5cc490babfcc872ab969bd8246fc010b"):
        os.utime(tmp_path / name, (time.time() - 100, time.time() - 100))
    cgroup.sweep(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["5cc490babfcc872ab969bd8246fc010b", "try-8-2"]


@pytest.fixture
def group():
    """Return a group of this machine's that limits the processor time."""
    folders = {kind: folder for kind, folder in cgroup.find().items() if kind == "cpu"}
    if not folders:
        pytest.skip("no control group can be made here")
    group = cgroup.Group(folders, f"test-{os.getpid()}-{time.monotonic_ns()}")
    yield group
    group.remove()


def cores(group: cgroup.Group) -> float:
    folder = Path(group.folders["cpu"])
    if group.unified:
        quota, period = (folder / "cpu.max").read_text().split()
    else:
        quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    return int(quota) / int(period)


def test_a_small_run_has_a_whole_core_until_it_has_started(group):
    group.make(64, 64, 0.1)
    assert cores(group) == cgroup.START_CPUS
    group.settles += 3600
    group.settle()
    assert cores(group) == cgroup.START_CPUS
    group.settles = time.monotonic()
    group.settle()
    assert (cores(group), group.settles) == (0.1, None)


def test_a_larger_run_never_has_more_than_it_asked_for(group):
    group.make(64, 64, 1.5)
    assert (cores(group), group.settles) == (1.5, None)
