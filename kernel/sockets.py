"""Unix sockets of the platform's own servers, in a folder that only its user can enter.

A port belongs to the process that binds it first: a job could take the port of a server that is being restarted, and
would be sent what its clients send. A name in this folder cannot be taken.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import socket
import ssl
import stat
import tempfile
from pathlib import Path

LONGEST = 100  # bytes of a socket's address; the kernel's limit is 107
LONGEST_NAME = len("/.s.PGSQL.65535")
SCHEME = "unix:"
OF_RUN = "run-"  # how the name of a run's socket begins: it outlives the servers

# Connections that wait to be accepted: after a restart of the platform all open pages come at once. Where the queue of
# a unix socket is full, connect(2) fails at once. The kernel takes no more than net.core.somaxconn.
BACKLOG = 4096

# (host, port), or the path of a unix socket
Address = tuple[str, int] | str


def folder(root: Path) -> Path:
    """Return the folder for the sockets of this storage root."""
    return fitting(root / "run" / "sockets", root)


def fitting(usual: Path, root: Path) -> Path:
    """Return the usual folder, or one of ours in the temporary folder where that path is too long for a socket's
    address, or has a character that nginx's configuration cannot have.
    """
    path = str(usual)
    if len(os.fsencode(path)) + LONGEST_NAME <= LONGEST and path.isascii() and ":" not in path:
        return usual
    return short_folder(root)


def short_folder(root: Path) -> Path:
    """Return a folder of ours with a short path, for the sockets of this storage root."""
    mark = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"mlp-{os.geteuid()}-{mark}"


def make_folder(path: Path) -> None:
    """Create the folder. Raises PermissionError where it is not ours alone."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.lstat()
    if info.st_uid != os.geteuid() or not stat.S_ISDIR(info.st_mode) or info.st_mode & 0o077:
        raise PermissionError(f"{path} must be a folder that is ours alone; remove it, or choose a shorter MLP_ROOT")


def of_run(name: str) -> str:
    """Return the name of the socket of the run with this name, which may be longer than a socket's may."""
    mark = base64.b32encode(hashlib.sha256(name.encode()).digest()).decode()[:10]
    return OF_RUN + mark.lower()


def text(address: Address) -> str:
    """Return the address as it is stored: `host:port`, or `unix:` and the path."""
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else f"{SCHEME}{address}"


def parse(stored: str) -> Address:
    """Return the address that `text` gave this form. Raises ValueError."""
    if stored.startswith(SCHEME):
        return stored.removeprefix(SCHEME)
    host, _colon, port = stored.rpartition(":")
    return host.strip("[]"), int(port)


def connect(address: Address, timeout_s: float) -> socket.socket:
    """Return a connection to a server of ours. Raises OSError."""
    if isinstance(address, tuple):
        return socket.create_connection(address, timeout=timeout_s)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(timeout_s)
    try:
        link.connect(address)
    except OSError:
        link.close()
        raise
    return link


class HttpConnection(http.client.HTTPConnection):
    """HTTP to a port or to a unix socket, over TLS where a context is given."""

    def __init__(self, address: Address, timeout_s: float, tls: ssl.SSLContext | None = None):
        host, port = address if isinstance(address, tuple) else ("localhost", None)
        super().__init__(host, port, timeout=timeout_s)
        self.address, self.tls = address, tls

    def connect(self) -> None:
        self.sock = connect(self.address, self.timeout)
        if self.tls is not None:
            self.sock = self.tls.wrap_socket(self.sock, server_hostname=self.host)
