"""The mounts that a shim sees: those of the machine that runs have to do with.

bubblewrap reads the list of all mounts for each one that it makes, about forty for a run. A machine with containers has
hundreds, and then that takes longer than all else of a start. So the spawner leaves those that no run names in a mount
namespace of its own, once, after its first run. A run that does name something there is started where all of them are.
Only root can do this. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

CLONE_NEWNS = 0x00020000
MS_REC, MS_SLAVE = 0x4000, 0x80000
DETACH, NO_FOLLOW = 2, 8  # of umount2
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
        self.asked = False
        self.whole = -1  # the namespace with all mounts
        self.left: list[str] = []  # where there was a mount that is left out
        self.known: set[str] = set()  # paths of which nothing was left out

    def leave(self, spec: dict) -> None:
        """Leave what the run of this spec has nothing to do with. Called by the spawner, whose shims do as it does."""
        if self.asked or spec["isolation"] != "bwrap":
            return
        self.asked = True
        with contextlib.suppress(OSError):  # without the right to do so everything stays
            whole = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            call("unshare", CLONE_NEWNS)
            # What is mounted or removed on the machine from now on is so here, too, and never the other way round.
            call("mount", None, b"/", None, MS_REC | MS_SLAVE, None)
            self.whole, self.known = whole, {*KEPT, *paths_of(spec)}
            real = self.known | {os.path.realpath(path) for path in self.known} | {os.path.dirname(__file__)}
            self.left = [point for point in points() if not concerns(point, real)]
            for point in highest(self.left):  # each takes along what is below it
                with contextlib.suppress(OSError):
                    call("umount2", os.fsencode(point), DETACH | NO_FOLLOW)

    def suit(self, spec: dict) -> None:
        """Return to all mounts if the run may have to do with what was left. Called by the shim. Raises OSError."""
        if self.left and (spec["isolation"] != "bwrap" or self._is_about(spec)):
            call("setns", self.whole, CLONE_NEWNS)

    def _is_about(self, spec: dict) -> bool:
        paths = paths_of(spec) - self.known
        if spec["root"] in self.known:  # nothing below it was left, and it is opened there without following links
            paths = {path for path in paths if not path.startswith(f"{spec['root']}/")}
        paths |= {os.path.realpath(path) for path in paths}
        return any(concerns(point, paths) for point in self.left)


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


def points() -> list[str]:
    """Return where something is mounted, in the order of the mounts."""
    with open("/proc/self/mountinfo", "rb") as file:
        fields = [line.split()[4] for line in file]
    return [os.fsdecode(field.decode("unicode_escape").encode("latin-1")) for field in fields]


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
