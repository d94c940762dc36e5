"""The upstreams of nginx's configuration by which the application gateway keeps connections to runs.

nginx keeps connections to the servers that its configuration names, and applications come and go without a reload of
it. So there are some upstreams whose servers are links in the folder of the sockets; a run that is called gets one, and
its link leads to the run's socket. nginx keeps a connection for IDLE_S and uses none that is older than OLD_S.

What is sent by an upstream must not reach another run than it was meant for, though nginx connects only once it has
the whole body, which may be long after it was told where. So only requests with short bodies are sent by an upstream
(supervision/gateway.conf.tmpl), and another run gets one only after REST_S without use: a body of 100 kB would have to
come more slowly than 30 bytes a second. Runs that get none have a connection for each request, as on Kubernetes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import OrderedDict
from pathlib import Path

from django.conf import settings

from kernel import sockets
from kernel.sockets import Address

log = logging.getLogger(__name__)

HEADER = "X-App-Via"  # to nginx: the upstream
COUNT = 100
IDLE_S, OLD_S = 3, 60  # the server of a run keeps an idle connection for 5 s
REST_S = 3600.0
CONNECTIONS = 32  # idle ones of each upstream and process of nginx


def link(folder: Path, number: int) -> Path:
    """Return the path by which nginx connects to the server of an upstream."""
    return folder / f"via-{number}"


def configuration(folder: Path) -> str:
    """Return the upstreams as nginx's configuration has them, none where runs are not reached by sockets."""
    if settings.MLP_RUNNER != "local":
        return ""
    kept = f"keepalive {CONNECTIONS}; keepalive_timeout {IDLE_S}s; keepalive_time {OLD_S}s;"
    return "\n    ".join(
        f'upstream via-{number} {{ server "unix:{link(folder, number)}"; {kept} }}' for number in range(COUNT)
    )


class Upstreams:
    """Which run has which upstream. Not thread-safe; one process of a platform has it.

    The links are what is left of it when the process ends: nginx may still send what it was told just before.
    """

    def __init__(self, folder: Path):
        self.folder, now = folder, time.monotonic()
        self.used: OrderedDict[str, tuple[int, float]] = OrderedDict()  # by socket; the one used last at the end
        self.free: list[int] = []
        for number in reversed(range(COUNT)):
            try:
                self.used[os.readlink(link(folder, number))] = number, now
            except OSError:
                self.free.append(number)

    def of(self, address: Address) -> str:
        """Return the upstream of the run at this address, as the beginning of a URL for nginx; empty for none."""
        if not isinstance(address, str):
            return ""
        known = self.used.get(address)
        number = known[0] if known is not None else self._given_to(address)
        if number is None:
            return ""
        self.used[address] = number, time.monotonic()
        self.used.move_to_end(address)
        return f"http://via-{number}"

    def _given_to(self, address: str) -> int | None:
        """Return the number of an upstream that now leads to the address; None where all are in use."""
        oldest, number = "", self.free[-1] if self.free else None
        if number is None:
            oldest, (number, at) = next(iter(self.used.items()))
            if time.monotonic() - at < REST_S:
                return None
        draft = self.folder / f".via-{number}"
        try:
            with contextlib.suppress(FileNotFoundError):
                draft.unlink()
            draft.symlink_to(address)
            draft.replace(link(self.folder, number))
        except OSError as problem:  # the run is reached without
            log.warning("no upstream leads to %s: %s", address, problem)
            return None
        if oldest:
            del self.used[oldest]
        else:
            self.free.pop()
        return number


def here() -> Upstreams:
    """Return the upstreams of this platform."""
    return Upstreams(sockets.folder(settings.MLP_ROOT))
