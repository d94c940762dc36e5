"""The spool, where nginx lays what arrives: what a kill has left there is swept. Called by datasets.reconcile."""

from __future__ import annotations

import contextlib
import time

from mlp.kernel import storage

from . import flight
from .room import clear

SPOOL_KEEP_S = 600  # a body still arriving grows at least every two minutes, nginx drops it else


def sweep(older_than_s: float = 3600) -> int:
    """Removes what a killed nginx or application left in the spool; returns how many. Called by the reconcile loop.

    It also keeps the datasets alive whose uploads still grow there.
    """
    flight.keep_alive()
    deadline = time.time() - max(older_than_s, SPOOL_KEEP_S)
    removed = 0
    for path in storage.spool_dir().iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.name.startswith("trash-") or path.lstat().st_mtime < deadline:
                clear(path)
                removed += 1
    return removed
