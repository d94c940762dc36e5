"""Control groups that a killed process has left."""

from __future__ import annotations

import os
import time

from runners.shim import cgroup


def test_old_groups_of_tries_are_removed_and_all_others_stay(tmp_path):
    """Only a process that was killed while it tried leaves one; runs have groups of other names."""
    for name in ("try-7-1", "try-8-2", "5cc490babfcc872ab969bd8246fc010b"):
        (tmp_path / name).mkdir()
    for name in ("try-7-1", "5cc490babfcc872ab969bd8246fc010b"):
        os.utime(tmp_path / name, (time.time() - 100, time.time() - 100))
    cgroup.sweep(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["5cc490babfcc872ab969bd8246fc010b", "try-8-2"]
