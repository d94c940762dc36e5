"""One HTTP request to a server of unknown quality, and where it may go. Called by kernel.webhook and apps.

A socket's time-out starts again with each byte, so a server that answers a byte at a time could hold the caller's
thread for ever. Here one deadline covers the whole exchange, and the connection is closed when it is reached. No proxy
of the environment is used: it would resolve names again.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import time

from . import sockets

# Of the IPv6 addresses only these are assigned to hosts of the internet, and of them not those below.
UNICAST = ipaddress.ip_network("2000::/3")
NOT_PUBLIC = [
    ipaddress.ip_network(network)
    for network in (
        "192.88.99.0/24",  # relays of 6to4
        "2001::/23",  # protocols: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # examples, as the next but one
        "2002::/16",  # 6to4: leads to the IPv4 address in it
        "3fff::/20",
    )
]
NAT64 = ipaddress.ip_network("64:ff9b::/96")
ISATAP = {0x00005EFE, 0x02005EFE}  # the third quarter of an address that leads to the IPv4 address in the fourth


def is_public(text: str) -> bool:
    """Return whether the IP address belongs to another host of the internet.

    An IPv6 address that leads to an IPv4 address counts as public only by NAT64, which hosts without IPv4 need, and
    where that address is public.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address in NAT64:
            return is_public(str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)))
        if address.scope_id or address not in UNICAST or int(address) >> 32 & 0xFFFFFFFF in ISATAP:
            return False
    listed = any(address in network for network in NOT_PUBLIC if network.version == address.version)
    return address.is_global and not address.is_multicast and not listed and not _is_own(address)


def _is_own(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether the address is one of this machine: a server that a firewall hides answers there."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def exchange(
    address: sockets.Address,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    *,
    limit_s: float,
    most: int,
    tls_name: str = "",
) -> tuple[int, bytes]:
    """Return the status and at most `most` bytes of the answer, without following redirections.

    With `tls_name` it uses HTTPS, and the server must prove that it has this name. Raises TimeoutError when it takes
    longer than `limit_s` seconds, OSError or HTTPException for any other failure.
    """
    with Exchange(address, limit_s, tls_name) as server:
        response = server.begin(method, path, body, headers)
        data = response.read(most) if most else b""
    return response.status, data


class Exchange:
    """A request over a connection of its own, to be used in a `with` block: the connection is closed at its end, when
    `limit_s` seconds are over, or by `cut`, which another thread may call.

    Raises TimeoutError at the end of the block when the time was over, OSError where there is no connection.
    """

    def __init__(self, address: sockets.Address, limit_s: float, tls_name: str = ""):
        begun = time.monotonic()
        self.limit_s, self.tls_name, self.over = limit_s, tls_name, threading.Event()
        self.connection = sockets.HttpConnection(address, limit_s)
        self.connection.auto_open = 0  # to this address only
        self.connection.sock = self.link = sockets.connect(address, limit_s)
        self.timer = threading.Timer(max(0.0, begun + limit_s - time.monotonic()), self.cut)

    def cut(self) -> None:
        """Close the connection, below TLS, whose handshake may not be finished."""
        self.over.set()
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.link, socket.SHUT_RDWR)

    def begin(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str] | None
    ) -> http.client.HTTPResponse:
        """Send the request and return the response, of which the body is still to be read. Raises OSError,
        HTTPException.
        """
        if self.tls_name:
            context = ssl.create_default_context()
            self.link = context.wrap_socket(self.link, server_hostname=self.tls_name, do_handshake_on_connect=False)
            self.connection.sock = self.link
        self.timer.start()
        if self.tls_name:
            self.link.do_handshake()
        self.connection.request(method, path, body, headers or {})
        return self.connection.getresponse()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, _kind, problem, _trace) -> None:
        self.timer.cancel()
        self.connection.close()
        failed = isinstance(problem, (OSError, http.client.HTTPException))
        # The socket's own time-out, of the same length, may come before the timer's thread on a busy machine.
        if failed and (self.over.is_set() or isinstance(problem, TimeoutError)):
            raise TimeoutError(f"no answer within {self.limit_s:g} s") from problem
        if problem is None and self.over.is_set():
            raise TimeoutError(f"no whole answer within {self.limit_s:g} s")
