"""What is made ready for a run before its guard begins: folders that its own user may write, files that it may read,
the walls. Called by the shim, which may be root; everything is reached by descriptors and no link is followed, since
an earlier attempt may have laid any. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import stat

KEEP = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def prepare(spec: dict) -> None:
    """Raises OSError, which names the file."""
    os.makedirs(spec["tmp"], 0o700, exist_ok=True)
    if spec["uid"] is None:
        return
    for path in (spec["tmp"], spec["cwd"], *spec["own"]):
        _change(path, _Give(spec["uid"]))
    if spec["walls"] == "bwrap":
        for path in spec["open"]:
            _change(path, _OpenUp())


def _change(path: str, change) -> None:
    """Calls `change` with a descriptor and its facts for the file or folder and everything below it that it wants."""
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
    """Gives a file of ours to the run's user. One with several names stays ours: it may be somebody else's too."""

    def __init__(self, uid: int):
        self.uid = uid

    def wants(self, info: os.stat_result) -> bool:
        return info.st_uid == os.geteuid() and (info.st_nlink == 1 or stat.S_ISDIR(info.st_mode))

    def __call__(self, fd: int, info: os.stat_result) -> None:
        if self.wants(info):  # still: it may have been exchanged since
            os.fchown(fd, self.uid, self.uid)


class _OpenUp:
    """Lets everybody read: who gets so far has been let in by the walls, or by the folders above."""

    @staticmethod
    def bits(info: os.stat_result) -> int:
        return 0o555 if stat.S_ISDIR(info.st_mode) or info.st_mode & 0o100 else 0o444

    def wants(self, info: os.stat_result) -> bool:
        return info.st_uid == os.geteuid() and info.st_mode & self.bits(info) != self.bits(info)

    def __call__(self, fd: int, info: os.stat_result) -> None:
        if self.wants(info):
            os.fchmod(fd, stat.S_IMODE(info.st_mode) | self.bits(info))
