"""The storage root, and the lock by which only one `up` uses it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from django.conf import settings

from .part import run_dir

HALF_RESTORED = "restore.json"  # in the root while a restore of it is not complete: operations/backup


def make_root() -> None:
    try:
        run_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
        run_dir().chmod(0o700)
    except OSError as problem:
        raise SystemExit(f"MLP_ROOT: {settings.MLP_ROOT} cannot be used: {problem.strerror}")


@contextlib.contextmanager
def lock() -> Iterator[bool]:
    """Return whether this is the only `up` of this root; while it is, its process id is in the file."""
    run_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(run_dir() / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield True
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder() -> int | None:
    try:
        return int((run_dir() / "up.lock").read_text())
    except (OSError, ValueError):
        return None
