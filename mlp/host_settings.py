"""The host names that requests may name. Read once by settings.py."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from kernel.environment import Section

LOOPBACK = "127.0.0.1"  # runs with a network of their own, and the health check


class AnyAddress(str):
    """A pattern of ALLOWED_HOSTS that each IP address matches.

    Probes of a cluster, runs and visitors without DNS name addresses. A page of another site cannot: a browser sends
    the name that the page was opened by, also when it resolves to this machine (DNS rebinding).
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def lower(self) -> AnyAddress:
        return self

    def __eq__(self, host: object) -> bool:
        try:
            ipaddress.ip_address(str(host).strip("[]"))
        except ValueError:
            return False
        return True


def read(section: Section, urls: Sequence[str]) -> list[str]:
    """Return ALLOWED_HOSTS: MLP_ALLOWED_HOSTS, else the hosts of our own URLs; any where none is given."""
    given = section.items(
        "MLP_ALLOWED_HOSTS",
        shown="the hosts of `MLP_URL`, `MLP_APP_URL` and `MLP_RUN_URL`, this machine's name and all IP addresses; `*` "
        "without `MLP_URL`",
        help="host names that requests may name, separated by commas; `*`: any",
    )
    if given:
        return given if "*" in given else [*given, LOOPBACK]
    if not urls:
        return ["*"]
    names = [(urlsplit(url).hostname or "").removeprefix("*") for url in urls]  # .lab.example.org: all below it
    names += [socket.gethostname().lower(), "localhost"]
    return [*dict.fromkeys(filter(None, names)), AnyAddress("IP")]
