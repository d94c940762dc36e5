"""The network of a run: a namespace of its own, in which only the platform's endpoints can be reached.

Called by the guard, inside. Its listeners, at the ports of the platform's endpoints on the run's own loopback
interface, are sent to the shim by descriptor: a listener belongs to the namespace in which it was made, so a process
outside can accept there without ever entering it (`relay.py`). Standard library only.
"""

from __future__ import annotations

import _socket as socket  # the other module loads enum and selectors; see `suppress.py`
import ctypes
import fcntl
import os
import struct
import sys

CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x00020000
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
NAMES, NAME_SERVER = "/etc/resolv.conf", "198.51.100.3"  # of runs with a route to the internet (`route.py`)
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
LOOPBACK = "127.0.0.1"
BACKLOG = 4096
ROUTE_S = 25  # within which a run has to have its route to the internet
MADE, FAILED = b".", b"!"  # what the shim says of it
_libc = ctypes.CDLL(None, use_errno=True)


class NoRoute(OSError):
    """The run has the policy `open`, but no route to the internet."""


def enter(spec: dict) -> None:
    """Give the run its network and send its listeners to the shim. Raises OSError."""
    asked = spec["network"]
    if not asked["own"]:
        return
    if asked["own"] == "unshare":  # bubblewrap has done it already
        leave_the_machines()
    listeners = [listen(endpoint["port"]) for endpoint in asked["endpoints"]]
    link = socket.socket(fileno=asked["link"])
    try:
        sent = [listener.fileno() for listener in listeners]
        if asked["route"]:
            sent.insert(0, os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        if sent:
            link.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(sent)}i", *sent))])
        if asked["route"]:
            os.close(sent[0])
            link.settimeout(ROUTE_S)
            wait_for(link)
    finally:
        link.close()
    for listener in listeners:
        listener.close()
    if asked["names"]:
        show(asked["names"])


def wait_for(link: socket.socket) -> None:
    """Wait until the shim has made the route to the internet. Raises OSError."""
    try:
        there = link.recv(1)
    except TimeoutError:
        there = FAILED
    if there != MADE:
        raise NoRoute("its route to the internet could not be made: the file shim.log of the run says why")


def show(names: str) -> None:
    """Let the run, and nobody else, see this file as its list of name servers. Raises OSError."""
    if _libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), f"mount namespace: {os.strerror(ctypes.get_errno())}")
    mount("none", "/", "", MS_REC | MS_SLAVE)
    mount(names, os.path.realpath(NAMES), "", MS_BIND)


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """Call mount(2). Raises OSError."""
    if _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None):
        raise OSError(ctypes.get_errno(), f"{target}: {os.strerror(ctypes.get_errno())}")


def leave_the_machines() -> None:
    """Move this process into a new network namespace, whose loopback interface is up. Raises OSError."""
    if _libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"network namespace: {os.strerror(ctypes.get_errno())}")
    any_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        request = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack("16sh22x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | IFF_UP))
    finally:
        any_socket.close()


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
