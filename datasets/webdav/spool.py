"""Sweeps of the spool, the folder where nginx writes bodies, of what killed processes left there.

Called by datasets.reconcile, and by `make up` before its start and after its end.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from kernel import storage

from ..models import Dataset
from . import inflight, unfinished
from .admission import clear
from .paths import HOME

ARTIFACTS = "artifacts"  # where jobs.artifacts keeps the parts of large artifacts
KEPT = (unfinished.FOLDER, ARTIFACTS)  # uploads that go on, after a restart, too
SPOOL_KEEP_S = 600  # seconds; nginx drops a body that has not grown for two minutes


def sweep(older_than_s: float = 3600) -> int:
    """Remove what a killed nginx or application left in the spool; return how many files and folders.

    Also keeps the datasets alive whose uploads are still arriving.
    """
    inflight.keep_alive()
    deadline = time.time() - max(older_than_s, SPOOL_KEEP_S)
    removed = 0
    for path in storage.spool_dir().iterdir():
        if path.name in KEPT:
            continue
        with contextlib.suppress(FileNotFoundError):
            if path.name.startswith("trash-") or path.lstat().st_mtime < deadline:
                clear(path)
                removed += 1
    return removed


def clear_all() -> None:
    """Remove what killed processes left in the spool, however young; only while neither nginx nor a part that writes
    there is running. Unfinished files are kept: their uploads go on.
    """
    for path in storage.spool_dir().iterdir():
        if path.name not in KEPT:
            clear(path)


def stale_parts(older_than_s: float) -> list[Path]:
    """Return the unfinished files that cannot be finished: their dataset takes no more, or `.home`'s are old."""
    top, stale = storage.spool_dir() / unfinished.FOLDER, []
    for folder in sorted(top.glob("*/*")):
        if folder.name == HOME:
            deadline = time.time() - older_than_s
            stale += [path for path in folder.iterdir() if _modified(path) < deadline]
        elif not Dataset.objects.filter(user__username=folder.parent.name, name=folder.name, state="creating").exists():
            stale.append(folder)
    return stale


def sweep_parts(older_than_s: float) -> int:
    """Remove the unfinished files that cannot be finished; return how many."""
    stale = stale_parts(older_than_s)
    for path in stale:
        clear(path)
    return len(stale)


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return time.time()
