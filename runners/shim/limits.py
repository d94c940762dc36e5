"""The limits of a run where there is no control group; `disk.py` has that of its disk.

The guard calls `set_limits` in each process that becomes a script, and polls `Meter`. Standard library only, and
little of it (see `suppress.py`).
"""

from __future__ import annotations

import os
import resource

from reasons import Reason, message
from suppress import suppress

MIB = 1 << 20


def set_limits(spec: dict) -> None:
    """Limit each process of the run; the limits on the run as a whole are higher."""
    lower(resource.RLIMIT_CORE, 0)
    if not spec["gpu"]:
        # Writable private memory, plus what libraries reserve and never touch. The address space would be a bad
        # limit: torch maps far more than it uses. GPU drivers map more data as well, hence no limit with a GPU.
        lower(resource.RLIMIT_DATA, (spec["ram_mib"] + max(512, spec["ram_mib"] // 2)) * MIB)
    if spec["disk_mib"]:
        lower(resource.RLIMIT_FSIZE, spec["disk_mib"] * MIB)
    if "pids" not in spec["cgroup"]:
        # In case `Meter` is too slow. The kernel counts all tasks of a user; in a user namespace only those in it.
        if spec["uid"] is not None:  # shared by all runs of the owner, also by those that may have more
            most = max(4 * spec["processes"], tasks_of(spec["uid"]) + spec["processes"])
        else:
            most = spec["processes"] + (0 if spec["isolation"] == "bwrap" else tasks_of(os.getuid()))
        lower(resource.RLIMIT_NPROC, most)
    if "cpu" not in spec["cgroup"]:
        spread(spec["cpu"] * spec["workers"])
    with suppress(OSError):
        os.nice(5)  # the servers have priority


def lower(limit: int, value: int) -> None:
    """Set a limit, at most to the present hard limit."""
    hard = resource.getrlimit(limit)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def spread(cpus: float) -> None:
    """Restrict this process and its children to so many CPUs, chosen by its process id."""
    usable = sorted(os.sched_getaffinity(0))
    wanted = max(1, -(-int(cpus * 1000) // 1000))
    if wanted < len(usable):
        first = os.getppid() % len(usable)
        os.sched_setaffinity(0, (usable + usable)[first : first + wanted])


def tasks_of(uid: int) -> int:
    """Return the number of tasks (each thread counts) that the user has on this machine."""
    count = 0
    for entry in os.listdir("/proc"):
        with suppress(OSError):
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == uid:
                count += len(os.listdir(f"/proc/{entry}/task"))
    return count


class Meter:
    """Sums the memory and the tasks of a run's processes."""

    QUIET_S, ALERT_S = 0.5, 0.1

    def __init__(self, spec: dict):
        self.ram = 0 if "memory" in spec["cgroup"] else spec["ram_mib"] * spec["workers"] * MIB
        self.tasks = 0 if "pids" in spec["cgroup"] else spec["processes"]
        self.own_segments = spec["isolation"] == "bwrap"
        self.pause = self.ALERT_S if self.ram or self.tasks else None  # seconds until the next look

    def poll(self, pids: list[int]) -> Reason:
        """Return the reason to end the run, empty while there is none."""
        tasks = used = 0
        for pid in pids:
            with suppress(OSError, ValueError, IndexError):
                tasks += int(stat_of(pid)[17])
                if self.ram:
                    with open(f"/proc/{pid}/statm", "rb") as file:
                        used += int(file.read().split()[1]) * resource.getpagesize()
        if self.tasks and tasks > self.tasks:
            return message("had more than %(limit)s processes", limit=self.tasks)
        held = segments() if self.ram and self.own_segments else 0
        if self.ram and used + held > self.ram and proportional(pids, held) > self.ram:
            return too_much_memory(self.ram // MIB)
        used += held
        self.pause = self.ALERT_S if used > self.ram // 2 or tasks > self.tasks // 2 else self.QUIET_S
        return ""


def proportional(pids: list[int], held: int) -> int:
    """Return the bytes of memory with each shared page counted once, and of `held` only what no process maps."""
    shares = [share_of(pid) for pid in pids]
    return sum(whole for whole, _ in shares) + max(0, held - sum(shared for _, shared in shares))


def segments() -> int:
    """Return the bytes of System V shared memory in this process's namespace; it belongs to no process."""
    with suppress(OSError, IndexError, ValueError), open("/proc/sysvipc/shm", "rb") as file:
        return sum(int(line.split()[14]) for line in file.readlines()[1:])
    return 0


def stat_of(pid: int) -> list[bytes]:
    """Return the fields of /proc/{pid}/stat after the name, which may contain anything: state, parent, …"""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rsplit(b")", 1)[1].split()


def share_of(pid: int) -> tuple[int, int]:
    """Return the process's proportional share of memory (PSS) in bytes, and how much of it are files in memory."""
    sizes = {b"Pss:": 0, b"Pss_Shmem:": 0}
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            name, *value = line.split()
            if name in sizes:
                sizes[name] = int(value[0]) << 10
    return sizes[b"Pss:"], sizes[b"Pss_Shmem:"]


def too_much_memory(mib: int) -> Reason:
    """Return the reason of a run that was ended for its use of memory."""
    return message("needed more than %(limit)s MiB of memory", limit=mib)
