"""Looks for servers that a job should not reach, and takes the place of those that are being restarted.

Arguments: the ports to wait for, and the file whose absence ends the waiting.
"""

import contextlib
import os
import socket
import sys
import time
from urllib.parse import urlsplit

from attempts import attempt, check, report

LOCAL = ("127.0.0.1", "::1")


def listening(host):
    """Return the ports of the host that accept a connection."""
    ports = []
    for port in range(1, 65536):
        link = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        link.settimeout(1)
        if link.connect_ex((host, port)) == 0 and link.getsockname() != link.getpeername():
            ports.append(port)
        link.close()
    return ports


def unix_sockets():
    """Connect to each unix socket whose name can be seen."""
    with open("/proc/net/unix") as table:
        names = {line.split()[-1] for line in table if "/" in line or "@" in line}
    for name in names:
        with socket.socket(socket.AF_UNIX) as link, contextlib.suppress(OSError):
            link.settimeout(2)
            link.connect("\0" + name[1:] if name[0] == "@" else name)
            report(f"connect to {name}", True)


def lie_in_wait(ports, sign):
    """Try to listen on the ports until the file has gone; report who came."""
    taken = {}
    while os.path.exists(sign):
        for port in ports:
            if port not in taken:
                with contextlib.suppress(OSError):
                    link = socket.socket()
                    link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    link.bind(("127.0.0.1", port))
                    link.listen()
                    link.setblocking(False)
                    taken[port] = link
        for port, link in taken.items():
            with contextlib.suppress(BlockingIOError):
                caller, _ = link.accept()
                caller.settimeout(1)
                with contextlib.suppress(OSError):
                    report(f"was called on {port}", True, repr(caller.recv(200)))
        time.sleep(0.01)


def packets():
    """Listen to the packets of others."""
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300).close()


if __name__ == "__main__":
    *ports, sign = sys.argv[1:]
    gateway = urlsplit(os.environ["MLP_API_URL"])
    attempt("control: reach the gateway", socket.create_connection, (gateway.hostname, gateway.port), 10)
    for host in LOCAL:
        with contextlib.suppress(OSError):
            report(f"ports of {host}", False, " ".join(map(str, listening(host))))
    unix_sockets()
    attempt("raw packets", packets)
    attempt("raw ICMP", socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    attempt("netlink audit", lambda: check(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9).send(b"\0" * 16) == 0))
    open(sign, "w").close()
    print("waiting", flush=True)
    lie_in_wait(list(map(int, ports)), sign)
