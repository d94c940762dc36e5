"""What runs could reach: whether they are isolated, and which ports of the loopback interface are open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

import runners

from .findings import Finding

TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTENS = "0A"
LOOPBACK = ("0100007F", "00000000000000000000000001000000")
EVERYWHERE = ("00000000", "0" * 32)
SHOWN = 8
HOW = "docs/jobs.md#isolation says what each way needs"


def isolation() -> Iterator[Finding]:
    """Ask how runs of this machine are isolated, and why not better."""
    if settings.MLP_RUNNER != "local":
        return
    confinement = runners.get().confinement
    better = "; ".join(confinement.why_not)
    if confinement.isolation == "none":
        what = "runs are not isolated: a script can read what the platform can, all its secrets included"
        yield Finding("isolation", "problem", what, f"{better or 'see MLP_CONFINEMENT'} ({HOW})")
    else:
        yield Finding("isolation", "ok", confinement.summary())
        if better:
            yield Finding("isolation", "note", f"something better does not work here: {better}", HOW)


def loopback() -> Iterator[Finding]:
    """Ask which ports of this machine's loopback interface runs can reach."""
    ports = sorted(listening())
    shown = ", ".join(map(str, ports[:SHOWN])) + (f" and {len(ports) - SHOWN} more" if ports[SHOWN:] else "")
    if settings.MLP_RUNNER != "local" or runners.get().confinement.network:
        yield Finding(
            "loopback", "ok", f"runs reach none of the {len(ports)} open ports: they have networks of their own"
        )
    elif ports:
        what = f"runs share this machine's network, and reach what listens on its loopback interface: ports {shown}"
        remedy = "unset MLP_RUN_NETWORK=shared, or protect these servers with passwords"
        yield Finding("loopback", "warning", what, f"{remedy}; {HOW}")


def listening() -> set[int]:
    """Return the TCP ports that are open on the loopback interface, those of all interfaces included."""
    ports = set()
    for table in TABLES:
        path = Path(table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            address, _, port = words[1].partition(":")
            if words[3] == LISTENS and address in LOOPBACK + EVERYWHERE:
                ports.add(int(port, 16))
    return ports
