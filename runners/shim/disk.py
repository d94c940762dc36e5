"""The disk limit of a run, which no control group has, and other looks of the shim at what a run takes.

`Disk` is a thread of the shim. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator

import beneath
from limits import MIB
from reasons import Reason, message, text

ENTRY = 4096  # bytes that each file costs besides its content, so that a million empty ones count as well
SHARE_OF_A_FULL_DISK = 64 * MIB  # a run that has written less than this did not fill it
INODES = 10_000  # that are reserved, on a small disk a twentieth: more than the platform needs (kernel.disk)


def nearly_full(mib: int) -> Reason:
    """Return the reason of a run that was ended because the machine's disk fills up."""
    return message("the disk of the machine is nearly full, and this run has written %(written)s MiB", written=mib)


def few_inodes() -> Reason:
    """Return the reason of a run that was ended because the machine's disk can hold few more files."""
    return message("the disk of the machine is nearly full: it can hold few more files, and this run has made many")


class Unbounded(Exception):
    """The disk use of a folder cannot be measured; `reason` says why."""

    def __init__(self, reason: Reason):
        super().__init__(text(reason))
        self.reason = reason


class Disk(threading.Thread):
    """Measures what a run has added to its folders, and calls `stop(reason)` once when it exceeds the limit, or when
    one of the `others` returns a reason.

    The more files there are, the rarer it measures; but when the free disk space shrinks by as much as the run may
    still write, it measures at once. It looks at the free space the sooner, the less a fast disk needs to get there.
    """

    QUICK_S, LOOK_S, MAX_S, WORK_SHARE = 0.05, 0.5, 30, 10
    SPEED = 2 << 30  # bytes per second that a fast disk takes

    def __init__(self, folders: list[str], limit_mib: int, reserve_mib: int, stop: Callable[[Reason], None]):
        super().__init__(daemon=True)
        self.folders, self.limit, self.reserve, self.stop = folders, limit_mib * MIB, reserve_mib * MIB, stop
        self.pids: Callable[[], list[int]] = list
        self.before = self.measure() if limit_mib else 0
        self.grown = 0  # bytes, as of the last measurement
        self.others: list[Callable[[], Reason]] = []  # return a reason to stop the run, "" for none

    def run(self) -> None:
        """Measure until the run has to be stopped."""
        free = self.free()
        next_look = soonest = next_other = 0.0  # on the monotonic clock
        while True:
            rest = self.free()
            time.sleep(self.pause(free - rest, rest))
            now = time.monotonic()
            if now >= next_other:
                next_other = now + self.LOOK_S
                for reason in filter(None, (ask() for ask in self.others)):
                    return self.stop(reason)
            if not self.limit:
                continue
            rest = self.free()
            full = rest < self.reserve
            scarce = full or self.has_few_inodes()
            if now < soonest or (now < next_look and free - rest < self.limit - self.grown and not scarce):
                continue
            free = rest
            try:
                grown = self.grown = self.measure() - self.before
            except Unbounded as problem:
                return self.stop(problem.reason)
            if grown > self.limit:
                return self.stop(message("wrote more than %(limit)s MiB", limit=self.limit // MIB))
            if scarce and grown > SHARE_OF_A_FULL_DISK:
                return self.stop(nearly_full(grown // MIB) if full else few_inodes())
            ended = time.monotonic()
            work = (ended - now) * self.WORK_SHARE
            soonest = ended + min(self.LOOK_S, work)
            next_look = now + min(self.MAX_S, max(2 * self.LOOK_S, work))

    def pause(self, taken: int, rest: int) -> float:
        """Return the seconds until the next look at the free space: half of what a fast disk needs to the limit of the
        run or to the reserve. `taken` bytes were taken from the disk since the last measurement, `rest` are free.
        """
        if not self.limit or rest <= self.reserve:  # it may be full for other reasons than this run
            return self.LOOK_S
        left = min(self.limit - self.grown - max(0, taken), rest - self.reserve)
        return min(self.LOOK_S, max(self.QUICK_S, left / self.SPEED / 2))

    def free(self) -> int:
        """Return the free bytes of the disk."""
        room = os.statvfs(self.folders[0])
        return room.f_bavail * room.f_frsize

    def has_few_inodes(self) -> bool:
        """Return whether the disk can hold few more files. One that counts no inodes never has few."""
        room = os.statvfs(self.folders[0])
        return room.f_files > 0 and room.f_favail < min(INODES, room.f_files // 20)

    def measure(self) -> int:
        """Return the bytes that the folders and the run's deleted open files use. Raises Unbounded."""
        return sum(map(usage, self.folders)) + self.deleted()

    def deleted(self) -> int:
        """Return the bytes of files that are deleted but still open in the run."""
        disk = os.stat(self.folders[0]).st_dev
        sizes = {}
        for pid in self.pids():
            with contextlib.suppress(OSError):
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        info = os.stat(f"/proc/{pid}/fd/{fd}")
                        if info.st_nlink == 0 and info.st_dev == disk and stat.S_ISREG(info.st_mode):
                            sizes[info.st_ino] = info.st_blocks * 512
        return sum(sizes.values())


def usage(folder: str) -> int:
    """Return the bytes on the disk below the folder, hard links counted once. Raises Unbounded."""
    total, seen = 0, set()
    for info in entries(folder):
        if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
            if info.st_ino in seen:
                continue
            seen.add(info.st_ino)
        total += info.st_blocks * 512 + ENTRY
    return total


def entries(folder: str) -> Iterator[os.stat_result]:
    """Yield the status of everything below the folder. Raises Unbounded when it cannot be listed.

    The run goes on meanwhile: a folder that it has exchanged with a link is not entered.
    """
    try:
        top = os.open(folder, beneath.FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        stack = ["."]
        while stack:
            here = stack.pop()
            try:
                for info, name in _entries_of(top, here):
                    yield info
                    if stat.S_ISDIR(info.st_mode):
                        stack.append(f"{here}/{name}")
            except OSError as problem:
                if problem.errno == errno.ENAMETOOLONG:
                    raise Unbounded(message("folders nested too deeply, its disk use cannot be bounded"))
                if problem.errno == errno.EACCES:
                    raise Unbounded(message("a folder that cannot be read, its disk use cannot be bounded"))
                if problem.errno not in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
                    raise
    finally:
        os.close(top)


def _entries_of(top: int, folder: str) -> Iterator[tuple[os.stat_result, str]]:
    here = beneath.open_below(top, folder, beneath.FOLDER)
    try:
        with os.scandir(here) as listing:
            for entry in listing:
                with contextlib.suppress(FileNotFoundError):
                    yield entry.stat(follow_symlinks=False), entry.name
    finally:
        os.close(here)


def unnamed(pids: list[int]) -> int:
    """Return the bytes of the files in memory without a name (memfd) that the processes have open."""
    sizes = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    path = f"/proc/{pid}/fd/{fd}"
                    if os.readlink(path).startswith("/memfd:"):
                        info = os.stat(path)
                        sizes[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(sizes.values())


def oom_kills() -> int:
    """Return how often the kernel has killed for want of memory since the machine started; 0 when unknown."""
    with contextlib.suppress(OSError), open("/proc/vmstat", "rb") as file:
        for line in file:
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return 0
