"""The processes of a platform and of its runs, by kind, as an outsider sees them in /proc."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from supervision import launch

PARTS = ("database", "valkey", "nats", "web", "websockets", "data", "worker", "worker-gpu", "ingest", "aiops")
PARTS += ("reconcile", "gateway")
WITH_NETWORKS = {"relay", "route"}  # kinds that exist only where runs have networks of their own, and a route
CHILDREN = ("database", "web", "gateway")  # parts whose children can be killed alone
RUNS = ("shim", "guard", "script", "application", "relay", "route")
KINDS = ("up", "supervisord", *PARTS, *(f"{part}'s child" for part in CHILDREN), *RUNS)


def kinds(root: Path, up: int, runs: bool = True) -> dict[str, list[int]]:
    """Return kind -> the living processes of that kind; without those of runs at a third of the cost."""
    by_kind: dict[str, list[int]] = defaultdict(list)
    if alive(up):
        by_kind["up"].append(up)
    for part, pids in _parts(root).items():
        group = launch.group_of(root / "run" / "parts" / part)
        name = "supervisord" if part == "supervisor" else part
        for pid in pids:
            by_kind[name if pid == group else f"{name}'s child"].append(pid)
    for kind, pid in _runs(root) if runs else ():
        by_kind[kind].append(pid)
    return dict(by_kind)


def _parts(root: Path) -> dict[str, list[int]]:
    by_part = defaultdict(list)
    for folder, pid in launch.processes(*(root / "run" / "parts" / name for name in ("supervisor", *PARTS))):
        by_part[folder.name].append(pid)
    return by_part


def _runs(root: Path) -> Iterator[tuple[str, int]]:
    """Yield (kind, pid) of the processes of all runs: below a shim, which has the run's folder on its command line."""
    children, words = defaultdict(list), {}
    for pid, parent, line in _table():
        children[parent].append(pid)
        words[pid] = line
    runs = os.fsencode(root / "run" / "runs") + b"/"
    shims = {pid for pid, line in words.items() if b"runners/shim\0" in line and runs in line}
    relays = {pid for shim in shims for pid in children[shim]} & shims  # forks of their shim
    for shim in shims - relays:
        yield "shim", shim
        below = list(children[shim])
        while below:
            pid = below.pop()
            below += children[pid]
            if pid in relays:
                yield "relay", pid
            elif kind := _kind_in_run(words[pid], b"/app-" in words[shim]):
                yield kind, pid


def _kind_in_run(line: bytes, is_application: bool) -> str:
    if line.split(b"\0")[0].endswith(b"bwrap"):
        return ""  # between shim and guard; it ends with either
    if b"\0internet0\0" in line:  # slirp4netns or pasta
        return "route"
    if b"shim/inside.py\0" in line:
        return "guard"
    return "application" if is_application else "script"


def _table() -> Iterator[tuple[int, int, bytes]]:
    """Yield (pid, parent's pid, command line) of all processes."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                status = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if status[0] != "Z":
                    yield int(entry), int(status[1]), Path(f"/proc/{entry}/cmdline").read_bytes()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def using(root: Path) -> dict[int, str]:
    """Return all processes that use this root, with their command lines: by folder, by argument or by environment."""
    mark, commands = os.fsencode(root) + b"/", {}
    for pid, _, line in _table():
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError):
            folder = os.fsencode(os.readlink(f"/proc/{pid}/cwd")) + b"/"
            if folder.startswith(mark) or mark in line:
                commands[pid] = line.replace(b"\0", b" ").decode(errors="replace").strip()
    return commands


def with_environment(name: bytes, values: set[str]) -> dict[int, str]:
    """Return the processes that have this variable with one of the values, with their command lines."""
    words, commands = {name + value.encode() for value in values}, {}
    for pid, _, line in _table() if values else ():
        with contextlib.suppress(OSError):
            if words & set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                commands[pid] = line.replace(b"\0", b" ").decode(errors="replace").strip()
    return commands
