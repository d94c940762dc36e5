"""The spool, where nginx lays what arrives: what a kill has left there is swept. Called by datasets.reconcile."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from kernel import storage

from ..models import Dataset
from . import inflight, unfinished
from .admission import clear
from .paths import HOME

SPOOL_KEEP_S = 600  # a body still arriving grows at least every two minutes, nginx drops it else


def sweep(older_than_s: float = 3600) -> int:
    """Removes what a killed nginx or application left in the spool; returns how many. Called by the reconcile loop.

    It also keeps the datasets alive whose uploads still grow there.
    """
    inflight.keep_alive()
    deadline = time.time() - max(older_than_s, SPOOL_KEEP_S)
    removed = 0
    for path in storage.spool_dir().iterdir():
        if path.name == unfinished.FOLDER:
            continue
        with contextlib.suppress(FileNotFoundError):
            if path.name.startswith("trash-") or path.lstat().st_mtime < deadline:
                clear(path)
                removed += 1
    return removed


def stale_parts(older_than_s: float) -> list[Path]:
    """Unfinished files that nobody can finish: their dataset takes no more uploads, or `.home`'s are too old."""
    top, found = storage.spool_dir() / unfinished.FOLDER, []
    for folder in sorted(top.glob("*/*")):
        if folder.name == HOME:
            deadline = time.time() - older_than_s
            found += [path for path in folder.iterdir() if _modified(path) < deadline]
        elif not Dataset.objects.filter(user__username=folder.parent.name, name=folder.name, state="creating").exists():
            found.append(folder)
    return found


def sweep_parts(older_than_s: float) -> int:
    """Removes them; returns how many. Called by the reconcile loop."""
    stale = stale_parts(older_than_s)
    for path in stale:
        clear(path)
    return len(stale)


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:
        return time.time()
