"""Removes the stored lines of a run that is deleted (kernel.trash.keeps_logs)."""

from __future__ import annotations

from aiops import logstore
from kernel import storage

from . import accept, follow


def forget_log(owner: str, name: str) -> None:
    """Remove the lines that are stored under the name of a job or application whose files are gone.

    A job and an application of one name are one workload: the lines stay until both are gone. Raises Fault while the
    store is away.
    """
    if not any((storage.root() / kind / owner / name).is_dir() for kind in follow.RUNS):
        logstore.get().forget((accept.LOCAL, owner, name))
