"""pip's cache of each user: {root}/run/package-caches/{user's number}/{digest of the Python that it is for}.

What is downloaded or built once is not downloaded or built again by the user's next installation. The cache belongs to
one run at a time: it is moved into the run's folder, so that the run's limit of disk space holds, and moved back when
the run has ended. A run that starts meanwhile begins with an empty one. Users never share one: what a package's set-up
writes there is installed later.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings

from kernel import disk_usage, storage

from . import store
from .store import Environment

NAME = ".cache"  # in the folder of a run
MAX_FILES = 100_000
KEPT = 0.75  # of the limit, once it is exceeded


def top() -> Path:
    return storage.root() / "run" / "package-caches"


def lend(environment: Environment, base: str) -> None:
    """Move the cache of the environment's user into the folder of its installation."""
    place = environment.work / NAME
    storage.remove(place)
    with contextlib.suppress(OSError):  # another installation has it, or there is none
        os.rename(top() / str(environment.number) / base, place)


def take_back(environment: Environment, base: str) -> None:
    """Move the cache back from the folder of an installation that has ended; trimmed to what a user may keep."""
    place, kept = environment.work / NAME, top() / str(environment.number) / base
    status = storage.status(environment.work, NAME)
    if status is None or not stat.S_ISDIR(status.st_mode) or not base or not settings.PACKAGES_CACHE_MIB:
        return
    if not _trim(place, settings.PACKAGES_CACHE_MIB << 20):
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    os.utime(place)  # the time of its last use
    with contextlib.suppress(OSError):  # that of another installation is there already
        os.rename(place, kept)


def _trim(folder: Path, limit: int) -> bool:
    """Remove the oldest files where a cache is too large; return whether it is worth keeping. No run uses it."""
    files = []
    for path, info in storage.files(folder, every=True):
        if len(files) == MAX_FILES:
            return False
        files.append((info.st_mtime, storage.size_on_disk(info), path))
    total = sum(size for _time, size, _path in files)
    if total > limit:
        for _time, size, path in sorted(files):
            (folder / path).unlink(missing_ok=True)
            total -= size
            if total <= limit * KEPT:
                break
    return bool(files)


def sizes() -> dict[int, int]:
    """Return the bytes on the disk of the caches, by the numbers of their users; without those that are lent."""
    return {number: disk_usage.of_folder(top() / str(number)) for number in _numbers(top().glob("*"))}


def lent() -> set[int]:
    """Return the numbers of the users whose cache an installation has now."""
    return set(_numbers(path.parent.parent.parent for path in store.top().glob(f"*/*/work/{NAME}")))


def empty(number: int) -> int:
    """Remove the cache of a user, but not one that is lent; return how many bytes of the disk that has freed.

    It is moved away first: an installation that starts meanwhile has all of it or nothing. `evict` removes what is left
    where this is interrupted.
    """
    place = top() / f".{secrets.token_hex(8)}"
    try:
        os.rename(top() / str(number), place)
    except FileNotFoundError:
        return 0
    size = disk_usage.of_folder(place)
    storage.remove(place)
    return size


def _numbers(folders: Iterable[Path]) -> list[int]:
    return sorted(int(folder.name) for folder in folders if folder.name.isdecimal())


def evict(active: set[int]) -> None:
    """Remove the caches that were not used for long or whose user is gone, and of each user all but the newest."""
    oldest = time.time() - settings.PACKAGES_DAYS * 86400
    for folder in top().glob("*"):
        caches = sorted(folder.glob("*"), key=lambda path: path.lstat().st_mtime, reverse=True)
        for place, cache in enumerate(caches):
            unwanted = not settings.PACKAGES_CACHE_MIB or not folder.name.isdecimal() or int(folder.name) not in active
            if place or unwanted or cache.lstat().st_mtime < oldest:
                storage.remove(cache)
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()
