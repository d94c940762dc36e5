"""A file that holds disk space for PostgreSQL and supervisord. `up` deletes it when the disk is full, so that they can
write what they need to start and to work, and makes it again once there is room.

Before that, the platform itself stores nothing more (kernel.disk): only other programs can fill the disk so far.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from django.conf import settings

from kernel import disk

from .part import run_dir

SIZE = 64 << 20  # bytes: a few segments of PostgreSQL's log, and the files of a start
FULL = 16 << 20  # free bytes below which the disk counts as full


def path() -> Path:
    return run_dir() / "reserve"


def hold(say: Callable[[str], None]) -> None:
    """Give the space back when the disk is full, take it again when there is room. Errors are left to the next look."""
    with contextlib.suppress(OSError):
        free, held = disk.free().size, path().exists()
        if held and free < FULL:
            path().unlink()
            say(f"the disk of {settings.MLP_ROOT} is full: deleted {path().name}, so that the database can work")
        elif not held and free > (settings.DISK_MINIMUM_MIB << 20) + 2 * SIZE:
            _take()


def _take() -> None:
    draft = path().with_name(".reserve")
    try:
        with draft.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, SIZE)
        draft.replace(path())
    except OSError:
        draft.unlink(missing_ok=True)
        raise
