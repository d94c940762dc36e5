"""File owners and modes, prepared before the guard of a run starts, so that the run's user can work with its files.

Called by the shim, which may be root: files are opened by descriptors and no link is followed, since an earlier attempt
may have created any. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import stat

KEEP = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def prepare(spec: dict) -> None:
    """Prepare the files that the spec names. Raises OSError, which names the file."""
    os.makedirs(spec["tmp"], 0o700, exist_ok=True)
    if spec["uid"] is None:
        return
    for path in (spec["tmp"], spec["cwd"], *spec["own"]):
        _change(path, _Give(spec["uid"]))
    if spec["walls"] == "bwrap":
        for path in spec["open"]:
            _change(path, _OpenUp())


def _change(path: str, change) -> None:
    """Call `change` with the descriptor and the status of the path and of everything below that `change.wants`."""
    try:
        top = os.open(path, os.O_RDONLY | KEEP)
    except FileNotFoundError:
        return
    try:
        info = os.fstat(top)
        if change.wants(info):
            change(top, info)
    finally:
        os.close(top)
    if not stat.S_ISDIR(info.st_mode):
        return
    for _, folders, files, here in os.fwalk(path, follow_symlinks=False):
        for name in [*folders, *files]:
            with contextlib.suppress(FileNotFoundError):
                info = os.lstat(name, dir_fd=here)
                if (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)) and change.wants(info):
                    fd = os.open(name, os.O_RDONLY | KEEP, dir_fd=here)
                    try:
                        change(fd, os.fstat(fd))
                    finally:
                        os.close(fd)


class _Give:
    """Changes the owner to the run's user. A file with several links keeps its owner: it may be elsewhere too."""

    def __init__(self, uid: int):
        self.uid = uid

    def wants(self, info: os.stat_result) -> bool:
        return info.st_uid == os.geteuid() and (info.st_nlink == 1 or stat.S_ISDIR(info.st_mode))

    def __call__(self, fd: int, info: os.stat_result) -> None:
        if self.wants(info):  # checked again: it may have been replaced
            os.fchown(fd, self.uid, self.uid)


class _OpenUp:
    """Makes files readable for all users: the isolation, or the folders above, decide who can reach them."""

    @staticmethod
    def bits(info: os.stat_result) -> int:
        return 0o555 if stat.S_ISDIR(info.st_mode) or info.st_mode & 0o100 else 0o444

    def wants(self, info: os.stat_result) -> bool:
        return info.st_uid == os.geteuid() and info.st_mode & self.bits(info) != self.bits(info)

    def __call__(self, fd: int, info: os.stat_result) -> None:
        if self.wants(info):
            os.fchmod(fd, stat.S_IMODE(info.st_mode) | self.bits(info))
