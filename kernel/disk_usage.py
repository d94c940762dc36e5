"""What a folder that users' programs have written takes on the disk, whatever they have made of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from . import storage


def of_folder(base: Path) -> int:
    """Return the bytes that a folder takes, folders included: blocks without holes, hard links once; 0 when it does
    not exist.

    It holds one descriptor at any depth, so that nothing is too deep to be counted: it goes up by `..`, and stops where
    that leads elsewhere, since a process has moved a folder meanwhile.
    """
    try:
        here = storage.open_folder(str(base), None)
    except OSError:
        return 0
    above: list[tuple[tuple[int, int], list[str]]] = []  # each folder on the way, and what is left to enter in it
    seen: set[int] = set()
    try:
        total, left = _entries(here, seen)
        while left or above:
            if not left:
                identity, left = above.pop()
                up = os.open("..", storage.FOLDER, dir_fd=here)
                os.close(here)
                here = up
                if _identity(here) != identity:
                    break
                continue
            try:
                below = storage.open_folder(left.pop(), here)
            except OSError:  # removed meanwhile
                continue
            above.append((_identity(here), left))
            os.close(here)
            here = below
            size, left = _entries(here, seen)
            total += size
    finally:
        os.close(here)
    return total


def _entries(here: int, seen: set[int]) -> tuple[int, list[str]]:
    """Return the bytes of an open folder and of the files in it, and the names of the folders in it."""
    total, folders = os.fstat(here).st_blocks * 512, []
    with os.scandir(here) as listing:
        for entry in listing:
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:  # removed meanwhile
                continue
            if stat.S_ISDIR(info.st_mode):
                folders.append(entry.name)
            elif info.st_nlink == 1 or info.st_ino not in seen:
                total += max(info.st_blocks * 512, storage.size_on_disk(info))
                if info.st_nlink > 1:
                    seen.add(info.st_ino)
    return total, folders


def _identity(folder: int) -> tuple[int, int]:
    info = os.fstat(folder)
    return info.st_dev, info.st_ino
