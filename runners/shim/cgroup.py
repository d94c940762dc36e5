"""Control groups: the kernel's limits on memory, processes and CPU of a whole run. Version 2, or version 1 on machines
that still have it.

`runners.confine` calls `find` once; the shim makes a group for its run and removes it at the end. A process joins by
writing "0" into a file that a privileged process has opened, so a run needs no privileges of its own. Standard library
only. Source: https://docs.kernel.org/admin-guide/cgroup-v2.html, and cgroup-v1 beside it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

ROOT = "/sys/fs/cgroup"
NAME = "mlp-runs"
KINDS = ("memory", "pids", "cpu")
PERIOD_US = 100_000
TRIED, STALE_S = "try-", 60
SPARE_PROCESSES = 8  # shim, guard and bubblewrap are counted too
START_S = 1.0  # how long a run has at least START_CPUS: with a tenth of a core a Python alone takes that long to start
START_CPUS = 1.0


def find(root: str = ROOT) -> dict[str, str]:
    """Return, by controller, the folder in which runs get their groups; makes the folders. Only controllers that work
    here are in it.
    """
    if os.path.exists(f"{root}/cgroup.controllers"):
        return _find_unified(root)
    folders = {}
    for kind in KINDS:
        mine = _own(kind)
        for parent in dict.fromkeys([f"{root}/{kind}{mine}", f"{root}/{kind}"]) if mine is not None else ():
            if _try(f"{parent}/{NAME}", {kind}, unified=False):
                folders[kind] = f"{parent}/{NAME}"
                break
    return folders


def _find_unified(root: str) -> dict[str, str]:
    """Return the folders in the unified hierarchy: below the root for root, else below the highest group that was
    delegated to this user, usually by systemd.
    """
    mine = _own("")
    if mine is None:
        return {}
    here = os.path.normpath(root + mine)
    above = [here]
    while above[-1] != root and len(above) < 64:
        above.append(os.path.dirname(above[-1]))
    for parent in reversed(above):
        if not os.access(f"{parent}/cgroup.procs", os.W_OK) or not os.access(parent, os.W_OK):
            continue
        for level in (parent, f"{parent}/{NAME}"):
            with contextlib.suppress(OSError):
                os.mkdir(level)
            for kind in KINDS:
                with contextlib.suppress(OSError):  # enabled already, or not available
                    write(f"{level}/cgroup.subtree_control", f"+{kind}")
        kinds = set(KINDS) & set(read(f"{parent}/{NAME}/cgroup.subtree_control").split())
        if kinds and _try(f"{parent}/{NAME}", kinds, unified=True):
            return {kind: f"{parent}/{NAME}" for kind in KINDS if kind in kinds}
    return {}


def _own(kind: str) -> str | None:
    """Return the group of this process in the hierarchy of the controller ("" is the unified one)."""
    for line in read("/proc/self/cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        if kind in kinds.split(","):
            return path.rstrip("/")
    return None


def _try(folder: str, kinds: set[str], unified: bool) -> bool:
    """Return whether a child process can join a new group there with limits that the kernel accepts."""
    group = Group(dict.fromkeys(kinds, folder), f"{TRIED}{os.getpid()}-{time.monotonic_ns()}")
    try:
        os.makedirs(folder, exist_ok=True)
        sweep(folder)
        group.make(64, 64, 1)
        files = group.open()
        child = os.fork()
        if child == 0:
            try:
                join(files)
                os._exit(0)
            finally:
                os._exit(1)
        for fd in files:
            os.close(fd)
        return os.waitpid(child, 0)[1] == 0
    except OSError:
        return False
    finally:
        group.remove()


def sweep(folder: str) -> None:
    """Remove the groups of processes that were killed while they tried; a try takes milliseconds."""
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):  # removed meanwhile
            if entry.name.startswith(TRIED) and entry.stat().st_mtime < time.time() - STALE_S:
                os.rmdir(entry.path)


def read(path: str) -> str:
    """Return the content of a file, empty when it cannot be read."""
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def write(path: str, value: str) -> None:
    """Write to an existing file of the kernel. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def join(files: list[int]) -> None:
    """Put this process into the groups of these open files (see `Group.open`)."""
    for fd in files:
        os.write(fd, b"0")


