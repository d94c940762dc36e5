"""The choice of an application's port: a free one of the contract's range, at random. Called by lifecycle.

The range overlaps with the ephemeral ports of Linux. Those are chosen last: a port that is free now might belong to an
outgoing connection when the application is restarted.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from pathlib import Path

from .models import PORTS


def outgoing(setting: Path) -> range:
    """Return the ephemeral ports of this machine by a file of /proc; empty when it cannot be read."""
    try:
        first, last = setting.read_text().split()
        return range(int(first), int(last) + 1)
    except (OSError, ValueError):
        return range(0)


OUTGOING = outgoing(Path("/proc/sys/net/ipv4/ip_local_port_range"))


def choose(taken: Collection[int]) -> int | None:
    """Return a port that is not `taken`, preferably none of OUTGOING; None when all are taken."""
    free = [port for port in PORTS if port not in taken]
    best = [port for port in free if port not in OUTGOING] or free
    return secrets.choice(best) if best else None
