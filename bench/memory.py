"""The memory of every part of a platform while something happens: sampled from /proc, each part with its children."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
import xmlrpc.client
from collections.abc import Callable
from pathlib import Path

EVERY_S = 0.2
MIB = 1 << 20


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str):
        super().__init__("localhost", timeout=20)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class _Transport(xmlrpc.client.Transport):
    def __init__(self, path: str):
        super().__init__()
        self.path = path

    def make_connection(self, host) -> _Connection:
        return _Connection(self.path)


def parts(root: Path) -> dict[str, int]:
    """Return the process of each part, as the supervisor of the platform names it."""
    path = str(root / "run" / "supervisor.sock")
    supervisor = xmlrpc.client.ServerProxy("http://localhost", transport=_Transport(path)).supervisor
    return {row["name"]: row["pid"] for row in supervisor.getAllProcessInfo() if row["pid"]}


def resident(pid: int) -> int:
    """Return the proportional resident memory of a process in bytes: pages that several share are divided."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError, ValueError):
            parent = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            found.setdefault(parent, []).append(int(name))
    return found


def cpu(root: Path, *names: str) -> float:
    """Return the seconds of CPU that these parts have used so far, each with its children: what work costs, however
    busy the machine is.
    """
    return cpu_of([pid for name, pid in parts(root).items() if name in names])


def cpu_of(pids: list[int]) -> float:
    """Return the same of processes, each with its children."""
    children, todo = _children(), list(pids)
    total = 0.0
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def now(processes: dict[str, int]) -> dict[str, int]:
    """Return the memory of each part."""
    children, sizes = _children(), {}
    for name, pid in processes.items():
        left, size = [pid], 0
        while left:
            one = left.pop()
            size += resident(one)
            left += children.get(one, [])
        sizes[name] = size
    return sizes


class Watch:
    """Samples all parts until the end of the block: `before` and `peak`, by part."""

    def __init__(self, root: Path):
        self.processes = parts(root)
        self.before = self.peak = now(self.processes)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        while not self.stop.wait(EVERY_S):
            self._sample()

    def _sample(self) -> None:
        self.peak = {name: max(size, self.peak[name]) for name, size in now(self.processes).items()}

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_problem) -> None:
        self.stop.set()
        self.thread.join()
        self._sample()

    @property
    def growth(self) -> tuple[str, float]:
        """The part that grew most, and by how many MiB."""
        name = max(self.peak, key=lambda one: self.peak[one] - self.before[one])
        return name, (self.peak[name] - self.before[name]) / MIB


class Peak:
    """Samples a number of bytes until the end of the block."""

    def __init__(self, look: Callable[[], int]):
        self.poll = look
        self.before = self.most = look()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        while not self.stop.wait(EVERY_S):
            self.most = max(self.most, self.poll())

    def __enter__(self) -> Peak:
        self.thread.start()
        return self

    def __exit__(self, *_problem) -> None:
        self.stop.set()
        self.thread.join()
        self.most = max(self.most, self.poll())

    @property
    def growth(self) -> int:
        return self.most - self.before