class Group:
    """One run's group in each of the hierarchies."""

    def __init__(self, parents: dict[str, str], name: str):
        self.folders = {kind: f"{folder}/{name}" for kind, folder in parents.items()}
        self.settles: float | None = None  # when its processor time becomes what was asked for, on the monotonic clock
        self.unified = any(os.path.exists(f"{folder}/cgroup.controllers") for folder in parents.values())

    def make(self, ram_mib: int, processes: int, cpus: float) -> None:
        """Make the group with its limits. Raises OSError where the kernel does not accept them."""
        for folder in dict.fromkeys(self.folders.values()):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o755)
        ram = str(ram_mib << 20)
        if "memory" in self.folders:
            self.set("memory", "memory.max" if self.unified else "memory.limit_in_bytes", ram)
            if self.unified:
                with contextlib.suppress(OSError):  # no swap, no file
                    self.set("memory", "memory.swap.max", "0")
                with contextlib.suppress(OSError):
                    self.set("memory", "memory.oom.group", "1")
            else:
                with contextlib.suppress(OSError):  # the machine has no swap accounting
                    self.set("memory", "memory.memsw.limit_in_bytes", ram)
        if "pids" in self.folders:
            self.set("pids", "pids.max", str(processes + SPARE_PROCESSES))
        self.cpus, self.settles = cpus, time.monotonic() + START_S if cpus < START_CPUS else None
        self._limit_cpus(max(cpus, START_CPUS))

    def settle(self) -> None:
        """Limit the processor time to what was asked for once the run has had its time to start."""
        if self.settles is None or time.monotonic() < self.settles:
            return
        try:
            self._limit_cpus(self.cpus)
            self.settles = None
        except OSError as error:
            print(f"the processor time could not be limited: {error}", file=sys.stderr, flush=True)
            self.settles = time.monotonic() + START_S

    def _limit_cpus(self, cpus: float) -> None:
        quota = max(1000, int(cpus * PERIOD_US))
        if "cpu" in self.folders:
            if self.unified:
                self.set("cpu", "cpu.max", f"{quota} {PERIOD_US}")
            else:
                self.set("cpu", "cpu.cfs_period_us", str(PERIOD_US))
                self.set("cpu", "cpu.cfs_quota_us", str(quota))

    def set(self, kind: str, name: str, value: str) -> None:
        """Write one setting of a controller. Raises OSError."""
        write(f"{self.folders[kind]}/{name}", value)

    def open(self) -> list[int]:
        """Return the open files for `join`; they are not inheritable."""
        folders = dict.fromkeys(self.folders.values())
        return [os.open(f"{folder}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for folder in folders]

    def oom_kills(self) -> int:
        """Return how often the kernel has killed a process of the run for exceeding the memory limit."""
        if "memory" not in self.folders:
            return 0
        text = read(f"{self.folders['memory']}/{'memory.events' if self.unified else 'memory.oom_control'}")
        counts = dict(line.split(None, 1) for line in text.splitlines() if " " in line)
        return int(counts.get("oom_kill", "0"))

    def kill(self) -> None:
        """Send SIGKILL to every process of the group."""
        for folder in dict.fromkeys(self.folders.values()):
            for pid in read(f"{folder}/cgroup.procs").split():
                with contextlib.suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)

    def remove(self) -> None:
        """Remove the group, which has no processes; the kernel may take a moment to notice that."""
        for folder in dict.fromkeys(self.folders.values()):
            for _ in range(200):
                try:
                    os.rmdir(folder)
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.005)
                else:
                    break
