"""The gate before everything that stores: while the disk is nearly full, writes are refused. What reads, deletes,
cancels or logs in goes on, so that users can make room, and PostgreSQL keeps what it needs to work.

Each entry point asks once: REST in kernel.views, pages in mlp.visitors.disk_gate, MLflow in mlflow_protocol.protocol,
the data service in datasets.webdav, log lines in aiops.intake.accept, jobs of schedules and sweeps in jobs.lifecycle,
the import from an MLflow server in models_app.transfer.memory. Consumers of the message bus wait, and acknowledge
nothing (kernel.consuming).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

from .errors import Fault
from .messages import Message

INODES = 1000  # that stay free
FULL = Message("the platform's disk is full")
LOW = Message("the disk is nearly full: nothing can be stored until there is room; deleting still works")
FREEING = frozenset(
    ("cancel", "clear", "delete", "drop", "pause", "reject", "remove", "revoke", "stop", "trash", "unalias", "untag")
)  # what the buttons of pages say that needs no room


class DiskFull(Fault):
    """The platform's own disk has no room. Not logged: a log of refusals would take what is left."""

    is_logged = False
    retry_after_s = 30

    def __init__(self, message: Message = LOW):
        super().__init__(message)


class Free(NamedTuple):
    """What unprivileged programs may still use of a file system. One that counts no inodes has any number."""

    size: int
    inodes: int


def free(place: Path | None = None) -> Free:
    """Return what is free on the disk of a folder, that of the storage root unless one is named."""
    statistics = os.statvfs(settings.MLP_ROOT if place is None else place)
    return Free(statistics.f_bavail * statistics.f_frsize, statistics.f_favail if statistics.f_files else INODES)


def room(place: Path | None = None) -> int:
    """Return how many bytes may be stored there; negative when the disk is nearly full."""
    available = free(place)
    return available.size - (settings.DISK_MINIMUM_MIB << 20) if available.inodes >= INODES else -1


def is_low() -> bool:
    """Return whether writes are refused."""
    return room() < 0


def require(coming: int = 0, place: Path | None = None) -> None:
    """Raise DiskFull unless `coming` bytes may be stored."""
    left = room(place)
    if left < 0:
        raise DiskFull
    if coming > left:
        raise DiskFull(FULL)
