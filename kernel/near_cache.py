"""A cache in the process itself, before the one in Valkey, which all processes of a machine drop at the same moment.

A round trip to Valkey takes longer than all else that is done to send a request on to an application. What is kept here
is used only while the epoch is the one from before it was read: eight random bytes in a file that all processes of the
platform have in their memory. Who changes an entry in Valkey changes the epoch next and commits then, so that nobody
uses what has been revoked; there is no message that could be late or lost.

On Kubernetes, where the parts have no memory in common, nothing is kept.
"""

from __future__ import annotations

import mmap
import os
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

from django.conf import settings

KEPT_S = 5.0  # at most, also where the file has been deleted meanwhile
MOST = 2_000  # entries
LENGTH = 8  # bytes


class Kept(NamedTuple):
    """An entry: the epoch from before it was read, until when it is good on the monotonic clock, and the row."""

    epoch: bytes
    until: float
    row: dict


_kept: dict[str, Kept] = {}


@cache
def path() -> Path:
    """Return the file with the epoch."""
    return settings.MLP_ROOT / "run" / "epoch"


def epoch() -> bytes | None:
    """Return the epoch now, which is read before what is to be kept; None where nothing can be kept."""
    page = _page(path()) if settings.MLP_RUNNER == "local" else None
    return page[:LENGTH] if page is not None else None


def get(key: str) -> dict | None:
    """Return the row that is kept under the key and has not been dropped. It must not be changed."""
    kept = _kept.get(key)
    if kept is None or kept.epoch != epoch() or kept.until < time.monotonic():
        return None
    return kept.row


def keep(key: str, row: dict, since: bytes | None) -> None:
    """Keep a row that was read from Valkey in this epoch or later."""
    if since is None:
        return
    if len(_kept) >= MOST:
        _kept.clear()
    _kept[key] = Kept(since, time.monotonic() + KEPT_S, row)


def drop() -> None:
    """Let all processes drop what they keep. Raises OSError."""
    if settings.MLP_RUNNER == "local":
        _begin_epoch(path())


@cache
def _page(file: Path) -> mmap.mmap | None:
    try:
        if not file.exists():
            _begin_epoch(file)
        with file.open("rb") as opened:
            return mmap.mmap(opened.fileno(), LENGTH, mmap.MAP_SHARED, mmap.PROT_READ)
    except (OSError, ValueError):  # there is no such folder yet: this process keeps nothing
        return None


def _begin_epoch(file: Path) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, os.urandom(LENGTH), 0)
    finally:
        os.close(descriptor)
