"""The mounts that a shim sees: those of the machine that runs have to do with.

bubblewrap reads the list of all mounts for each one that it makes, about forty for a run. A machine with containers has
hundreds, and then that takes longer than all else of a start. So the spawner leaves those that no run names in a mount
namespace of its own, after its first run. A run that does name something there is started where all of them are, and so
is every run after something that matters was mounted or removed on the machine, until the spawner has left the others
again. Only root can do this. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import time

CLONE_NEWNS = 0x00020000
MS_REC, MS_SLAVE = 0x4000, 0x80000
DETACH, NO_FOLLOW = 2, 8  # of umount2
AGAIN_S = 60.0  # between two times at which mounts are left, where they keep changing
# Of these the shim needs something beside what the spec names.
KEPT = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/sys", "/dev")
_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments) -> None:
    """Call a function of the C library. Raises OSError."""
    if getattr(_libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), name)


class Mounts:
    """What was left out, and the way back."""

    def __init__(self):
        self.tried, self.at = False, 0.0
        self.whole = self.table = -1  # the namespace with all mounts, and the open list of them
        self.known: set[str] = set()  # paths of which nothing was left out
        self.real: set[str] = set()  # the same, and where their links lead
        self.kept: list[tuple] = []  # mounts that were not left
        self.left: list[str] = []  # where there is a mount that was
        self.apart = False  # whether this is another namespace than the machine's
        self.stale = False  # something was mounted or removed since then that may matter

    def leave(self, spec: dict) -> None:
        """Drop the mounts that this spec's run has nothing to do with. Called by the spawner, for its shims, too."""
        again = self.stale and time.monotonic() - self.at > AGAIN_S
        if spec["isolation"] != "bwrap" or (self.tried and not again):
            return
        self.tried, self.at = True, time.monotonic()
        with contextlib.suppress(OSError):  # without the right to do so everything stays
            self._open()
            self.known = {*KEPT, *paths_of(spec)}
            self.real = self.known | {os.path.realpath(path) for path in self.known} | {os.path.dirname(__file__)}
            self._has_changed()
            self.kept, self.left = self._sorted()
            if not self.left:
                return
            call("unshare", CLONE_NEWNS)
            self.apart = self.stale = True  # until it is done
            # Nothing that happens here happens on the machine.
            call("mount", None, b"/", None, MS_REC | MS_SLAVE, None)
            for point in highest(self.left):  # each takes along what is below it
                with contextlib.suppress(OSError):
                    call("umount2", os.fsencode(point), DETACH | NO_FOLLOW)
            self.stale = False

    def _open(self) -> None:
        """Open the machine's namespace, or return there. Raises OSError."""
        if self.apart:
            self._return()
        elif self.whole < 0:
            self.table = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
            self.whole = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def look(self) -> None:
        """Check what was mounted or removed on the machine since then. Called by the spawner before each run."""
        if self.apart and not self.stale and self._has_changed():
            kept, self.left = self._sorted()
            self.stale = kept != self.kept

    def suit(self, folder: str) -> None:
        """Return to all mounts if something has changed, or if the run's folder may be on one that was left. Called by
        the shim. Raises OSError.
        """
        if self.apart and (self.stale or self._concern({folder, os.path.realpath(folder)})):
            self._return()

    def suit_spec(self, spec: dict) -> None:
        """Do the same if the run may have to do with what was left. Called by the shim. Raises OSError."""
        if self.apart and (spec["isolation"] != "bwrap" or self._is_about(spec)):
            self._return()

    def _return(self) -> None:
        call("setns", self.whole, CLONE_NEWNS)
        self.apart = self.stale = False

    def _is_about(self, spec: dict) -> bool:
        paths = paths_of(spec) - self.known
        if spec["root"] in self.known:  # nothing below it was left, and it is opened there without following links
            paths = {path for path in paths if not path.startswith(f"{spec['root']}/")}
        paths |= {os.path.realpath(path) for path in paths}
        return self._concern(paths)

    def _concern(self, paths: set[str]) -> bool:
        return any(concerns(point, paths) for point in self.left)

    def _has_changed(self) -> bool:
        """Return whether the list of all mounts has changed since this was asked last."""
        poller = select.poll()
        poller.register(self.table, select.POLLPRI)
        return bool(poller.poll(0))

    def _sorted(self) -> tuple[list[tuple], list[str]]:
        """Return the mounts that what is known may have to do with, and the places of the others."""
        kept, left = [], []
        for mount in mounts_of(self.table):
            if concerns(mount[0], self.real):
                kept.append(mount)
            else:
                left.append(mount[0])
        return kept, left


def paths_of(spec: dict) -> set[str]:
    """Return all paths of the machine that a spec names: what may be opened, mounted or executed, and more."""
    command = spec["bwrap"]
    bound = [command[at + 1] for at, option in enumerate(command) if option.startswith("--") and "bind" in option]
    named = [value for name, value in spec.items() if name not in {"bwrap", "environment", "inside"}]
    return _paths([command[:1], bound, named])


def _paths(value: object) -> set[str]:
    if isinstance(value, str):
        return {os.path.normpath(value)} if value.startswith("/") and value != "/" else set()
    if isinstance(value, dict):
        value = [each for name, each in value.items() if name != "target"]
    return set().union(*map(_paths, value)) if isinstance(value, list) else set()


def mounts_of(table: int) -> list[tuple]:
    """Return each mount of an open mountinfo, in their order: its place, then what is mounted there."""
    os.lseek(table, 0, os.SEEK_SET)
    lines = b""
    while data := os.read(table, 1 << 16):
        lines += data
    rows = [line.split() for line in lines.splitlines()]
    return [(_place(row[4]), *row[2:4], *row[row.index(b"-") + 1 :][:2]) for row in rows]


def _place(field: bytes) -> str:
    return os.fsdecode(field.decode("unicode_escape").encode("latin-1"))


def highest(mounted: list[str]) -> list[str]:
    """Return those that are below no other. The others are never looked up: a file system whose server does not answer
    would be asked for what is mounted below it.
    """
    every = set(mounted)
    return [point for point in mounted if not any(above in every for above in above_of(point))]


def above_of(path: str) -> list[str]:
    """Return the folders above a path, without the root."""
    parts = path.split("/")[1:]
    return ["/" + "/".join(parts[:end]) for end in range(1, len(parts))]


def concerns(point: str, paths: set[str]) -> bool:
    """Return whether one of the paths is at this mount, below it or above it."""
    return point == "/" or any(f"{path}/".startswith(f"{point}/") or point.startswith(f"{path}/") for path in paths)


SEEN = Mounts()
