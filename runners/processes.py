"""What a run does at this moment: its processes with their commands, or what each of its workers uses.

`of_run` reads the processes of a run of this machine from /proc. Nobody takes a part of the run for it: neither its
shim nor its guard is asked, so that any number of callers cost the run nothing.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

MAX_SHARED = 64  # with more processes shared memory is counted for each: to measure how it is shared costs too much
LONGEST_COMMAND = 1024  # bytes of it that are read
GUARD_BELOW = 2  # levels below the shim: bubblewrap is between them
TICKS = os.sysconf("SC_CLK_TCK")
RANK = b"LOCAL_RANK="
# Among the fields of /proc/{pid}/stat after the name.
PARENT, SESSION, CPU, THREADS, STARTED = 1, 3, slice(11, 13), 17, 19


@dataclass(frozen=True)
class Process:
    """One process. `key` is this one's alone, also when its number is used again; `pid` and `parent` are the numbers
    that the run itself sees, `parent` is 0 for those that the platform has started. Memory is in bytes.
    """

    key: str
    pid: int
    parent: int
    worker: int
    words: tuple[str, ...]  # the command; its name in brackets where it has none
    cpu_s: float
    ram: int  # with each shared page counted once, among all who share it
    rss: int
    threads: int
    age_s: float


@dataclass(frozen=True)
class WorkerUse:
    """What one worker uses, where its processes are not known: `cpu` in cores, `ram` in bytes."""

    worker: int
    cpu: float
    ram: int


@dataclass(frozen=True)
class Now:
    """A run at a moment, by a clock that all processes of the machine share. `note` says what is missing, and why."""

    at: float
    processes: tuple[Process, ...] = ()
    workers: tuple[WorkerUse, ...] = ()
    note: str = ""


def clock() -> float:
    """Return the seconds since the machine has started, as /proc counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def words_of(file: Path) -> list[bytes]:
    """Return the words of a process's command line or environment; none when it is gone or not readable."""
    with contextlib.suppress(OSError):
        return file.read_bytes().split(b"\0")
    return []


def of_run(folder: Path, shim: int, workers: int) -> Now:
    """Return the processes of the run whose records are in `folder`; none unless that process is its shim."""
    at = clock()
    if os.fsencode(folder) not in words_of(Path(f"/proc/{shim}/cmdline")):
        return Now(at)
    table = _table()
    children: dict[int, list[int]] = defaultdict(list)
    for pid, fields in table.items():
        children[int(fields[PARENT])].append(pid)
    guard = _guard(shim, table, children)
    rank_of: dict[int, int] = {}
    level = list(children[guard]) if guard else []
    for pid in level:
        rank_of[pid] = _rank(pid, workers)
    while level:
        below = [(child, pid) for pid in level for child in children[pid]]
        rank_of |= {child: rank_of[pid] for child, pid in below}
        level = [child for child, _pid in below]
    shares = len(rank_of) <= MAX_SHARED
    depth = len(_numbers(guard))
    seen = {pid: _numbers(pid)[:depth][-1] for pid in rank_of}
    found = (_process(pid, table[pid], at, seen, rank, shares) for pid, rank in rank_of.items())
    return Now(at, tuple(process for process in found if process))


def _table() -> dict[int, list[bytes]]:
    """Return the fields of /proc/{pid}/stat after the name of all processes; short-lived ones may be missed."""
    table = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
                table[int(entry)] = file.read().rsplit(b")", 1)[1].split()
    return table


def _guard(shim: int, table: dict[int, list[bytes]], children: dict[int, list[int]]) -> int:
    """Return the guard of the shim, which leads a session of its own as no other process near the shim does; or 0."""
    level = [shim]
    for _ in range(GUARD_BELOW):
        level = [child for pid in level for child in children[pid]]
        for pid in level:
            if int(table[pid][SESSION]) == pid:
                return pid
    return 0


def _rank(script: int, workers: int) -> int:
    """Return the worker that a process of the guard belongs to: it has inherited the variable."""
    if workers > 1:
        for word in words_of(Path(f"/proc/{script}/environ")):
            rank = word.removeprefix(RANK)
            if word.startswith(RANK) and rank.isdigit() and int(rank) < workers:
                return int(rank)
    return 0


def _numbers(pid: int) -> list[int]:
    """Return the numbers of a process, from the namespace of this process inwards; the run sees that of its guard's."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"NSpid:"):
                return [int(number) for number in line.split()[1:]]
    return [pid]


def _process(
    pid: int, fields: list[bytes], at: float, seen: dict[int, int], worker: int, shares: bool
) -> Process | None:
    """Return what is known of a process; None when it has ended meanwhile."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        rss = _resident(pid)
        return Process(
            key=f"{pid}-{int(fields[STARTED])}",
            pid=seen[pid],
            parent=seen.get(int(fields[PARENT]), 0),
            worker=worker,
            words=_command(pid),
            cpu_s=sum(map(int, fields[CPU])) / TICKS,
            ram=(_share(pid) if shares else 0) or rss,
            rss=rss,
            threads=int(fields[THREADS]),
            age_s=max(0.0, at - int(fields[STARTED]) / TICKS),
        )
    return None


def _command(pid: int) -> tuple[str, ...]:
    """Return the words of the command. Raises OSError."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        data = file.read(LONGEST_COMMAND)
    cut = len(data) == LONGEST_COMMAND and not data.endswith(b"\0")
    data = data.rstrip(b"\0")  # programs that rename themselves leave zeros
    words = data.split(b"\0") if data else []
    if cut:  # what is cut in its middle cannot be judged
        words[-1] = words[-1].rpartition(b" ")[0]
    if not words:
        with open(f"/proc/{pid}/comm", "rb") as file:
            words = [b"[" + file.read().rstrip(b"\n") + b"]"]
    return tuple(word.decode(errors="replace") for word in words)


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _share(pid: int) -> int:
    """Return the process's proportional share of memory; 0 where the kernel does not tell."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) << 10
    return 0
