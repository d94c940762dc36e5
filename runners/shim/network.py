"""The network of a run: a namespace of its own, in which only the platform's doors can be reached.

Called by the guard, inside. Its listeners, at the ports of the platform's doors on the run's own loopback interface,
are sent to the shim by descriptor: a listener belongs to the namespace in which it was made, so a process outside can
accept there without ever entering it (`relay.py`). Standard library only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
LOOPBACK = "127.0.0.1"
BACKLOG = 128
_libc = ctypes.CDLL(None, use_errno=True)


def enter(spec: dict) -> None:
    """Give the run its network and send its listeners to the shim. Raises OSError."""
    asked = spec["network"]
    if not asked["own"]:
        return
    if asked["own"] == "unshare":  # bubblewrap has done it already
        leave_the_machines()
    listeners = [listen(door["port"]) for door in asked["doors"]]
    with socket.socket(fileno=asked["link"]) as link:
        if listeners:
            socket.send_fds(link, [b"."], [listener.fileno() for listener in listeners])
    for listener in listeners:
        listener.close()


def leave_the_machines() -> None:
    """Move this process into a new network namespace, whose loopback interface is up. Raises OSError."""
    if _libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"network namespace: {os.strerror(ctypes.get_errno())}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack("16sh22x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | IFF_UP))


def listen(port: int) -> socket.socket:
    """Return a listener on the run's own loopback interface."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((LOOPBACK, port))
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


if __name__ == "__main__":  # `runners.confine` asks so whether it works here
    try:
        leave_the_machines()
        listen(0).close()
    except OSError as problem:
        sys.exit(problem.strerror or str(problem))
