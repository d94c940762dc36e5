"""A few requests to the kernel's routing tables, by rtnetlink. Called by `route.py`; standard library only.

Sources: rtnetlink(7), linux/rtnetlink.h. A socket belongs to the network namespace in which it was made.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

NEW_LINK, NEW_ADDRESS, NEW_ROUTE, DELETE_ROUTE, GET_ROUTE = 16, 20, 24, 25, 26
REQUEST, ACKNOWLEDGE, DUMP, REPLACE, CREATE = 0x1, 0x4, 0x300, 0x100, 0x400
ERROR, DONE = 2, 3
IPV4_ROUTES = 0x40  # the group that is sent their changes
MAIN, LOCAL, DEFAULT = 254, 255, 253
STATIC = 4  # the protocol of a route that an administrator has set
UNICAST, OWN, BROADCAST, ANYCAST, PROHIBIT = 1, 2, 3, 4, 8
IFF_UP = 1
IFLA_MTU, IFA_ADDRESS, IFA_LOCAL, RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_TABLE = 4, 1, 2, 1, 4, 5, 15
HEADER, ROUTE = struct.Struct("=IHHII"), struct.Struct("=8BI")
Prefix = tuple[int, int]  # an IPv4 address as a number, and the length of its network's part


class Kernel:
    """A netlink socket of this process's network namespace."""

    def __init__(self, groups: int = 0):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self.socket.bind((0, groups))

    def call(self, kind: int, body: bytes, flags: int = 0) -> None:
        """Have something changed. Raises OSError."""
        self._send(kind, body, REQUEST | ACKNOWLEDGE | flags)
        for _ in self._answers():
            pass

    def set_up(self, index: int, mtu: int) -> None:
        """Set an interface up."""
        self.call(NEW_LINK, struct.pack("=BxHiII", 0, 0, index, IFF_UP, IFF_UP) + _attribute(IFLA_MTU, mtu))

    def add_address(self, index: int, address: int, length: int) -> None:
        body = struct.pack("=4BI", socket.AF_INET, length, 0, 0, index)
        for which in (IFA_LOCAL, IFA_ADDRESS):
            body += _attribute(which, socket.htonl(address))
        self.call(NEW_ADDRESS, body, CREATE | REPLACE)

    def add_default(self, index: int, gateway: int) -> None:
        """Add the default route by this gateway."""
        body = ROUTE.pack(socket.AF_INET, 0, 0, 0, MAIN, STATIC, 0, UNICAST, 0)
        body += _attribute(RTA_OIF, index) + _attribute(RTA_GATEWAY, socket.htonl(gateway))
        self.call(NEW_ROUTE, body, CREATE | REPLACE)

    def prohibit(self, prefix: Prefix) -> None:
        """Refuse connections to these addresses at once, with EACCES."""
        address, length = prefix
        body = ROUTE.pack(socket.AF_INET, length, 0, 0, MAIN, STATIC, 0, PROHIBIT, 0)
        self.call(NEW_ROUTE, body + _attribute(RTA_DST, socket.htonl(address)), CREATE | REPLACE)

    def own(self) -> set[Prefix]:
        """Return the IPv4 addresses of this machine, and their broadcast addresses."""
        self._send(GET_ROUTE, ROUTE.pack(socket.AF_INET, *(0,) * 8), REQUEST | DUMP)
        return {prefix for _, body in self._answers() if (prefix := _of_this_machine(body))}

    def changed(self) -> bool:
        """Return whether the machine's addresses have changed; call it when the socket is readable."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return False
        except OSError:  # announcements were lost
            return True
        return any(kind == NEW_ROUTE and _of_this_machine(body) for kind, body in _messages(data))

    def _send(self, kind: int, body: bytes, flags: int) -> None:
        self.socket.send(HEADER.pack(HEADER.size + len(body), kind, flags, 1, 0) + body)

    def _answers(self) -> Iterator[tuple[int, bytes]]:
        while True:
            for kind, body in _messages(self.socket.recv(1 << 16)):
                if kind == ERROR:
                    code = -struct.unpack_from("=i", body)[0]
                    if code:
                        raise OSError(code, f"network: {os.strerror(code)}")
                    return
                if kind == DONE:
                    return
                yield kind, body


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= HEADER.size:
        length, kind, *_ = HEADER.unpack_from(data)
        yield kind, data[HEADER.size : length]
        data = data[(length + 3) & ~3 :]


def _attribute(kind: int, value: int) -> bytes:
    return struct.pack("=HHI", 8, kind, value)


def _of_this_machine(body: bytes) -> Prefix | None:
    """Return the addresses of a route by which the machine reaches itself; None for any other."""
    family, length, _, _, table, _, _, kind, _ = ROUTE.unpack_from(body)
    if family != socket.AF_INET or table not in (MAIN, LOCAL, DEFAULT) or kind not in (OWN, BROADCAST, ANYCAST):
        return None
    rest = body[ROUTE.size :]
    while len(rest) >= 4:
        size, which = struct.unpack_from("=HH", rest)
        if which == RTA_DST:
            return int.from_bytes(rest[4:8], "big"), length
        rest = rest[max(4, (size + 3) & ~3) :]
    return 0, length
