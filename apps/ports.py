"""Which port an application gets: a free one of the contract's range, chosen at random. Called by lifecycle.

The range overlaps with the ports from which Linux takes one for each outgoing connection. Those are chosen last: a
port that is free now might be somebody's connection when the application is started again.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from pathlib import Path

from .models import PORTS


def outgoing(told: Path) -> range:
    """The ports of outgoing connections on this machine; empty where it does not tell."""
    try:
        first, last = told.read_text().split()
        return range(int(first), int(last) + 1)
    except (OSError, ValueError):
        return range(0)


OUTGOING = outgoing(Path("/proc/sys/net/ipv4/ip_local_port_range"))


def choose(taken: Collection[int]) -> int | None:
    """A port that is not `taken`, none of OUTGOING while there is another; None when all are taken."""
    free = [port for port in PORTS if port not in taken]
    best = [port for port in free if port not in OUTGOING] or free
    return secrets.choice(best) if best else None
