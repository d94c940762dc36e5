"""The CPUs and the memory of this machine, as far as this process may use them, and the names of its users."""

from __future__ import annotations

import contextlib
import os
import pwd
from decimal import Decimal
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cpus() -> Decimal:
    """Return the CPUs that this process may use, limited by a cgroup's quota."""
    count = Decimal(len(os.sched_getaffinity(0)))
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        if quota != "max":
            count = min(count, Decimal(quota) / Decimal(period))
    except (OSError, ValueError):
        pass  # no cgroup v2, or none with a limit
    return count.quantize(Decimal("0.001"))


def ram_mib() -> int:
    """Return the memory in MiB, limited by a cgroup."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        if limit != "max":
            total = min(total, int(limit))
    except (OSError, ValueError):
        pass  # as above
    return total >> 20


def has_name(uid: int) -> bool:
    """Return whether the user id has a name here. In a container it may be any number."""
    with contextlib.suppress(KeyError):
        return bool(pwd.getpwuid(uid).pw_name)
    return False


def user_name() -> str:
    """Return the name of this process's user, its number where it has none."""
    uid = os.geteuid()
    return pwd.getpwuid(uid).pw_name if has_name(uid) else str(uid)
