"""Opening what a run can change: from an open folder downwards, and through no link.

A path says where a file was when it was looked at; a run may have put a link there since. What is opened once stays
what it is. Standard library only; also used by `runners.kubernetes.staging`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct

OPENAT2 = 437  # the same number on every architecture; https://man7.org/linux/man-pages/man2/openat2.2.html
NO_MAGICLINKS, NO_SYMLINKS, BENEATH = 0x02, 0x04, 0x08
# A kernel before 5.6, a filter of system calls, or a rename at the same moment.
INSTEAD = {errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG, errno.EAGAIN}
STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
KEEP = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LONGEST = 4096  # bytes of a path
_libc = ctypes.CDLL(None, use_errno=True)


def open_below(folder: int, relative: str, flags: int) -> int:
    """Open `relative` below an open folder; its last part may be a link only with O_PATH. Raises OSError."""
    if os.path.isabs(relative) or ".." in relative.split("/"):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), relative)
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    how = struct.pack("=QQQ", flags, 0, BENEATH | NO_SYMLINKS | NO_MAGICLINKS)
    path = ctypes.c_char_p(os.fsencode(relative))
    opened = _libc.syscall(OPENAT2, folder, path, how, ctypes.c_size_t(len(how)))
    if opened >= 0:
        return opened
    problem = ctypes.get_errno()
    if problem in INSTEAD:
        return in_steps(folder, relative, flags)
    raise OSError(problem, os.strerror(problem), relative)


def in_steps(folder: int, relative: str, flags: int) -> int:
    """Open `relative` as `open_below` does, a folder at a time."""
    if len(os.fsencode(relative)) >= LONGEST:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), relative)
    *above, name = [part for part in relative.split("/") if part not in ("", ".")] or ["."]
    here = os.dup(folder)
    try:
        for part in above:
            below = os.open(part, STEP, dir_fd=here)
            os.close(here)
            here = below
        return os.open(name, flags, dir_fd=here)
    finally:
        os.close(here)


def reference(path: str, root: str) -> int:
    """Open a path as a reference (O_PATH): a file or a folder, never a link.

    Below a folder of the storage root, such as `{root}/jobs`, no link is followed. That folder itself may be one, to
    another disk. Elsewhere are files of the machine, which no run can change. Raises OSError.
    """
    below_root = path.removeprefix(f"{root}/") if path.startswith(f"{root}/") else ""
    area, _slash, relative = below_root.partition("/")
    if not relative:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    top = os.open(f"{root}/{area}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        opened = open_below(top, relative, os.O_PATH)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, path) from None
    finally:
        os.close(top)
    if stat.S_ISLNK(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return opened


# --- owners and modes -------------------------------------------------------------------------------------------------
def reopened(opened: int) -> int:
    """Open the file or folder of a reference for reading. Raises OSError."""
    return os.open(f"/proc/self/fd/{opened}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def change(opened: int, how) -> None:
    """Call `how` with the descriptor and the status of an open file, and of everything below that `how.wants`."""
    info = os.fstat(opened)
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
        return
    top = reopened(opened)
    try:
        if how.wants(info):
            how(top, info)
        if stat.S_ISDIR(info.st_mode):
            for _path, folders, files, here in os.fwalk(".", dir_fd=top, follow_symlinks=False):
                for name in (*folders, *files):
                    _change_one(name, here, how)
    finally:
        os.close(top)


def _change_one(name: str, here: int, how) -> None:
    with contextlib.suppress(FileNotFoundError):
        info = os.lstat(name, dir_fd=here)
        if (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)) and how.wants(info):
            fd = os.open(name, KEEP, dir_fd=here)
            try:
                how(fd, os.fstat(fd))
            finally:
                os.close(fd)


class Give:
    """Changes the owner to the run's user: of our own files, or of `everyones`. A file with several links keeps its
    owner: it may be elsewhere too.
    """

    def __init__(self, uid: int, gid: int, everyones: bool = False):
        self.uid, self.gid, self.everyones = uid, gid, everyones

    def wants(self, info: os.stat_result) -> bool:
        ours = info.st_uid != self.uid if self.everyones else info.st_uid == os.geteuid()
        return ours and (info.st_nlink == 1 or stat.S_ISDIR(info.st_mode))

    def __call__(self, fd: int, info: os.stat_result) -> None:
        if self.wants(info):  # checked again: it may have been replaced
            os.fchown(fd, self.uid, self.gid)
