"""Removes the stored lines of a run that is deleted (kernel.trash.keeps_logs)."""

from __future__ import annotations

from aiops import logstore
from aiops.judging import rates, sessions, suppressions
from kernel import storage

from . import accept, follow


def forget_log(kind: str, owner: str, name: str) -> None:
    """Remove the lines that are stored under the name of a job (`jobs`) or application (`apps`).

    A job and an application of one name are one workload: the lines stay while there is the other one. Raises Fault
    while the store is unavailable.
    """
    if not any((storage.root() / other / owner / name).is_dir() for other in follow.RUNS if other != kind):
        rates.forget((accept.LOCAL, owner, name))
        sessions.forget((accept.LOCAL, owner, name))
        suppressions.forget((accept.LOCAL, owner, name))
        logstore.get().forget((accept.LOCAL, owner, name))
