"""The installers' cache of each user: {root}/run/package-caches/{user's number}/{digest of the Python that it is for};
pip's, and uv's in `uv`.

What is downloaded or built once is not downloaded or built again by the user's next installation. The cache belongs to
one run at a time: it is moved into the environment's folder, so that the run's limit of disk space holds, and that uv
can link its files there: a link cannot lead to another mount. It is moved back when the run has ended. A run that
starts meanwhile begins with an empty one.

Users never share one: what a package's set-up writes there is installed later, and through a link it writes into what
is installed already. For the same reason an environment that other users have, too, is installed without it and is a
copy (`Need.is_shared`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from django.conf import settings

from kernel import disk_usage, storage
from kernel.errors import Refused

from . import store
from .store import Environment

NAME = ".cache"  # in the environment, as in program/install.py
MAX_FILES = 200_000
MAX_WALK = 4 * MAX_FILES
KEPT = 0.75  # of the limits, once one is exceeded
INDEX = ("uv/wheels-", "uv/simple-", "uv/interpreter-")  # what uv knows of the entries; small, and not used by links
POINTERS = "uv/wheels-*.rev"  # by which uv finds wheels of a folder, without a look whether their entries are there
DEPTH = 3  # names of an entry's path, such as uv/archive-v0/2C5TGdb, the files of one wheel: kept or removed as a whole


def top() -> Path:
    return storage.root() / "run" / "package-caches"


def lend(environment: Environment, base: str) -> None:
    """Move the cache of the environment's user into the folder of its installation.

    Several callers may do so at the same time, so what is there stays: the installation may have begun to use it.
    """
    with contextlib.suppress(OSError, Refused):  # another installation has it, or there is none
        environment.require_tree()
        os.rename(top() / str(environment.number) / base, environment.tree / NAME)


def take_back(environment: Environment, base: str) -> None:
    """Move the cache back from the folder of an installation that has ended; trimmed to what a user may keep. Where it
    is not kept it is removed.
    """
    place, kept = environment.tree / NAME, top() / str(environment.number) / base
    try:
        status = storage.status(environment.work, f"{store.ENV}/{NAME}")
    except Refused:  # a package's set-up has put a link there
        return
    if status is None or not stat.S_ISDIR(status.st_mode):
        return
    if base and settings.PACKAGES_CACHE_MIB and _trim(place, settings.PACKAGES_CACHE_MIB << 20):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # another caller has moved it, or that of another installation is there
            os.utime(place)  # the time of its last use
            os.rename(place, kept)
    storage.remove(place)


@dataclass
class _Entry:
    """A part of a cache; `used` is the Unix time of its last use: a link to a file changes that of its status."""

    size: int = 0
    files: int = 0
    used: float = 0.0


def _trim(folder: Path, limit: int) -> bool:
    """Remove the entries that were not used for longest where a cache is too large; return whether it is worth keeping.
    No run uses it.
    """
    entries: dict[str, _Entry] = {}
    pointers = []
    for count, (path, info) in enumerate(storage.files(folder, every=True)):
        if count == MAX_WALK:
            return False
        if fnmatch(path, POINTERS):
            pointers.append(path)
        entry = entries.setdefault("/".join(path.split("/")[:DEPTH]), _Entry())
        entry.size += storage.size_on_disk(info)
        entry.files += 1
        entry.used = max(entry.used, info.st_ctime)
    size, files = (sum(getattr(entry, name) for entry in entries.values()) for name in ("size", "files"))
    if size > limit or files > MAX_FILES:
        for path in pointers:
            (folder / path).unlink(missing_ok=True)
        for path, entry in sorted(entries.items(), key=lambda item: item[1].used):
            if path.startswith(INDEX):
                continue
            place = folder / path
            storage.remove(place) if place.is_dir() else place.unlink(missing_ok=True)
            size, files = size - entry.size, files - entry.files
            if size <= limit * KEPT and files <= MAX_FILES * KEPT:
                break
    return 0 < files <= MAX_FILES and size <= limit


def sizes() -> dict[int, int]:
    """Return the bytes on the disk of the caches, by the numbers of their users; without those that are lent."""
    return {number: disk_usage.of_folder(top() / str(number)) for number in _numbers(top().glob("*"))}


def lent() -> set[int]:
    """Return the numbers of the users whose cache an installation has now."""
    return set(_numbers(path.parents[3] for path in store.top().glob(f"*/*/work/{store.ENV}/{NAME}")))


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
