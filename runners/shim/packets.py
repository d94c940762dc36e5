"""The filter of the packets that leave a run: packets to addresses of this machine never reach the program that
forwards them.

It is attached to the run's interface (`attach`), not to its routes: a socket that is bound to the interface bypasses
routes, and needs no privilege for that. The run has no handle of the interface, so it cannot remove the filter.
Standard library only. Source: https://docs.kernel.org/networking/filter.html
"""

from __future__ import annotations

import ctypes
import fcntl
import struct
from collections.abc import Iterable

from netlink import Prefix

ATTACH = 0x401054D5  # TUNATTACHFILTER
MAX = 4096  # instructions
LOAD_32, LOAD_16, LOAD_8, AND, EQUAL, ANY_BIT, RETURN = 0x20, 0x28, 0x30, 0x54, 0x15, 0x45, 0x06
# Offsets in an Ethernet frame with an IPv4 packet that has no options.
KIND, FIRST, FRAGMENT, PROTOCOL, TARGET, PORT = 12, 14, 20, 23, 30, 36
ARP, IPV4, WITHOUT_OPTIONS, TCP, UDP, DNS = 0x0806, 0x0800, 0x45, 6, 17, 53
WHOLE, DROP = 0xFFFFFFFF, 0
# What no run reaches, whatever this machine's addresses are; `proxy.py` refuses the same.
NEVER: frozenset[Prefix] = frozenset(
    (int.from_bytes(map(int, address.split(".")), "big"), length)
    for address, length in (
        ("0.0.0.0", 8),  # this machine
        ("127.0.0.0", 8),
        ("169.254.0.0", 16),  # link-local: where clouds describe a machine to itself
        ("100.100.100.200", 32),  # the same, in other clouds
        ("168.63.129.16", 32),
        ("192.0.0.192", 32),
        ("224.0.0.0", 4),  # not of one host
        ("240.0.0.0", 4),
    )
)


def attach(fd: int, instructions: bytes) -> None:
    """Put the filter on the interface of this open /dev/net/tun, in place of an earlier one. Raises OSError."""
    program = ctypes.create_string_buffer(instructions)
    fcntl.ioctl(fd, ATTACH, struct.pack("@HP", len(instructions) // 8, ctypes.addressof(program)))


def program(refused: Iterable[Prefix], names: int) -> bytes:
    """Return the filter: IPv4 to all but the refused addresses, and to `names` DNS alone. Raises OSError."""
    lines = [_line(LOAD_16, KIND), _line(EQUAL, ARP, 0, 1), _line(RETURN, WHOLE), *_unless(EQUAL, IPV4)]
    lines += [_line(LOAD_8, FIRST), *_unless(EQUAL, WITHOUT_OPTIONS)]
    lines += [_line(LOAD_32, TARGET), _line(EQUAL, names, 0, 9)]
    lines += [_line(LOAD_16, FRAGMENT), _line(ANY_BIT, 0x3FFF, 6, 0), _line(LOAD_8, PROTOCOL)]
    lines += [_line(EQUAL, UDP, 1, 0), _line(EQUAL, TCP, 0, 3), _line(LOAD_16, PORT), _line(EQUAL, DNS, 0, 1)]
    lines += [_line(RETURN, WHOLE), _line(RETURN, DROP)]
    for address, length in sorted(refused, key=lambda prefix: -prefix[1]):  # single ones first: they change nothing
        mask = 0xFFFFFFFF << 32 - length & 0xFFFFFFFF
        if length < 32:
            lines += [_line(LOAD_32, TARGET), _line(AND, mask)]
        lines += [_line(EQUAL, address & mask, 0, 1), _line(RETURN, DROP)]
    lines.append(_line(RETURN, WHOLE))
    if len(lines) > MAX:
        raise OSError("this machine has too many addresses for the filter of a run's packets")
    return b"".join(lines)


def _unless(test: int, value: int) -> list[bytes]:
    return [_line(test, value, 1, 0), _line(RETURN, DROP)]


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
